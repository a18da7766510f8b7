//! Lends memory of the kernel to Python without a copy.

use std::ffi::{c_int, c_void};

use pyo3::exceptions::PyOverflowError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::bytes::memory::give;
use crate::index::slots::Lent;

/// The memory of a column. It never changes, and is reused once Python has no view of it any more.
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
        // SAFETY: the memory belongs to the object, which is frozen.
        unsafe { fill(view, flags, slf.as_any(), start, size) }
    }
}

/// A range of the slots of an index file, as they are stored.
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
        // SAFETY: the object is frozen, and the slots do not change while it exists.
        unsafe { fill(view, flags, slf.as_any(), bytes.as_ptr().cast(), bytes.len()) }
    }
}

/// Makes a read-only view of an object's memory.
///
/// This is the only place that gives memory to Python. A view holds the object. The object is frozen,
/// so its memory is neither changed nor moved, and is freed only with the object, after the last view.
///
/// # Safety
///
/// `view` must be one that Python wants filled, or null. The `size` bytes from `start` on must not
/// change as long as `owner` exists.
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
    // SAFETY: Python refuses a null view. The memory has this size while the object exists, and the
    // view is read-only.
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
