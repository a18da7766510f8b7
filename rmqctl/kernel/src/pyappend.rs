//! What Python sees of the append of a stream: lines become records right in the map of a log file,
//! many in one call, without the interpreter's lock.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

use crate::append::{Appender, Fixed, Place, Row, Stop, Times};
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

/// The bytes of a buffer that records are stored into, while it is held.
#[allow(unsafe_code)]
fn room_of(buffer: &PyBuffer<u8>) -> PyResult<Room<'_>> {
    if buffer.readonly() || !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("the buffer cannot be written to"));
    }
    // SAFETY: it may be written to, is contiguous, and stays so as long as it is borrowed.
    Ok(unsafe { Room::at(buffer.buf_ptr().cast(), buffer.len_bytes()) })
}
