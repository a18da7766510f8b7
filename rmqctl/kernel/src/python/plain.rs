//! The Python interface of the scan of plain records: for each part its counts, its units as an opaque
//! object, and its keys as columns.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::bytes::memory::take;
use crate::python::memory::Memory;
use crate::python::{array_of, bytes_of, guarded};
use crate::record::topics::Topics;
use crate::scan::plain::{self, Part, Run};

/// The units of a part. Python only passes them back, to `join_runs`.
#[pyclass(frozen)]
pub struct Runs(Vec<Run>);

/// A part as a `PlainPart` of `_kernel.pyi`.
pub fn taken<'py>(
    py: Python<'py>,
    part: Part,
    threads: &[Topics],
) -> PyResult<Bound<'py, PyTuple>> {
    let new = threads[part.thread].named(part.new_topics);
    (
        (part.start, part.reached),
        part.thread,
        new.map(|topic| PyBytes::new(py, topic)).collect::<Vec<_>>(),
        (part.records, part.units, part.newest_timestamp, part.last_offset),
        Runs(part.runs),
        Memory::Ints(part.keys.key_hash),
        Memory::Longs(part.keys.physical_offset),
        Memory::Longs(part.keys.store_timestamp),
    )
        .into_pyobject(py)
}

/// Joins the units of parts, which are given in the order of the log. With each part come the final
/// numbers of its topics (64-bit integers), by the numbers that its thread gave them. Returns
/// `(topic, queue id, queue offset, start)` of each run of consecutive queue offsets, and the bytes of
/// all units.
#[pyfunction]
pub fn join_runs<'py>(
    py: Python<'py>,
    parts: Vec<(Py<Runs>, PyBuffer<u8>)>,
) -> PyResult<Bound<'py, PyTuple>> {
    let numbers = |buffer| -> Vec<i64> {
        let bytes: &[u8] = bytes_of(buffer);
        bytes.chunks_exact(8).map(|number| i64::from_ne_bytes(array_of(number))).collect()
    };
    let parts: Vec<_> = parts.iter().map(|(runs, buffer)| (runs.get(), numbers(buffer))).collect();
    let parts = parts.iter().map(|(runs, numbers)| (&runs.0[..], &numbers[..]));
    let sorted = guarded(|| Ok(plain::sorted(parts)))?;
    let (queues, stored) = py.detach(|| {
        guarded(|| {
            let mut stored = take(sorted.bytes);
            Ok((sorted.join(&mut stored), stored))
        })
    })?;
    let queues: Vec<_> =
        queues.iter().map(|q| (q.topic, q.queue, q.queue_offset, q.start)).collect();
    (queues, Memory::Bytes(stored)).into_pyobject(py)
}
