//! The Python interface of the append: stores messages or lines as records of a log file, many in one
//! call. The GIL is released for lines, but not for messages, which are Python objects.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyIterator, PyTuple, PyType};

use crate::bytes::fetch;
use crate::bytes::mapped::Room;
use crate::bytes::processors::has_processors;
use crate::put::append::{self, Input, Times};
use crate::put::behind::{ALONE_BYTES, Behind, Work, store_behind};
use crate::put::jsonline::Defaults;
use crate::put::maker::{Asked, Fixed, Maker, Place, Refused, Stop};
use crate::put::message::{Host, Origin};
use crate::put::storing::{Clock, Row};
use crate::python::message::{Fields, Reader, host_of, reader_of};
use crate::python::{bytes_of, guarded, longs, numbers_of};
use crate::queue::newunits;

/// What was stored: the columns `queue`, `position`, `size`, `queue_offset` and `store_timestamp` of
/// all records, one behind the other (64-bit integers); the queues; the columns of keys; and the store
/// host of the messages; None if there are none.
type Stored<'py> =
    (Bound<'py, PyByteArray>, Vec<OfQueue<'py>>, Columns<'py>, Option<Bound<'py, PyTuple>>);
/// A queue: its number, the number of messages and the bytes of their records, the next queue offset,
/// the physical offset of the first record, and the units.
type OfQueue<'py> = (u32, i64, i64, i64, i64, Bound<'py, PyBytes>);
/// Hashes of keys, and the physical offsets and store times (ms) of their records.
type Columns<'py> = (Bound<'py, PyByteArray>, Bound<'py, PyByteArray>, Bound<'py, PyByteArray>);

/// The position of the next record, that of the next line, how many lines were taken, why it stopped,
/// and the error that `queue` or `room` raised.
type OfLines = (usize, usize, usize, u8, Option<PyErr>);

/// The position of the next record, the message that was not stored or the error that was raised, why
/// it stopped, and the position up to which the next record needs room.
type OfMessages<'py> = (usize, Option<Bound<'py, PyAny>>, u8, usize);

/// Whether a second thread stores the records of a long stream.
#[pyfunction]
pub fn stores_behind() -> bool {
    has_processors()
}

/// What messages have of whose fields a line says nothing (`LineDefaults`).
#[derive(FromPyObject)]
struct OfEachLine {
    topic: Option<String>,
    queue_id: u32,
    tags: String,
    keys: String,
    properties: Vec<(String, String)>,
    flag: i32,
    born_host: Host,
    store_host: Host,
    prepared_transaction_offset: i64,
}

impl OfEachLine {
    /// The same in the two forms of which records are made.
    fn split(self) -> (Origin, Defaults) {
        let OfEachLine { topic, queue_id, tags, keys, properties, .. } = self;
        let origin = Origin {
            flag: self.flag,
            prepared_transaction_offset: self.prepared_transaction_offset,
            ..Origin::of_hosts(self.born_host, self.store_host)
        };
        (origin, Defaults { topic, queue_id, tags, keys, properties })
    }
}

/// Appends messages to a store.
#[pyclass]
pub struct Appender {
    records: append::Appender,
    reader: Option<Reader>,
    defaults: Defaults,
    /// The bytes of the stream's messages so far.
    bytes: usize,
}

#[pymethods]
impl Appender {
    /// `usual` is what messages have of whose fields a line says nothing; without it no lines are
    /// appended. `classes` are the classes of messages: `MessageExtBrokerInner` and `PlainMessage`.
    #[new]
    #[pyo3(signature = (*, usual, shortest_properties, largest_record, indexes_tags, classes))]
    fn new(
        py: Python<'_>,
        usual: Option<OfEachLine>,
        shortest_properties: usize,
        largest_record: usize,
        indexes_tags: bool,
        classes: Option<(Py<PyType>, Py<PyType>)>,
    ) -> PyResult<Self> {
        let (usual, defaults) = match usual {
            Some(usual) => usual.split(),
            None => Default::default(),
        };
        let fixed = Fixed { usual, shortest_properties, largest_record, indexes_tags };
        let records = append::Appender::new(fixed);
        let reader = classes.map(|classes| Reader::new(py, classes)).transpose()?;
        Ok(Appender { records, reader, defaults, bytes: 0 })
    }

    /// Lets messages go to a queue, from its queue offset `next` up to `limit`. Returns its number.
    fn admit(&mut self, topic: &str, queue_id: i32, next: i64, limit: i64) -> u32 {
        self.records.admit(topic.as_bytes(), queue_id, next, limit)
    }

    /// What was stored since the last call.
    fn taken<'py>(&mut self, py: Python<'py>) -> PyResult<Stored<'py>> {
        let host = self.records.maker.host.map(|host| host_of(py, host)).transpose()?;
        self.records.taken(|rows, totals, keys| {
            let column = |value: fn(&Row) -> i64| rows.iter().map(value);
            let columns: Vec<i64> = column(|row| i64::from(row.queue))
                .chain(column(|row| row.position as i64))
                .chain(column(|row| row.size as i64))
                .chain(column(|row| row.queue_offset))
                .chain(column(|row| row.store_timestamp))
                .collect();
            let totals = totals.iter().map(|(number, total)| {
                let units = PyBytes::new(py, &total.units);
                (*number, total.messages(), total.bytes, total.next, total.physical_offset, units)
            });
            let hashes = numbers_of(py, &keys.hashes, i32::to_ne_bytes)?;
            let keys = (hashes, longs(py, &keys.offsets)?, longs(py, &keys.stamps)?);
            Ok((longs(py, &columns)?, totals.collect(), keys, host))
        })
    }

    /// Forgets all queues.
    fn forget(&mut self) {
        self.records.forget();
    }

    /// Stores one message (`MessageExtBrokerInner`) into the buffer at `position`; it may not end
    /// behind `end`. Returns its size, the code of its tags, the hashes of its keys, and its store time
    /// from `clock`, which is called last, when nothing else can fail. If it was not stored, returns
    /// the number of a stop, and for `Stop::Room` the position up to which it needs room.
    #[expect(clippy::too_many_arguments, reason = "what, where to, and when")]
    fn put<'py>(
        &mut self,
        py: Python<'py>,
        message: &Bound<'py, PyAny>,
        buffer: PyBuffer<u8>,
        position: usize,
        end: usize,
        file_from_offset: i64,
        queue_offset: i64,
        clock: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let fields = reader_of(&mut self.reader)?.read(message);
        let (mut room, own) = (room_of(&buffer)?, &mut self.records.maker);
        let place = Place { position, end, file_from_offset, most: 1, enough: end };
        let stored = match fields.as_ref().and_then(Fields::message) {
            None => Err((Stop::Unsure, 0)),
            Some(mut message) => guarded(|| {
                let (size, found) = match own.encode(place, position, &mut message, queue_offset) {
                    Ok(encoded) => encoded,
                    Err(stop) => return Ok(Err(stop)),
                };
                let timestamp: i64 = clock.call0()?.extract()?;
                own.store(&mut room, position, timestamp);
                Ok(Ok((size, own.derived(message.topic, &found), timestamp)))
            })?,
        };
        match stored {
            Ok((size, (tags_code, hashes), timestamp)) => {
                (size, tags_code, hashes, timestamp).into_pyobject(py)
            }
            Err((stop, needed)) => (stop as u8, needed).into_pyobject(py),
        }
    }

    /// Stores the messages of `lines`, from the position `at` on, into the buffer from `position` on.
    /// No record ends behind `end`. It stops when `most` messages were stored since `taken`, or when a
    /// record ends at `enough` or behind it. `descriptor` is that of the mapped file, or -1. `queue`,
    /// `room` and `is_compressed` are called as [`Asked`] says; without them it stops instead.
    #[expect(clippy::too_many_arguments, reason = "where from, where to, and when")]
    #[pyo3(signature = (buffer, lines, at, *, position, end, file_from_offset, most, enough,
        born_timestamp, store_timestamp, queue=None, room=None, is_compressed=None,
        descriptor=-1))]
    fn append<'py>(
        &mut self,
        py: Python<'py>,
        buffer: PyBuffer<u8>,
        lines: &Bound<'py, PyBytes>,
        at: usize,
        position: usize,
        end: usize,
        file_from_offset: i64,
        most: usize,
        enough: usize,
        born_timestamp: i64,
        store_timestamp: i64,
        queue: Option<Py<PyAny>>,
        room: Option<Py<PyAny>>,
        is_compressed: Option<Py<PyAny>>,
        descriptor: i32,
    ) -> PyResult<OfLines> {
        let place = Place { position, end, file_from_offset, most, enough };
        let times = Times { born: born_timestamp, stored: store_timestamp };
        let (file, alone) = (file_of(descriptor), self.alone());
        let mut asking = Asking { queue, room, is_compressed };
        let room = room_of(&buffer)?.in_file(file.as_ref());
        let input = Input { lines: lines.as_bytes(), at, defaults: &self.defaults };
        let own = &mut self.records;
        let work = || guarded(|| Ok(own.append(room, alone, place, input, times, &mut asking)));
        let (taken, done) = py.detach(work)?;
        self.bytes = self.bytes.saturating_add(taken.position.saturating_sub(position));
        let stop = if done.is_err() { Stop::Failed } else { taken.stop };
        Ok((taken.position, taken.at, taken.lines, stop as u8, done.err()))
    }

    /// Stores `first` and the messages of `source`, an iterator, as `append` stores those of lines, up
    /// to the first that is not taken. A None from `source` ends that like the end of the iterator.
    /// `clock` gives store times (ms); None: the system's time when the record is stored.
    #[expect(clippy::too_many_arguments, reason = "where from, where to, and when")]
    #[pyo3(signature = (buffer, source, first, *, position, end, file_from_offset, most, enough,
        clock, queue=None, room=None, descriptor=-1))]
    fn append_messages<'py>(
        &mut self,
        buffer: PyBuffer<u8>,
        source: &Bound<'py, PyIterator>,
        first: Option<Bound<'py, PyAny>>,
        position: usize,
        end: usize,
        file_from_offset: i64,
        most: usize,
        enough: usize,
        clock: Option<Bound<'py, PyAny>>,
        queue: Option<Py<PyAny>>,
        room: Option<Py<PyAny>>,
        descriptor: i32,
    ) -> PyResult<OfMessages<'py>> {
        let place = Place { position, end, file_from_offset, most, enough };
        let (file, alone) = (file_of(descriptor), self.alone());
        let (own, reader) = (&mut self.records, reader_of(&mut self.reader)?);
        let asking = Asking { queue, room, is_compressed: None };
        let times: Clock = if clock.is_some() { None } else { Some(system_clock) };
        let room = room_of(&buffer)?.in_file(file.as_ref());
        let (maker, storing) = (&mut own.maker, &mut own.storing);
        let mut messages = Messages { place, maker, reader, clock, asking };
        let mut taken = Taken { position, held: first };
        let (stop, needed) = guarded(|| {
            let work = Work::new(storing, room, file_from_offset, times);
            let take = |behind: &mut Behind<'_, '_>| messages.take(source, &mut taken, behind);
            Ok(store_behind(work, alone, take))
        })?;
        self.bytes = self.bytes.saturating_add(taken.position.saturating_sub(position));
        Ok((taken.position, taken.held, stop as u8, needed))
    }
}

impl Appender {
    /// The bytes of records that the first thread stores itself before a second one is started.
    fn alone(&self) -> usize {
        if has_processors() { ALONE_BYTES.saturating_sub(self.bytes) } else { usize::MAX }
    }
}

/// Calls the callables that Python gave.
struct Asking {
    queue: Option<Py<PyAny>>,
    room: Option<Py<PyAny>>,
    is_compressed: Option<Py<PyAny>>,
}

impl Asked for Asking {
    type Error = PyErr;

    fn queue(
        &mut self,
        topic: &str,
        queue_id: i32,
        next: Option<i64>,
    ) -> PyResult<Option<(i64, i64)>> {
        let Some(asked) = &self.queue else { return Ok(None) };
        Python::attach(|py| asked.bind(py).call1((topic, queue_id, next))?.extract())
    }

    fn room(&mut self, position: usize, needed: usize) -> PyResult<Option<usize>> {
        let Some(asked) = &self.room else { return Ok(None) };
        Python::attach(|py| asked.bind(py).call1((position, needed))?.extract())
    }

    fn is_compressed(&mut self, body: &[u8], sys_flag: i32) -> PyResult<bool> {
        let Some(asked) = &self.is_compressed else { return Ok(false) };
        Python::attach(|py| asked.bind(py).call1((PyBytes::new(py, body), sys_flag))?.extract())
    }
}

/// Bytes of a body that are prefetched. The hardware prefetcher then continues by itself.
const FETCHED: usize = 1 << 10;

/// Appends the messages of an iterator.
struct Messages<'a, 'py> {
    place: Place,
    maker: &'a mut Maker,
    reader: &'a mut Reader,
    clock: Option<Bound<'py, PyAny>>,
    asking: Asking,
}

/// The position of the next record, and the next message, or an error.
struct Taken<'py> {
    position: usize,
    held: Option<Bound<'py, PyAny>>,
}

impl<'py> Taken<'py> {
    fn failed(&mut self, py: Python<'py>, error: PyErr) -> (Stop, usize) {
        self.held = Some(error.into_value(py).into_bound(py).into_any());
        (Stop::Failed, 0)
    }
}

impl<'py> Messages<'_, 'py> {
    fn take(
        &mut self,
        source: &Bound<'py, PyIterator>,
        taken: &mut Taken<'py>,
        behind: &mut Behind<'_, '_>,
    ) -> (Stop, usize) {
        let (py, mut source) = (source.py(), source.clone());
        loop {
            if self.maker.is_full(self.place, taken.position) {
                return (Stop::Full, 0);
            }
            if taken.held.is_none() {
                taken.held = match source.next() {
                    None => return (Stop::Lines, 0),
                    Some(Err(error)) => return taken.failed(py, error),
                    Some(Ok(message)) if message.is_none() => return (Stop::Lines, 0),
                    Some(Ok(message)) => Some(message),
                };
            }
            let Some(message) = &taken.held else { continue };
            match self.put(message, taken.position, behind) {
                Ok(size) => {
                    taken.position += size;
                    taken.held = None;
                }
                Err(Refused::Stopped(stop, needed)) => {
                    match self.ask((stop, needed), taken.position, behind) {
                        Ok(true) => {}
                        Ok(false) => return (stop, needed),
                        Err(error) => return taken.failed(py, error),
                    }
                }
                Err(Refused::Failed(error)) => return taken.failed(py, error),
            }
        }
    }

    fn ask(
        &mut self,
        stop: (Stop, usize),
        position: usize,
        behind: &mut Behind<'_, '_>,
    ) -> PyResult<bool> {
        self.maker.ask(&mut self.asking, stop, &mut self.place, position, behind)
    }

    fn put(
        &mut self,
        message: &Bound<'py, PyAny>,
        position: usize,
        behind: &mut Behind<'_, '_>,
    ) -> Result<usize, Refused<PyErr>> {
        let fields = self.reader.read(message);
        let Some(fields) = fields else { return Err(Refused::Stopped(Stop::Unsure, 0)) };
        self.maker.expect_host(fields.store_host)?;
        let Some(mut message) = fields.message() else {
            return Err(Refused::Stopped(Stop::Unsure, 0));
        };
        // The body is copied later. It is often not in the cache yet.
        fetch::range(message.body, 0, FETCHED);
        let clock = || match &self.clock {
            Some(clock) => clock.call0()?.extract(),
            None => Ok(0), // It gets its time when it is stored.
        };
        let records = behind.records();
        let made = self.maker.make(records, self.place, position, &mut message, clock)?;
        behind.add(made);
        Ok(made.row.size)
    }
}

/// Milliseconds since the epoch.
pub fn system_clock() -> i64 {
    // `Duration::as_millis` has 128 bits, and would take longer than reading the clock.
    let millis = |time: Duration| time.as_secs() as i64 * 1000 + i64::from(time.subsec_millis());
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => millis(since),
        Err(before) => -millis(before.duration()),
    }
}

/// Stores whole units at a position of a queue's file that has only zeros from there on.
#[pyfunction]
pub fn store_units(buffer: PyBuffer<u8>, position: usize, stored: PyBuffer<u8>) -> PyResult<()> {
    let mut room = room_of(&buffer)?;
    let units = bytes_of(&stored);
    guarded(|| {
        newunits::store_all(&mut room, position, units);
        Ok(())
    })
}

/// A duplicate of a descriptor that Python has open. None for -1, or if the system has no more
/// descriptors.
#[allow(unsafe_code)]
pub fn file_of(descriptor: i32) -> Option<File> {
    // SAFETY: the caller holds the file (`Place.mapped`), so the descriptor is open during the call.
    let held = (descriptor >= 0).then(|| unsafe { BorrowedFd::borrow_raw(descriptor) });
    held.and_then(|held| held.try_clone_to_owned().ok()).map(File::from)
}

/// The writable bytes of a buffer, while it is held.
#[allow(unsafe_code)]
pub fn room_of(buffer: &PyBuffer<u8>) -> PyResult<Room<'_>> {
    if buffer.readonly() || !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("the buffer cannot be written to"));
    }
    // SAFETY: the buffer is writable and contiguous, and stays so while it is borrowed.
    Ok(unsafe { Room::at(buffer.buf_ptr().cast(), buffer.len_bytes()) })
}
