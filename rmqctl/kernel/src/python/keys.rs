//! The Python interface of lookups by key: index files that stay open, and the records of items.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::index::keychain::{self, Geometry, Header, Hit, Pieces, Reached, Wanted};
use crate::python::records::{OfKey, Rows};
use crate::python::{guarded, refused};
use crate::record::keyhash::{hash_code, index_hash};

/// How many items one call reads at most, because Ctrl-C is not handled during the call.
pub const STEPS: usize = 1 << 15;

/// How many items of a key in one file are "few".
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
    /// The header as it was read for another key (`keychain::start`).
    known: Mutex<Option<Header>>,
}

#[pymethods]
impl IndexReader {
    /// Opens the index file behind a descriptor of the caller's once more. It has `slots` slots and
    /// `items` items. Raises OSError if the system cannot.
    #[new]
    fn new(descriptor: i32, slots: u32, items: i32) -> PyResult<Self> {
        let file = File::open(format!("/proc/self/fd/{descriptor}"))?;
        Ok(IndexReader { file, geometry: Geometry { slots, items }, known: Mutex::default() })
    }

    /// The items of a key hash with times from `begin` to `end` (ms), newest first, at most `most`. The
    /// search continues at `reached`, which the last call returned; None: it begins at the newest item.
    /// Returns how far it came (the header's begin and count, and the number of the next item, 0 at the
    /// end), and for each item its number, physical offset, seconds, and the number of the item before
    /// it. Raises OSError, and EOFError if the file has become shorter.
    fn select<'py>(
        &self,
        py: Python<'py>,
        wanted: (i32, i64, i64, bool),
        reached: Option<(i64, i32, i32)>,
        most: usize,
    ) -> PyResult<((i64, i32, i32), Bound<'py, PyList>)> {
        let (key_hash, begin, end, is_growing) = wanted;
        let wanted = Wanted { key_hash, begin, end, is_growing };
        let most = (most, &mut { STEPS });
        let search = || self.search(wanted, reached, &mut None, most).map_err(refused);
        let (reached, hits) = py.detach(|| guarded(search))?;
        let told = (reached.begin_timestamp, reached.index_count, reached.index_no);
        Ok((told, PyList::new(py, hits)?))
    }
}

impl IndexReader {
    fn known(&self) -> MutexGuard<'_, Option<Header>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next hits, and how far the search came. `most` has the most hits and steps (see
    /// `keychain::select`); `known` is that of `keychain::start`.
    fn search(
        &self,
        wanted: Wanted,
        reached: Option<(i64, i32, i32)>,
        known: &mut Option<Header>,
        most: (usize, &mut usize),
    ) -> io::Result<(Reached, Vec<Hit>)> {
        let (file, geometry) = (&self.file, self.geometry);
        let mut reached = match reached {
            Some((begin_timestamp, index_count, index_no)) => {
                Reached { begin_timestamp, index_count, index_no }
            }
            None => keychain::start(file, geometry, wanted, known)?,
        };
        let hits = keychain::select(file, geometry, wanted, &mut reached, most)?;
        Ok((reached, hits))
    }
}

/// Index files, newest first.
pub struct Readers<'a>(Vec<&'a IndexReader>);

impl<'a> Readers<'a> {
    pub fn new(readers: impl Iterator<Item = &'a IndexReader>) -> Self {
        Readers(readers.collect())
    }

    /// The physical offsets of a key's items with times from `begin` (ms) on, newest first. None if a
    /// file has more than a few, or if it would read more than `steps` items. The items that it read
    /// are subtracted from `steps`.
    pub fn few_offsets(
        &self,
        (topic, key): (&str, &str),
        begin: i64,
        is_growing: bool,
        steps: &mut usize,
    ) -> io::Result<Option<Vec<i64>>> {
        let key_hash = index_key_hash(topic, key);
        let wanted = Wanted { key_hash, begin, end: i64::MAX, is_growing };
        let mut offsets = Vec::new();
        for reader in &self.0 {
            // The lock is not held while the file is read.
            let before = *reader.known();
            let mut known = before;
            let (reached, hits) = reader.search(wanted, None, &mut known, (FEW, steps))?;
            if known != before {
                *reader.known() = known;
            }
            if reached.index_no != 0 {
                return Ok(None);
            }
            offsets.extend(hits.iter().map(|hit| hit.1));
            if reached.begin_timestamp < begin {
                break;
            }
        }
        Ok(Some(offsets))
    }
}

/// The newest `most` messages of a key that were stored from `begin` (ms) on, as rows in log order, and
/// how many items with its hash have records of other topics or keys. `readers` are those of the index
/// files, newest first. `find` returns the log's file (a `MappedFile`) that has an offset, or None.
/// Returns None if a file has more than a few items, or a record is missing or not plain. Raises what
/// `IndexReader.select` and `find` raise.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "an index's, a log's and a key's")]
pub fn rows_of_key<'py>(
    py: Python<'py>,
    rows: PyRef<'_, Rows>,
    readers: Vec<Py<IndexReader>>,
    find: &Bound<'py, PyAny>,
    topic: &str,
    key: &str,
    begin: i64,
    is_growing: bool,
    most: i64,
) -> PyResult<Option<(Bound<'py, PyList>, usize)>> {
    let readers = Readers::new(readers.iter().map(Py::get));
    let named = (topic, key);
    let few = || readers.few_offsets(named, begin, is_growing, &mut { STEPS }).map_err(refused);
    let offsets = py.detach(|| guarded(few))?;
    let Some(offsets) = offsets else { return Ok(None) };
    let (mut found, mut collisions) = (Vec::new(), 0);
    for offset in offsets {
        let mapped = find.call1((offset,))?;
        if mapped.is_none() {
            return Ok(None);
        }
        match rows.of_key(py, &mapped, offset, topic, key)? {
            None => return Ok(None),
            Some(OfKey::Other) => collisions += 1,
            Some(OfKey::Row(row)) => found.push((offset, row)),
        }
        if i64::try_from(found.len()) == Ok(most) {
            break;
        }
    }
    found.sort_by_key(|(offset, _)| *offset);
    let found = PyList::new(py, found.into_iter().map(|(_, row)| row))?;
    Ok(Some((found, collisions)))
}

/// `index_key_hash` of `formats/text.py`.
#[pyfunction]
pub fn index_key_hash(topic: &str, key: &str) -> i32 {
    let mut code = hash_code(topic.as_bytes(), 0, topic.len(), 0);
    code = hash_code(b"#", 0, 1, code);
    index_hash(hash_code(key.as_bytes(), 0, key.len(), code))
}
