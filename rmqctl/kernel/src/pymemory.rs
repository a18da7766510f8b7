//! What the kernel has made, lent to Python without a copy.

use std::ffi::{c_int, c_void};

use pyo3::exceptions::PyOverflowError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::memory::give;

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
    ///
    /// This is the one place that gives memory to Python. A view holds the object, the object is
    /// frozen, so that what it has is neither changed nor moved, and it is freed with the object,
    /// after the last view.
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
        let size = ffi::Py_ssize_t::try_from(size)
            .map_err(|_| PyOverflowError::new_err("more bytes than Python counts"))?;
        // SAFETY: Python gives a view to be filled, or null, which is refused; the memory is of this
        // size while the object is, and nobody may write.
        let is_filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast_mut(), size, 1, flags) };
        if is_filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
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
