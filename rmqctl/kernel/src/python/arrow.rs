//! The Python interface of columns as the buffers of Arrow arrays. Integers have this machine's byte
//! order: those of a batch 64 bits, the ends of topics 32. Results are lent to Python without a copy.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrow::maps::{Maps, Texts};
use crate::arrow::rows::{COLUMNS, Column, Made, Names, Numbers, columns};
use crate::python::memory::Memory;
use crate::python::{bytes_of, guarded, longs};

/// Columns of the records of a batch, by their names. `numbers` are the columns of the batch
/// (`INT_COLUMNS`), `topics` the ends of all topics (behind a 0) and their bytes. Returns the buffers of
/// each column except the validity bitmap, or None if Python must make the column. The buffers of the
/// map and of the tags codes are followed by the odd rows (64-bit integers). Returns None if the batch
/// is not in `buffer`.
#[pyfunction]
pub fn arrow_columns<'py>(
    py: Python<'py>,
    buffer: PyBuffer<u8>,
    numbers: Vec<PyBuffer<u8>>,
    topics: (PyBuffer<u8>, PyBuffer<u8>),
    names: Vec<String>,
) -> PyResult<Option<Vec<Buffers<'py>>>> {
    let wanted = names.iter().map(|name| column(name)).collect::<PyResult<Vec<_>>>()?;
    let arrays: Vec<&[u8]> = numbers.iter().map(bytes_of).collect();
    let Ok(arrays) = <[&[u8]; _]>::try_from(arrays) else {
        return Err(PyValueError::new_err("a batch has other columns"));
    };
    let topics = Names { ends: bytes_of(&topics.0), bytes: bytes_of(&topics.1) };
    let data = bytes_of(&buffer);
    let work = || guarded(|| Ok(columns(data, Numbers(arrays), topics, &wanted)));
    let Some(made) = py.detach(work)? else { return Ok(None) };
    Lending(py).all(&wanted, made).map(Some)
}

fn column(name: &str) -> PyResult<Column> {
    let found = COLUMNS.iter().find(|(known, _)| *known == name).map(|(_, column)| *column);
    found.ok_or_else(|| PyValueError::new_err(format!("no column {name:?} is made here")))
}

type Buffers<'py> = Option<Vec<Bound<'py, PyAny>>>;

struct Lending<'py>(Python<'py>);

impl<'py> Lending<'py> {
    fn all(&self, wanted: &[Column], made: Vec<Made>) -> PyResult<Vec<Buffers<'py>>> {
        let mut shared = (None, None);
        let mut lent = Vec::with_capacity(made.len());
        for made in made {
            lent.push(match made {
                Made::Ints(ints) => Some(vec![self.lend(Memory::Ints(ints))?]),
                Made::Longs(longs) => Some(vec![self.lend(Memory::Longs(longs))?]),
                Made::Texts(texts) => Some(self.texts(texts)?),
                Made::Maps(maps) => {
                    shared = self.maps(*maps)?;
                    None
                }
                Made::TagsCodes | Made::Odd => None,
            });
        }
        for (buffers, column) in lent.iter_mut().zip(wanted) {
            match column {
                Column::Properties => *buffers = shared.0.take(),
                Column::TagsCode => *buffers = shared.1.take(),
                _ => (),
            }
        }
        Ok(lent)
    }

    fn lend(&self, memory: Memory) -> PyResult<Bound<'py, PyAny>> {
        Ok(Bound::new(self.0, memory)?.into_any())
    }

    fn texts(&self, texts: Texts) -> PyResult<Vec<Bound<'py, PyAny>>> {
        Ok(vec![self.lend(Memory::Ints(texts.ends))?, self.lend(Memory::Bytes(texts.bytes))?])
    }

    /// The buffers of a map, and those of the tags codes.
    fn maps(&self, maps: Maps) -> PyResult<(Buffers<'py>, Buffers<'py>)> {
        let odd = longs(self.0, &maps.odd)?.into_any();
        let mut map = vec![self.lend(Memory::Ints(maps.rows))?];
        map.extend(self.texts(maps.names)?);
        map.extend(self.texts(maps.values)?);
        map.push(odd.clone());
        Ok((Some(map), Some(vec![self.lend(Memory::Longs(maps.tags_codes))?, odd])))
    }
}
