//! What Python sees of lookups by key: index files that stay open, and the records that items mean.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::keychain::{self, Geometry, Hit, Pieces, Reached, Wanted};
use crate::keyhash::{hash_code, index_hash};
use crate::python::guarded;

/// Items that one call looks at, which hears no Ctrl-C.
const STEPS: usize = 1 << 15;

/// Items of a file that are a few.
const FEW: usize = 64;

impl Pieces for File {
    fn read(&self, piece: &mut [u8], position: u64) -> io::Result<()> {
        self.read_exact_at(piece, position)
    }
}

/// An index file, open for lookups.
#[pyclass(frozen)]
pub struct IndexReader {
    file: File,
    geometry: Geometry,
}

#[pymethods]
impl IndexReader {
    /// Opens the file behind a descriptor of the caller's for itself. A file of `slots` slots and
    /// `items` items. Raises OSError where the system has no such way.
    #[new]
    fn new(descriptor: i32, slots: u32, items: i32) -> PyResult<Self> {
        let file = File::open(format!("/proc/self/fd/{descriptor}"))?;
        Ok(IndexReader { file, geometry: Geometry { slots, items } })
    }

    /// The items of a key hash that were stored from `begin` to `end` (ms), newest first, `most` of
    /// them at most: those behind what was `reached`, which is what the last call answered; None:
    /// from the newest on. Answers that (the header's begin and count, and the number of the next
    /// item, 0 at the end), and of each item its number, physical offset, seconds and the number of
    /// the one before. Raises OSError, and EOFError where the file has become shorter.
    fn select<'py>(
        &self,
        py: Python<'py>,
        wanted: (i32, i64, i64, bool),
        reached: Option<(i64, i32, i32)>,
        most: usize,
    ) -> PyResult<((i64, i32, i32), Bound<'py, PyList>)> {
        let (key_hash, begin, end, is_growing) = wanted;
        let wanted = Wanted { key_hash, begin, end, is_growing };
        let (reached, hits) = py.detach(|| guarded(|| Ok(self.search(wanted, reached, most)?)))?;
        let told = (reached.begin_timestamp, reached.index_count, reached.index_no);
        Ok((told, PyList::new(py, hits)?))
    }
}

impl IndexReader {
    fn search(
        &self,
        wanted: Wanted,
        reached: Option<(i64, i32, i32)>,
        most: usize,
    ) -> io::Result<(Reached, Vec<Hit>)> {
        let (file, geometry) = (&self.file, self.geometry);
        let mut reached = match reached {
            Some((begin_timestamp, index_count, index_no)) => {
                Reached { begin_timestamp, index_count, index_no }
            }
            None => keychain::start(file, geometry, wanted)?,
        };
        let hits = keychain::select(file, geometry, wanted, &mut reached, (most, STEPS))?;
        Ok((reached, hits))
    }
}

/// Physical offsets of the items of a key in some files, newest first, that were stored from `begin`
/// (ms) on; None where a file has more than a few, or takes long. Raises as `IndexReader.select`.
#[pyfunction]
pub fn few_offsets(
    py: Python<'_>,
    readers: Vec<PyRef<'_, IndexReader>>,
    topic: &str,
    key: &str,
    begin: i64,
    is_growing: bool,
) -> PyResult<Option<Vec<i64>>> {
    let key_hash = index_key_hash(topic, key);
    let wanted = Wanted { key_hash, begin, end: i64::MAX, is_growing };
    let readers: Vec<&IndexReader> = readers.iter().map(|reader| &**reader).collect();
    py.detach(|| {
        guarded(|| {
            let mut offsets = Vec::new();
            for reader in readers {
                let (reached, hits) = reader.search(wanted, None, FEW)?;
                if reached.index_no != 0 {
                    return Ok(None);
                }
                offsets.extend(hits.iter().map(|hit| hit.1));
                if reached.begin_timestamp < begin {
                    break;
                }
            }
            Ok(Some(offsets))
        })
    })
}

/// `index_key_hash` of `formats/text.py`.
#[pyfunction]
pub fn index_key_hash(topic: &str, key: &str) -> i32 {
    let mut code = hash_code(topic.as_bytes(), 0, topic.len(), 0);
    code = hash_code(b"#", 0, 1, code);
    index_hash(hash_code(key.as_bytes(), 0, key.len(), code))
}
