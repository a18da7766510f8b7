//! What Python sees of columns as the buffers of Arrow arrays. Places, lengths and flags come as this
//! machine's 64-bit numbers, offsets go as its 32-bit ones.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::arrowmaps::{Maps, maps};
use crate::python::{array_of, bytes_of, guarded, longs, numbers_of};

/// The properties at places of a buffer, and of lengths, as an Arrow map: `(offsets of the rows,
/// offsets of the names, names, offsets of the values, values, tags codes, odd rows)`, the last two
/// 64-bit numbers. None where one array does not hold them.
#[pyfunction]
pub fn property_maps<'py>(
    py: Python<'py>,
    buffer: PyBuffer<u8>,
    starts: PyBuffer<u8>,
    lengths: PyBuffer<u8>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let (data, starts, lengths) = (bytes_of(&buffer), bytes_of(&starts), bytes_of(&lengths));
    let work = || guarded(|| Ok(maps(data, pairs(starts, lengths))));
    let Some(Maps { rows, names, values, tags_codes, odd }) = py.detach(work)? else {
        return Ok(None);
    };
    let offsets = |numbers: &[i32]| numbers_of(py, numbers, i32::to_ne_bytes);
    let told = (
        offsets(&rows)?,
        offsets(&names.ends)?,
        PyBytes::new(py, &names.bytes),
        offsets(&values.ends)?,
        PyBytes::new(py, &values.bytes),
        longs(py, &tags_codes)?,
        longs(py, &odd)?,
    );
    Ok(Some(told.into_pyobject(py)?))
}

/// Two arrays of numbers as one of pairs.
fn pairs<'a>(
    first: &'a [u8],
    second: &'a [u8],
) -> impl ExactSizeIterator<Item = (i64, i64)> + Clone + 'a {
    let number = |bytes: &[u8]| i64::from_ne_bytes(array_of(bytes));
    first.chunks_exact(8).map(number).zip(second.chunks_exact(8).map(number))
}
