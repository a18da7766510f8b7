//! What Python sees of index items that are stored: those of one message, and those of many, which
//! are stored beside whatever comes next.

use std::mem;
use std::panic::resume_unwind;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::bytes::processors::{Asker, has_processors};
use crate::index::items::{self, Common, Header, Key, Places};
use crate::python::append::room_of;
use crate::python::derived::numbers;
use crate::python::{KernelPanic, array_of, bytes_of, guarded};

/// Keys that are worth a thread.
const LONG_RUN: usize = 1 << 12;

/// Stores the items of one message into an index file, behind the `next` - 1 ones that it has, and
/// its slots; how many slots had none before.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "where to, and what")]
pub fn store_items(
    buffer: PyBuffer<u8>,
    slots: usize,
    slot_count: u32,
    items: usize,
    next: i32,
    key_hashes: Vec<i32>,
    physical_offset: i64,
    first_diff: i32,
    diff: i32,
) -> PyResult<i32> {
    let mut room = room_of(&buffer)?;
    let places = Places { slots, slot_count, items, next };
    let common = Common { physical_offset, first_diff, diff };
    guarded(|| Ok(items::store(&mut room, places, &key_hashes, common)))
}

/// The items of many messages on their way into an index file, and behind them its header. Of a long
/// run another thread stores them; it needs no lock of Python's, so who waits for it may hold that.
#[pyclass(frozen)]
pub struct ItemRun {
    state: Mutex<State>,
    /// The header before it, and the process whose thread it is.
    before: Header,
    process: u32,
}

enum State {
    /// The buffer is held as long as the thread stores into it.
    Running(JoinHandle<PyResult<Header>>, Arc<PyBuffer<u8>>),
    Ended(Header),
    /// Nobody knows what is stored.
    Failed,
}

#[pymethods]
impl ItemRun {
    /// Stores the items of keys, from number `first` on in their columns, `count` of them, behind the
    /// items that the file has. Hashes are 32-bit, offsets and times 64-bit numbers of this machine.
    /// `before` is the header as it is, and `behind` as it is to be, but for the slots that get their
    /// first item; times count from `begin_timestamp`, that of the first one is `first_diff`.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "where to, and what")]
    fn new(
        py: Python<'_>,
        buffer: PyBuffer<u8>,
        slots: usize,
        slot_count: u32,
        items: usize,
        next: i32,
        keys: (PyBuffer<u8>, PyBuffer<u8>, PyBuffer<u8>),
        first: usize,
        count: usize,
        first_diff: i32,
        before: Header,
        behind: Header,
    ) -> PyResult<Self> {
        room_of(&buffer)?;
        let places = Places { slots, slot_count, items, next };
        let hashes = bytes_of(&keys.0).chunks_exact(4).map(array_of).map(i32::from_ne_bytes);
        let keys = hashes.zip(numbers(bytes_of(&keys.1))).zip(numbers(bytes_of(&keys.2)));
        let keys =
            keys.skip(first).take(count).map(|((hash, offset), stamp)| (hash, offset, stamp));
        let keys: Arc<[Key]> = keys.collect();
        let held = Arc::new(buffer);
        let work = {
            let (held, keys) = (held.clone(), keys.clone());
            move || {
                let mut room = room_of(&held)?;
                Ok(items::store_run(&mut room, places, &keys, first_diff, behind))
            }
        };
        let asker = Asker::here();
        let beside = {
            let work = work.clone();
            move || {
                asker.leave();
                work()
            }
        };
        let other = thread::Builder::new().name("index".to_owned());
        let is_long = keys.len() >= LONG_RUN && has_processors();
        let thread = if is_long { other.spawn(beside).ok() } else { None };
        let state = match thread {
            Some(thread) => {
                asker.make_way();
                State::Running(thread, held)
            }
            // It is short, or the system has no thread for it.
            None => State::Ended(py.detach(|| guarded(work))?),
        };
        Ok(ItemRun { state: Mutex::new(state), before, process: process::id() })
    }

    /// The fields of the `IndexHeader` behind the items, when all of them are stored.
    #[getter]
    fn fields(&self, py: Python<'_>) -> PyResult<Header> {
        // A fork's child has nobody who stores them, and is told what it has seen.
        if self.process != process::id() {
            return Ok(self.before);
        }
        py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            match mem::replace(&mut *state, State::Failed) {
                State::Running(thread, held) => {
                    let header = guarded(|| ended(thread))?;
                    *state = State::Ended(header);
                    drop(state);
                    drop(held);
                    Ok(header)
                }
                State::Ended(header) => {
                    *state = State::Ended(header);
                    Ok(header)
                }
                State::Failed => Err(KernelPanic::new_err("index items were not stored")),
            }
        })
    }
}

impl Drop for ItemRun {
    /// The buffer is not let go before the thread has ended.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let State::Running(thread, held) = mem::replace(state, State::Failed) {
            if self.process == process::id() {
                let _ = thread.join();
            } else {
                mem::forget(thread);
            }
            drop(held);
        }
    }
}

/// What a thread has made, when it has ended; its panic goes on here.
fn ended(thread: JoinHandle<PyResult<Header>>) -> PyResult<Header> {
    thread.join().unwrap_or_else(|cause| resume_unwind(cause))
}
