//! The Python interface: a module for each part of the kernel, and here the class of the scan, which
//! reads windows of a buffer into columns.
//!
//! The GIL is released while records are read. One call reads one window, so that Python handles
//! Ctrl-C between two calls.

mod ahead;
mod append;
mod arrow;
mod derived;
mod items;
mod keylines;
mod keys;
mod lines;
mod liveindex;
mod memory;
mod message;
mod plain;
mod putcounts;
mod records;
mod single;
mod stored;

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyTuple};

use crate::arrow::rows;
use crate::bytes::lost;
use crate::bytes::pieces::Source;
use crate::index::links;
use crate::layouts::VERSIONS;
use crate::lines::columns::COLUMNS;
use crate::python::append::{Appender, file_of, store_units, stores_behind};
use crate::python::arrow::arrow_columns;
use crate::python::derived::{PySlots, units_by_queue};
use crate::python::items::{ItemRun, store_items};
use crate::python::keylines::lines_of_keys;
use crate::python::keys::{IndexReader, index_key_hash, rows_of_key};
use crate::python::lines::{PyLines, unit_lines};
use crate::python::liveindex::LiveHeader;
use crate::python::plain::{Runs, join_runs};
use crate::python::putcounts::PutCounts;
use crate::python::records::{Rows, pull_records, record_at};
use crate::python::single::SingleAppender;
use crate::python::stored::pull_stored;
use crate::record::topics::Topics;
use crate::scan::columns::{INT_COLUMNS, Ints, ROW_BYTES};
use crate::scan::parts::{self, Part};
use crate::scan::plain::{self as scanned, Asked};
use crate::scan::window::{Stop, Wanted, Window};

pyo3::create_exception!(
    _kernel,
    KernelPanic,
    PyRuntimeError,
    "The compiled kernel has a bug: where, and what it found."
);

/// The version of this interface. `rmqctl/kernel/__init__.py` has the same number.
const INTERFACE: u32 = 25;

/// The place in the source of the last panic, for the exception.
static PLACE: Mutex<String> = Mutex::new(String::new());

/// The bytes of a buffer, while it is held.
///
/// Besides `bytes/mapped.rs` this is the only place that trusts memory which Python provides. While
/// `buffer` is held, its owner neither frees nor moves the bytes (an mmap refuses to close, a bytearray
/// to grow). But others may write: a broker may append to the file under the map. So every length is
/// read once into a variable, checked, and used from there. A byte that changes between two reads can
/// make a result wrong, which the scanner then checks again, but never leads out of the slice. If a
/// file shrinks under its map, a read ends the process (`bytes/lost.rs`).
#[allow(unsafe_code)]
pub fn bytes_of(buffer: &PyBuffer<u8>) -> &[u8] {
    if buffer.len_bytes() == 0 || !buffer.is_c_contiguous() {
        return &[];
    }
    // SAFETY: the bytes are contiguous, not null, and of this length while the buffer is borrowed.
    unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) }
}

/// The exception for an error of the system's, with its number and words, as Python has them.
pub fn refused(error: io::Error) -> PyErr {
    let Some(code) = error.raw_os_error() else { return error.into() };
    let text = error.to_string();
    let words = text.split(" (os error").next().unwrap_or(&text);
    PyOSError::new_err((code, words.to_owned()))
}

/// Turns a panic into an exception, so that it ends a command like any other bug, and never the
/// process.
pub fn guarded<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| {
        let place = PLACE.lock().map(|place| place.clone()).unwrap_or_default();
        Err(KernelPanic::new_err(format!("{} at {place}", said(&*cause))))
    })
}

fn said(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

/// A scan of a log, with what is kept from one window to the next.
#[pyclass]
struct Scanner {
    threads: Vec<Topics>,
    wanted: Wanted,
}

#[pymethods]
impl Scanner {
    #[new]
    #[pyo3(signature = (*, check, properties, indexes_tags, threads))]
    fn new(check: bool, properties: bool, indexes_tags: bool, threads: usize) -> Self {
        let threads = (0..threads.max(1)).map(|_| Topics::new(indexes_tags)).collect();
        Scanner { threads, wanted: Wanted { check, properties } }
    }

    /// The positions at which a window can be split into at most so many parts: its first byte, and
    /// starts of records behind it.
    #[expect(clippy::too_many_arguments, reason = "a window's, and its buffer")]
    fn starts(
        &self,
        py: Python<'_>,
        buffer: PyBuffer<u8>,
        position: usize,
        limit: usize,
        readable: usize,
        file_from_offset: i64,
        parts: usize,
    ) -> PyResult<Vec<usize>> {
        let window = Window { position, limit, readable, file_from_offset };
        let data = bytes_of(&buffer);
        py.detach(|| guarded(|| Ok(parts::starts(data, window, parts))))
    }

    /// Reads records of a window in parts that begin at `starts`, at most `most` rows each. Returns the
    /// position where it stopped, up to where the file must be readable to continue (0: it is),
    /// whether the next call can continue there, the whole numbers of all parts, and for each part that
    /// counts: `(thread, new topics, rows, crc_matches, key_row, key_hash, malformed,
    /// multi_dispatch_rows, odd_port_rows, property_crc_rows, delay_levels)`. Each thread numbers
    /// topics in the order in which it sees them; new topics are those that it sees for the first time.
    #[expect(clippy::too_many_arguments, reason = "a window's, and its buffer")]
    fn fill<'py>(
        &mut self,
        py: Python<'py>,
        buffer: PyBuffer<u8>,
        starts: Vec<usize>,
        limit: usize,
        readable: usize,
        file_from_offset: i64,
        most: usize,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let position = starts[0];
        let window = Window { position, limit, readable, file_from_offset };
        let (data, wanted, threads) = (bytes_of(&buffer), self.wanted, &mut self.threads);
        let each = most.max(1) * ROW_BYTES;
        let mut filled = None;
        let ints = PyByteArray::new_with(py, starts.len() * each, |room| {
            let rooms = room.chunks_exact_mut(each).map(Ints::new).collect();
            let work =
                || guarded(|| Ok(parts::fill(threads, data, window, &starts, wanted, rooms)));
            filled = Some(py.detach(work)?);
            Ok(())
        })?;
        let filled = filled.expect("it was filled");
        let needed = if let Stop::Needs(end) = filled.stop { end } else { 0 };
        let columns = filled.parts.iter().map(|part| others(py, part, &self.threads[part.thread]));
        let columns = columns.collect::<PyResult<Vec<_>>>()?;
        (filled.reached, needed, filled.goes_on, ints, columns).into_pyobject(py)
    }

    /// Reads the plain records of a window, up to the first record that is not plain, in parts that
    /// begin at `starts`. Returns each part that counts (`plain::taken`), with units and keys if these
    /// are asked for. The file is read from `descriptor`; if that is -1, its map, the buffer, is used.
    /// Raises OSError if the file cannot be read.
    #[expect(clippy::too_many_arguments, reason = "a window's, its buffer, and what is wanted")]
    #[pyo3(signature = (buffer, descriptor, starts, limit, readable, file_from_offset, *, units, keys))]
    fn plain<'py>(
        &mut self,
        py: Python<'py>,
        buffer: PyBuffer<u8>,
        descriptor: i32,
        starts: Vec<usize>,
        limit: usize,
        readable: usize,
        file_from_offset: i64,
        units: bool,
        keys: bool,
    ) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let window = Window { position: starts[0], limit, readable, file_from_offset };
        let asked = Asked { check: self.wanted.check, units, keys };
        let (file, threads) = (file_of(descriptor), &mut self.threads);
        let map = bytes_of(&buffer);
        // A file may have grown since it was mapped.
        let source = Source { map, file: file.as_ref(), readable: readable.min(map.len()) };
        let work = || scanned::read(threads, source, window, &starts, asked).map_err(refused);
        let parts = py.detach(|| guarded(work))?;
        parts.into_iter().map(|part| plain::taken(py, part, &self.threads)).collect()
    }
}

/// What a part has besides the whole numbers of its rows.
fn others<'py>(py: Python<'py>, part: &Part, topics: &Topics) -> PyResult<Bound<'py, PyTuple>> {
    let columns = &part.extras;
    let delays = columns.delay_levels.iter();
    let delays: Vec<_> = delays.map(|(row, level)| (*row, PyBytes::new(py, level))).collect();
    let new = topics.named(part.new_topics.clone());
    (
        part.thread,
        new.map(|topic| PyBytes::new(py, topic)).collect::<Vec<_>>(),
        part.rows,
        PyByteArray::new(py, &columns.crc_matches),
        longs(py, &columns.key_row)?,
        numbers_of(py, &columns.key_hash, i32::to_ne_bytes)?,
        longs(py, &columns.malformed)?,
        longs(py, &columns.multi_dispatch_rows)?,
        longs(py, &columns.odd_port_rows)?,
        longs(py, &columns.property_crc_rows)?,
        delays,
    )
        .into_pyobject(py)
}

pub fn longs<'py>(py: Python<'py>, values: &[i64]) -> PyResult<Bound<'py, PyByteArray>> {
    numbers_of(py, values, i64::to_ne_bytes)
}

pub fn numbers_of<'py, T: Copy, const N: usize>(
    py: Python<'py>,
    values: &[T],
    bytes: impl Fn(T) -> [u8; N],
) -> PyResult<Bound<'py, PyByteArray>> {
    PyByteArray::new_with(py, values.len() * N, |array| {
        for (place, value) in array.chunks_exact_mut(N).zip(values) {
            place.copy_from_slice(&bytes(*value));
        }
        Ok(())
    })
}

/// `link_items` of `rmqctl/engine/index/links.py`: `(previous, slot, newest, fresh_slots)`. `slot` has
/// 64-bit and `number` 32-bit integers in this machine's byte order. `newest_of_slot` has 32 bits for
/// each slot, in that byte order unless they are `big_endian`.
#[pyfunction]
fn link_items<'py>(
    py: Python<'py>,
    slot: PyBuffer<u8>,
    number: PyBuffer<u8>,
    newest_of_slot: PyBuffer<u8>,
    big_endian: bool,
    count: i32,
) -> PyResult<Bound<'py, PyTuple>> {
    let (slots, numbers, newest) = (bytes_of(&slot), bytes_of(&number), bytes_of(&newest_of_slot));
    let newest_of = |slot: i64| {
        let at = 4 * slot as usize;
        let bytes = array_of(&newest[at..at + 4]);
        if big_endian { i32::from_be_bytes(bytes) } else { i32::from_ne_bytes(bytes) }
    };
    let links = py.detach(|| {
        guarded(|| {
            let slots = slots.chunks_exact(8).map(|slot| i64::from_ne_bytes(array_of(slot)));
            let numbers =
                numbers.chunks_exact(4).map(|number| i32::from_ne_bytes(array_of(number)));
            Ok(links::link_items(slots, numbers, newest_of, count))
        })
    })?;
    (
        numbers_of(py, &links.previous, i32::to_ne_bytes)?,
        longs(py, &links.slot)?,
        numbers_of(py, &links.newest, i32::to_ne_bytes)?,
        links.fresh_slots,
    )
        .into_pyobject(py)
}

/// `group_by_queue` of `rmqctl/engine/derive/writer.py`: `(topic id, queue id, rows)` of each queue.
#[pyfunction]
fn group_by_queue<'py>(
    py: Python<'py>,
    topic_id: PyBuffer<u8>,
    queue_id: PyBuffer<u8>,
) -> PyResult<Vec<(i64, i64, Bound<'py, PyByteArray>)>> {
    let (topics, queues) = (bytes_of(&topic_id), bytes_of(&queue_id));
    let groups = py.detach(|| {
        guarded(|| {
            let number = |bytes: &[u8]| i64::from_ne_bytes(array_of(bytes));
            let topics = topics.chunks_exact(8).map(number);
            Ok(links::group_by_queue(topics.zip(queues.chunks_exact(8).map(number))))
        })
    })?;
    groups.iter().map(|((topic, queue), rows)| Ok((*topic, *queue, longs(py, rows)?))).collect()
}

pub fn array_of<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

/// From now on, when a page of a mapped file cannot be had, the process prints `before`, the file's
/// name and `after` to stderr, and ends with the exit code `code`. Raises OSError if the system refuses.
#[pyfunction]
fn tell_of_lost_pages(before: String, after: String, code: i32) -> PyResult<()> {
    Ok(lost::tell(before, after, code)?)
}

/// Panics, for the tests of how a bug in the kernel is reported.
#[pyfunction]
fn panic() -> PyResult<()> {
    guarded(|| panic!("a panic that was asked for"))
}

#[pymodule]
fn _kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    std::panic::set_hook(Box::new(|panic| {
        if let (Some(at), Ok(mut place)) = (panic.location(), PLACE.lock()) {
            *place = at.to_string();
        }
    }));
    module.add("KernelPanic", module.py().get_type::<KernelPanic>())?;
    module.add("INTERFACE", INTERFACE)?;
    module.add("INT_COLUMNS", PyTuple::new(module.py(), INT_COLUMNS)?)?;
    module.add("SOURCES", option_env!("RMQCTL_KERNEL_SOURCES").unwrap_or(""))?;
    let versions = VERSIONS.map(|v| {
        let (topic, properties) = (v.topic_length, v.properties_length);
        (v.magic_code, topic.size, topic.limit, properties.size, properties.limit)
    });
    module.add("VERSIONS", PyTuple::new(module.py(), versions)?)?;
    module.add_class::<Scanner>()?;
    module.add("ARROW_COLUMNS", PyTuple::new(module.py(), rows::COLUMNS.map(|(name, _)| name))?)?;
    module.add("LINE_COLUMNS", PyTuple::new(module.py(), COLUMNS.map(|(name, _)| name))?)?;
    module.add_class::<PySlots>()?;
    module.add_class::<PyLines>()?;
    module.add_function(wrap_pyfunction!(unit_lines, module)?)?;
    module.add_class::<Appender>()?;
    module.add_class::<Runs>()?;
    module.add_function(wrap_pyfunction!(join_runs, module)?)?;
    module.add_class::<IndexReader>()?;
    module.add_class::<Rows>()?;
    module.add_function(wrap_pyfunction!(index_key_hash, module)?)?;
    module.add_function(wrap_pyfunction!(rows_of_key, module)?)?;
    module.add_function(wrap_pyfunction!(lines_of_keys, module)?)?;
    module.add_function(wrap_pyfunction!(record_at, module)?)?;
    module.add_function(wrap_pyfunction!(pull_records, module)?)?;
    module.add_function(wrap_pyfunction!(pull_stored, module)?)?;
    module.add_function(wrap_pyfunction!(arrow_columns, module)?)?;
    module.add_class::<SingleAppender>()?;
    module.add_class::<PutCounts>()?;
    module.add_class::<LiveHeader>()?;
    module.add_function(wrap_pyfunction!(units_by_queue, module)?)?;
    module.add_function(wrap_pyfunction!(store_items, module)?)?;
    module.add_class::<ItemRun>()?;
    module.add_function(wrap_pyfunction!(stores_behind, module)?)?;
    module.add_function(wrap_pyfunction!(store_units, module)?)?;
    module.add_function(wrap_pyfunction!(link_items, module)?)?;
    module.add_function(wrap_pyfunction!(group_by_queue, module)?)?;
    module.add_function(wrap_pyfunction!(tell_of_lost_pages, module)?)?;
    module.add_function(wrap_pyfunction!(panic, module)?)
}
