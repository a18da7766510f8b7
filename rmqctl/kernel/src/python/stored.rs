//! The Python interface for the answer to a pull as it is sent to a client: records as they are stored,
//! one behind the other.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::lines::pull::{self, Limits, Outgoing, Part, Tags, Units};
use crate::python::{bytes_of, guarded};

/// The records of one answer to a pull, one behind the other, how many they are, and the queue offset
/// of the next answer. None if anything is unusual: also if a record does not have the format of 4.9.3
/// or ends behind the physical offset `outgoing[0]`, or if all have more than `outgoing[1]` bytes. With
/// `codes`, units with other tags codes are skipped. The other parameters are those of `pull_records`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "a queue's, a log's and a pull's")]
pub fn pull_stored<'py>(
    py: Python<'py>,
    units: PyBuffer<u8>,
    queue: (i64, i64),
    buffer: PyBuffer<u8>,
    places: (usize, usize),
    file_from_offset: i64,
    limits: (usize, usize, i64, (i64, usize), (i64, usize), i64),
    codes: Option<Vec<i64>>,
    outgoing: (i64, usize),
) -> PyResult<Option<(Bound<'py, PyBytes>, usize, i64)>> {
    let (stored, data) = (bytes_of(&units), bytes_of(&buffer));
    let (messages, units, in_memory, memory, disk, log_end) = limits;
    let limits = Limits { messages, units, in_memory, memory, disk, log_end };
    let units = Units { stored, first: queue.0, file_end: queue.1, queue_end: queue.1 };
    let part = Part { data, places: places.0..places.1, file_from_offset };
    let tags = codes.map(|codes| Tags { codes, texts: None });
    let outgoing = Outgoing { before: outgoing.0, bytes: outgoing.1 };
    let work = || Ok(pull::stored(units, &part, limits, tags.as_ref(), outgoing));
    let Some(found) = guarded(work)? else { return Ok(None) };
    let body = PyBytes::new_with(py, found.bytes, |mut room| {
        for run in &found.runs {
            let (here, behind) = room.split_at_mut(run.len());
            here.copy_from_slice(&data[run.clone()]);
            room = behind;
        }
        Ok(())
    })?;
    Ok(Some((body, found.count, found.next)))
}
