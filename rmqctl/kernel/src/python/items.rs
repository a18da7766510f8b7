//! The Python interface for storing index items: those of one message, and those of many, which a
//! second thread stores while Python goes on.

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

/// From so many keys on a second thread stores them.
const LONG_RUN: usize = 1 << 12;

/// Stores the items of one message into an index file that has `next` - 1 items, and then their slots.
/// Returns how many slots had no item before.
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

/// Stores the items of many messages into an index file, and then its header. A second thread stores a
/// long run. That thread does not need the GIL, so a thread that waits for it may hold the GIL.
#[pyclass(frozen)]
pub struct ItemRun {
    state: Mutex<State>,
    /// The header before the items, and the process that has the thread.
    before: Header,
    process: u32,
}

enum State {
    /// The buffer is held until the thread has ended.
    Running(JoinHandle<PyResult<Header>>, Arc<PyBuffer<u8>>),
    Ended(Header),
    /// It is not known which items are stored.
    Failed,
}

#[pymethods]
impl ItemRun {
    /// Stores the items of `count` keys, from row `first` of the columns `keys` on, behind the items of
    /// the file. Hashes are 32-bit integers, offsets and times (ms) 64-bit ones, in this machine's byte
    /// order. `before` is the header as it is now, `behind` as it will be, except that the slots which
    /// get their first item are added. Times count from the begin in `behind`; that of the first item
    /// is `first_diff` (s).
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
            // The run is short, or the system gives no thread.
            None => State::Ended(py.detach(|| guarded(work))?),
        };
        Ok(ItemRun { state: Mutex::new(state), before, process: process::id() })
    }

    /// The fields of the `IndexHeader` after the items. Waits until all of them are stored.
    #[getter]
    fn fields(&self, py: Python<'_>) -> PyResult<Header> {
        // A forked child does not have the thread. It gets the header as it was before.
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
    /// The buffer must not be released before the thread has ended.
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

/// Waits for a thread, and returns its result. A panic of the thread continues here.
fn ended(thread: JoinHandle<PyResult<Header>>) -> PyResult<Header> {
    thread.join().unwrap_or_else(|cause| resume_unwind(cause))
}
