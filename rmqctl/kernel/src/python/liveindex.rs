//! The newest index file, into which items of single messages are stored.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::index::items::{self, Common, Header, Places};
use crate::layouts::INDEX_ITEM_BYTES;
use crate::python::append::room_of;

/// The newest index file. `limit` is the number of the first item that has no disk space, or would fill
/// the file. As long as the Python object of the file refers to `header`, that is its header.
pub struct IndexFile {
    pub mapped: Py<PyAny>,
    pub dirty: Py<PyAny>,
    buffer: PyBuffer<u8>,
    places: Places,
    limit: i32,
    header: Py<LiveHeader>,
    fields: Header,
}

/// The header of an index file into which single messages are stored.
#[pyclass]
pub struct LiveHeader(Header);

#[pymethods]
impl LiveHeader {
    /// The fields of an `IndexHeader`.
    #[getter]
    fn fields(&self) -> Header {
        self.0
    }
}

impl IndexFile {
    /// A file with this header, and the header object to which the file's Python object must refer.
    pub fn new(
        py: Python<'_>,
        (mapped, dirty, buffer): (Py<PyAny>, Py<PyAny>, PyBuffer<u8>),
        places: Places,
        limit: i32,
        fields: Header,
    ) -> PyResult<(Self, Py<LiveHeader>)> {
        let header = Py::new(py, LiveHeader(fields))?;
        let live = header.clone_ref(py);
        Ok((IndexFile { mapped, dirty, buffer, places, limit, header, fields }, live))
    }

    /// Whether `live` is the header object of this file.
    pub fn has(&self, live: &Bound<'_, PyAny>) -> bool {
        live.is(&self.header)
    }

    pub fn has_room(&self, items: usize) -> bool {
        let (.., count) = self.fields;
        i64::from(count) + (items as i64) < i64::from(self.limit)
    }

    /// The physical offset of the newest item's message.
    pub fn end_phy_offset(&self) -> i64 {
        let (_, _, _, end, ..) = self.fields;
        end
    }

    /// The position behind the last item that has disk space.
    pub fn reserved(&self) -> usize {
        self.places.items + INDEX_ITEM_BYTES * self.limit as usize
    }

    /// Lets the slots of these hashes arrive in the cache.
    pub fn fetch(&self, hashes: &[i32]) -> PyResult<()> {
        items::fetch(&room_of(&self.buffer)?, self.places, hashes);
        Ok(())
    }

    /// Stores the items of a message, and then the header, its count last.
    pub fn put(
        &mut self,
        py: Python<'_>,
        hashes: &[i32],
        physical_offset: i64,
        stamp: i64,
    ) -> PyResult<()> {
        let (mut begin, _, mut begin_offset, _, slots, count) = self.fields;
        let first_diff = items::time_diff_seconds(stamp, begin);
        if count <= 1 {
            (begin, begin_offset) = (stamp, physical_offset);
        }
        let diff = items::time_diff_seconds(stamp, begin);
        let mut room = room_of(&self.buffer)?;
        let places = Places { next: count, ..self.places };
        let common = Common { physical_offset, first_diff, diff };
        let slots = slots.wrapping_add(items::store(&mut room, places, hashes, common));
        let count = count + hashes.len() as i32;
        self.fields = (begin, stamp, begin_offset, physical_offset, slots, count);
        items::store_header(&mut room, self.fields);
        self.header.borrow_mut(py).0 = self.fields;
        Ok(())
    }
}
