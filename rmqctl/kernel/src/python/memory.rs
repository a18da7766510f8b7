//! What the kernel has made, lent to Python without a copy.

use std::ffi::{c_int, c_void};

use pyo3::exceptions::PyOverflowError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::bytes::memory::give;
use crate::index::slots::Lent;

/// Memory of a column. Nobody changes it: it goes back to others when Python has no view of it.
#[pyclass(frozen)]
pub enum Memory {
    Bytes(Vec<u8>),
    Ints(Vec<i32>),
    Longs(Vec<i64>),
}

#[pymethods]
impl Memory {
    /// A view, read only, of the bytes.
    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let (start, size): (*const c_void, usize) = match slf.get() {
            Memory::Bytes(bytes) => (bytes.as_ptr().cast(), bytes.len()),
            Memory::Ints(ints) => (ints.as_ptr().cast(), size_of_val(ints.as_slice())),
            Memory::Longs(longs) => (longs.as_ptr().cast(), size_of_val(longs.as_slice())),
        };
        // SAFETY: the memory is the object's, which is frozen.
        unsafe { fill(view, flags, slf.as_any(), start, size) }
    }
}

/// Some of an index file's slots as they are stored.
#[pyclass(frozen)]
pub struct SlotBytes(pub Lent);

#[pymethods]
impl SlotBytes {
    /// A view, read only, of the bytes.
    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = slf.get().0.bytes();
        // SAFETY: the object is frozen, and what it has borrowed changes no more while it has it.
        unsafe { fill(view, flags, slf.as_any(), bytes.as_ptr().cast(), bytes.len()) }
    }
}

/// Makes a view, read only, of an object's memory.
///
/// This is the one place that gives memory to Python. A view holds the object, the object is
/// frozen, so that what it has is neither changed nor moved, and it is freed with the object,
/// after the last view.
///
/// # Safety
///
/// `view` is Python's, to be filled, or null. From `start` on `size` bytes stay as they are so long
/// as there is `owner`.
#[allow(unsafe_code)]
unsafe fn fill(
    view: *mut ffi::Py_buffer,
    flags: c_int,
    owner: &Bound<'_, PyAny>,
    start: *const c_void,
    size: usize,
) -> PyResult<()> {
    let size = ffi::Py_ssize_t::try_from(size)
        .map_err(|_| PyOverflowError::new_err("more bytes than Python counts"))?;
    // SAFETY: null is refused as a view; the memory is of this size while the object is, and nobody
    // may write.
    let is_filled =
        unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start.cast_mut(), size, 1, flags) };
    if is_filled == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self {
            Memory::Bytes(bytes) => give(std::mem::take(bytes)),
            Memory::Ints(ints) => give(std::mem::take(ints)),
            Memory::Longs(longs) => give(std::mem::take(longs)),
        }
    }
}
