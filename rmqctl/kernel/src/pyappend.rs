//! What Python sees of the append of a stream: lines become records right in the map of a log file,
//! many in one call, without the interpreter's lock.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyString, PyTuple};

use crate::append::{Appender, Entry, Fixed, Message, Origin, Place, Row, Stop, Times};
use crate::items::{self, Common, Places};
use crate::mapped::Room;
use crate::python::{guarded, longs};

/// `(place of the next record, place of the next line, lines, why it stopped, what the next record
/// needs, rows, totals)`; rows are the columns `queue`, `position`, `size` and `queue_offset`, one
/// after the other, totals how many messages and bytes went to which queue.
type Answer<'py> = (usize, usize, usize, u8, usize, Bound<'py, PyByteArray>, Vec<(u32, i64, i64)>);

/// The lines of `put --from` on their way into a store.
#[pyclass]
pub struct LineAppender(Appender);

#[pymethods]
impl LineAppender {
    /// Hosts are IPv4 addresses and ports.
    #[new]
    #[pyo3(signature = (*, born_host, store_host, shortest_properties, largest_record))]
    fn new(
        born_host: ([u8; 4], i32),
        store_host: ([u8; 4], i32),
        shortest_properties: usize,
        largest_record: usize,
    ) -> Self {
        let ((born_address, born_port), (store_address, store_port)) = (born_host, store_host);
        LineAppender(Appender::new(Fixed {
            born_address,
            born_port,
            store_address,
            store_port,
            shortest_properties,
            largest_record,
        }))
    }

    /// The number of a queue that messages may go to, from its queue offset `next` up to `limit`.
    fn admit(&mut self, topic: &str, queue_id: i32, next: i64, limit: i64) -> u32 {
        self.0.admit(topic.as_bytes(), queue_id, next, limit)
    }

    /// The topic and queue id of the line at which it stopped for its queue.
    fn wanted(&self) -> PyResult<(&str, i32)> {
        let (queue_id, topic) =
            self.0.wanted.split_first_chunk().ok_or_else(|| PyValueError::new_err("no line"))?;
        let topic =
            std::str::from_utf8(topic).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok((topic, i32::from_be_bytes(*queue_id)))
    }

    /// Forgets all queues.
    fn forget(&mut self) {
        self.0.forget();
    }

    /// Stores one message (`MessageExtBrokerInner`) into the buffer at `position`, not beyond `end`.
    /// Answers its size, what dispatch makes of it (the code of its tags and the hashes of its keys),
    /// and its store time, for which `clock` is asked when nothing can go wrong any more; or why it
    /// was not stored: the number of a stop, and what it needs where that is room.
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
        let fields = Fields::of(message)?;
        let (mut room, own) = (room_of(&buffer)?, &mut self.0);
        let place = Place { position, end, file_from_offset, most: 1, enough: end };
        let stored = match fields.as_ref().and_then(Fields::message) {
            None => Err((Stop::Unsure, 0)),
            Some((message, mut entries)) => guarded(|| {
                let size = match own.encode(place, position, &message, &mut entries, queue_offset) {
                    Ok(size) => size,
                    Err(stop) => return Ok(Err(stop)),
                };
                let timestamp: i64 = clock.call0()?.extract()?;
                own.store(&mut room, position, timestamp);
                Ok(Ok((size, own.derived(message.topic), timestamp)))
            })?,
        };
        match stored {
            Ok((size, (tags_code, hashes), timestamp)) => {
                (size, tags_code, hashes, timestamp).into_pyobject(py)
            }
            Err((stop, needed)) => (stop as u8, needed).into_pyobject(py),
        }
    }

    /// Stores the messages of `lines` from the place `at` on into the buffer from `position` on, no
    /// record beyond `end`, until `most` are stored or one ends at `enough` or behind it.
    #[expect(clippy::too_many_arguments, reason = "where from, where to, and when")]
    #[pyo3(signature = (buffer, lines, at, *, position, end, file_from_offset, most, enough,
        born_timestamp, store_timestamp))]
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
    ) -> PyResult<Answer<'py>> {
        let place = Place { position, end, file_from_offset, most, enough };
        let times = Times { born: born_timestamp, stored: store_timestamp };
        let (lines, own, mut room) = (lines.as_bytes(), &mut self.0, room_of(&buffer)?);
        let (taken, rows, totals) = py.detach(|| {
            guarded(|| {
                let mut rows = Vec::new();
                let taken = own.append(&mut room, place, lines, at, times, &mut rows);
                let totals = own.totals(&rows);
                Ok((taken, rows, totals))
            })
        })?;
        let column = |value: fn(&Row) -> i64| rows.iter().map(value);
        let columns: Vec<i64> = column(|row| i64::from(row.queue))
            .chain(column(|row| row.position as i64))
            .chain(column(|row| row.size as i64))
            .chain(column(|row| row.queue_offset))
            .collect();
        let stop: Stop = taken.stop;
        let columns = longs(py, &columns)?;
        Ok((taken.position, taken.at, taken.lines, stop as u8, taken.needed, columns, totals))
    }
}

/// A message as Python has it, held while it is looked at.
struct Fields<'py> {
    topic: Bound<'py, PyString>,
    queue_id: i32,
    body: Bound<'py, PyBytes>,
    properties: Vec<(Bound<'py, PyString>, Bound<'py, PyString>)>,
    origin: (i32, i64, i32, i64),
    born_host: (Bound<'py, PyBytes>, u16),
    store_host: (Bound<'py, PyBytes>, u16),
}

impl<'py> Fields<'py> {
    /// None where one is of another type, or beyond its limits, or the message is no plain one.
    fn of(message: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let py = message.py();
        let get = |name| message.getattr(name);
        if !get(intern!(py, "properties_bytes"))?.is_none() {
            return Ok(None);
        }
        let properties = get(intern!(py, "properties"))?;
        let Ok(properties) = properties.cast_into_exact::<PyDict>() else {
            return Ok(None);
        };
        let pairs = properties.iter().map(|(name, value)| {
            Some((name.cast_into_exact().ok()?, value.cast_into_exact().ok()?))
        });
        let Some(properties) = pairs.collect() else {
            return Ok(None);
        };
        let fields = || {
            let int = |name| get(name).ok()?.extract::<i32>().ok();
            let long = |name| get(name).ok()?.extract::<i64>().ok();
            let host = |name| {
                let host = get(name).ok()?.cast_into_exact::<PyTuple>().ok()?;
                let (address, port) = (host.get_item(0).ok()?, host.get_item(1).ok()?);
                Some((address.cast_into_exact().ok()?, port.extract().ok()?))
            };
            Some(Fields {
                topic: get(intern!(py, "topic")).ok()?.cast_into_exact().ok()?,
                queue_id: int(intern!(py, "queue_id"))?,
                body: get(intern!(py, "body")).ok()?.cast_into_exact().ok()?,
                properties,
                origin: (
                    int(intern!(py, "flag"))?,
                    long(intern!(py, "born_timestamp"))?,
                    int(intern!(py, "reconsume_times"))?,
                    long(intern!(py, "prepared_transaction_offset"))?,
                ),
                born_host: host(intern!(py, "born_host"))?,
                store_host: host(intern!(py, "store_host"))?,
            })
            .filter(|_| int(intern!(py, "sys_flag")) == Some(0))
        };
        Ok(fields())
    }

    /// None where a text is no Unicode, or a host has another length.
    fn message(&self) -> Option<(Message<'_>, Vec<Entry<'_>>)> {
        let (flag, born_timestamp, reconsume_times, prepared_transaction_offset) = self.origin;
        let host = |(address, port): &(Bound<'py, PyBytes>, u16)| {
            Some((<[u8; 4]>::try_from(address.as_bytes()).ok()?, *port))
        };
        let origin = Origin {
            flag,
            born_timestamp,
            born_host: host(&self.born_host)?,
            store_host: host(&self.store_host)?,
            reconsume_times,
            prepared_transaction_offset,
        };
        let (topic, body) = (self.topic.to_str().ok()?, self.body.as_bytes());
        let message = Message { topic, queue_id: self.queue_id, body, origin: Some(origin) };
        let entries = self.properties.iter().map(|pair| entry_of(&pair.0, &pair.1));
        Some((message, entries.collect::<Option<Vec<_>>>()?))
    }
}

fn entry_of<'a>(
    name: &'a Bound<'_, PyString>,
    value: &'a Bound<'_, PyString>,
) -> Option<Entry<'a>> {
    Some((0, (name.to_str().ok()?, value.to_str().ok()?)))
}

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

/// The bytes of a buffer that records are stored into, while it is held.
#[allow(unsafe_code)]
fn room_of(buffer: &PyBuffer<u8>) -> PyResult<Room<'_>> {
    if buffer.readonly() || !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("the buffer cannot be written to"));
    }
    // SAFETY: it may be written to, is contiguous, and stays so as long as it is borrowed.
    Ok(unsafe { Room::at(buffer.buf_ptr().cast(), buffer.len_bytes()) })
}
