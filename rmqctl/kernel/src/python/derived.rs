//! The Python interface of units and index items. They are made for whole batches, with the GIL
//! released.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyTuple};

use crate::bytes::memory::take;
use crate::index::slots::{Items, Slots};
use crate::layouts::INDEX_ITEM_BYTES;
use crate::python::memory::{Memory, SlotBytes};
use crate::python::{array_of, bytes_of, guarded, longs, numbers_of};
use crate::queue::units::{self, Unit};

/// The slots of an index file that is filled, or checked, from its first item on.
#[pyclass(name = "Slots")]
pub struct PySlots(Slots);

#[pymethods]
impl PySlots {
    #[new]
    fn new(py: Python<'_>, count: usize) -> Self {
        PySlots(py.detach(|| Slots::new(count)))
    }

    /// How many slots have an item.
    #[getter]
    fn used(&self) -> usize {
        self.0.used
    }

    /// Makes consecutive items, as they are stored, and adds them to their slots. The number of the
    /// first one is `first`. Hashes are 32-bit integers, offsets and times (ms) 64-bit ones, in this
    /// machine's byte order. Times count from `begin_timestamp`, except `first_diff` (s), if given.
    #[expect(clippy::too_many_arguments, reason = "three columns, and what they begin with")]
    #[pyo3(signature = (key_hash, physical_offset, store_timestamp, *, first, begin_timestamp,
        first_diff))]
    fn pack(
        &mut self,
        py: Python<'_>,
        key_hash: PyBuffer<u8>,
        physical_offset: PyBuffer<u8>,
        store_timestamp: PyBuffer<u8>,
        first: i32,
        begin_timestamp: i64,
        first_diff: Option<i32>,
    ) -> PyResult<Memory> {
        let (hashes, slots) = (bytes_of(&key_hash), self.changing()?);
        let (offsets, stamps) = (bytes_of(&physical_offset), bytes_of(&store_timestamp));
        let items = Items { first, begin_timestamp, first_diff };
        let hashes = hashes.chunks_exact(4).map(|hash| i32::from_ne_bytes(array_of(hash)));
        let keys = hashes.zip(numbers(offsets)).zip(numbers(stamps));
        let keys = keys.map(|((hash, at), time)| (hash, at, time));
        py.detach(|| {
            guarded(|| {
                let size = keys.len() * INDEX_ITEM_BYTES;
                let mut stored = take(size);
                stored.resize(size, 0);
                slots.pack(keys, items, &mut stored);
                Ok(Memory::Bytes(stored))
            })
        })
    }

    /// Adds stored items to their slots; the number of the first one is `first`. Returns
    /// `(rows, previous)` of the items whose link is wrong: their rows (64 bits), and the numbers that
    /// their links should have (32 bits).
    fn wrong_links<'py>(
        &mut self,
        py: Python<'py>,
        items: PyBuffer<u8>,
        first: i32,
    ) -> PyResult<(Bound<'py, PyByteArray>, Bound<'py, PyByteArray>)> {
        let (stored, slots) = (bytes_of(&items), self.changing()?);
        let (rows, previous) = py.detach(|| guarded(|| Ok(slots.wrong_links(stored, first))))?;
        Ok((longs(py, &rows)?, numbers_of(py, &previous, i32::to_ne_bytes)?))
    }

    /// Adds stored items to their slots, up to the first that differs from what `pack` makes of its
    /// key. Returns how many were added.
    #[expect(clippy::too_many_arguments, reason = "items, three columns, and what they begin with")]
    #[pyo3(signature = (items, key_hash, physical_offset, store_timestamp, *, first,
        begin_timestamp))]
    fn prove(
        &mut self,
        py: Python<'_>,
        items: PyBuffer<u8>,
        key_hash: PyBuffer<u8>,
        physical_offset: PyBuffer<u8>,
        store_timestamp: PyBuffer<u8>,
        first: i32,
        begin_timestamp: i64,
    ) -> PyResult<usize> {
        let (stored, hashes, slots) = (bytes_of(&items), bytes_of(&key_hash), self.changing()?);
        let (offsets, stamps) = (bytes_of(&physical_offset), bytes_of(&store_timestamp));
        let items = Items { first, begin_timestamp, first_diff: None };
        let hashes = hashes.chunks_exact(4).map(|hash| i32::from_ne_bytes(array_of(hash)));
        let keys = hashes.zip(numbers(offsets)).zip(numbers(stamps));
        let keys = keys.map(|((hash, at), time)| (hash, at, time));
        py.detach(|| guarded(|| Ok(slots.prove(stored, keys, items))))
    }

    /// `count` slots from number `start` on, as they are stored; None if none of them has an item. No
    /// item can be added while the result exists.
    fn stored(&self, start: usize, count: usize) -> PyResult<Option<SlotBytes>> {
        guarded(|| Ok(self.0.stored(start..start + count).map(SlotBytes)))
    }
}

impl PySlots {
    /// The slots, to add items.
    fn changing(&mut self) -> PyResult<&mut Slots> {
        if self.0.is_lent() {
            return Err(PyBufferError::new_err("somebody looks at the slots as they are"));
        }
        Ok(&mut self.0)
    }
}

/// The columns of a batch of units: 64-bit integers in this machine's byte order.
type UnitColumns = [PyBuffer<u8>; 6];

/// `units_by_queue` of `rmqctl/engine/dispatch/byqueue.py`, for several batches as if they were one:
/// `(queues, rows, units)`. Each of `queues` is `(topic id, queue id, start, is a run)`.
#[pyfunction]
pub fn units_by_queue<'py>(
    py: Python<'py>,
    batches: Vec<UnitColumns>,
) -> PyResult<Bound<'py, PyTuple>> {
    let columns: Vec<[&[u8]; 6]> = batches
        .iter()
        .map(|batch| std::array::from_fn(|column| bytes_of(&batch[column])))
        .collect();
    let found = py.detach(|| {
        guarded(|| {
            let count = columns.iter().map(|batch| batch[0].len() / 8).sum();
            let units = columns.iter().flat_map(|batch| {
                let mut values = batch.map(numbers);
                std::iter::from_fn(move || {
                    let [topic, queue, queue_offset, physical_offset, size, tags_code] =
                        values.each_mut().map(Iterator::next);
                    Some(Unit {
                        topic: topic?,
                        queue: queue?,
                        queue_offset: queue_offset?,
                        physical_offset: physical_offset?,
                        size: size?,
                        tags_code: tags_code?,
                    })
                })
            });
            Ok(units::by_queue(units, count))
        })
    })?;
    let queues: Vec<_> =
        found.queues.iter().map(|q| (q.topic, q.queue, q.start, q.is_run)).collect();
    (queues, longs(py, &found.rows)?, PyByteArray::new(py, &found.stored)).into_pyobject(py)
}

pub fn numbers(bytes: &[u8]) -> impl ExactSizeIterator<Item = i64> + Clone {
    bytes.chunks_exact(8).map(|number| i64::from_ne_bytes(array_of(number)))
}
