//! The Python interface for looking up many keys in one call: lines of the messages.

use std::io;
use std::time::{Duration, Instant};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;

use crate::bytes::fetch;
use crate::bytes::memory::take;
use crate::lines::rows::Lines;
use crate::python::keys::{IndexReader, Readers, STEPS};
use crate::python::lines::{Made, PyLines, lent};
use crate::python::records::{found_at, is_of_key};
use crate::python::{bytes_of, guarded};
use crate::record::entry::Record;

/// Bytes of a record that are prefetched: most records are not longer.
const FETCHED: usize = 512;
/// Initial capacity (bytes) for the lines of a key.
const LINE_ROOM: usize = 1 << 10;
/// A call ends after so many bytes of lines.
const ENOUGH: usize = 1 << 20;
/// A key with more bytes of lines is left to Python.
const MOST_OF_KEY: usize = 4 << 20;
/// How many files of the log one call uses at most. It holds them until it ends.
const MOST_FILES: usize = 16;
/// After this time a call begins no other key, because Ctrl-C is not handled during the call.
const LONG: Duration = Duration::from_millis(50);

/// A file of the log. Only the bytes `low..high` may be used: there is no hole in them.
struct LogFile {
    file_from_offset: i64,
    size: usize,
    low: usize,
    high: usize,
    buffer: PyBuffer<u8>,
}

impl LogFile {
    fn of(mapped: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = mapped.py();
        let (low, high): (usize, usize) = mapped.getattr(intern!(py, "whole"))?.extract()?;
        let size: usize = mapped.getattr(intern!(py, "size"))?.extract()?;
        Ok(LogFile {
            file_from_offset: mapped.getattr(intern!(py, "file_from_offset"))?.extract()?,
            size,
            low,
            high: high.min(size),
            buffer: PyBuffer::get(&mapped.getattr(intern!(py, "buffer"))?)?,
        })
    }

    fn position(&self, offset: i64) -> Option<usize> {
        let position = usize::try_from(offset.checked_sub(self.file_from_offset)?).ok()?;
        (position < self.size).then_some(position)
    }

    /// The record at a position. None if there is no whole record, if it was stored before 1970, or if
    /// it may be in a hole.
    fn record(&self, position: usize) -> Option<Record> {
        let data = bytes_of(&self.buffer);
        let found = || found_at(data, position, self.high, self.file_from_offset);
        let found = (position >= self.low).then(found).flatten();
        found.filter(|record| record.store_timestamp >= 0)
    }
}

/// The number of a record's file, and its position there.
type Place = (usize, usize);

/// The parameters of a call.
struct Asked<'a> {
    topic: &'a str,
    keys: &'a [PyBackedStr],
    /// The earliest store time (ms).
    begin: i64,
    is_growing: bool,
    since: Instant,
}

impl Asked<'_> {
    /// The physical offsets of each key's items, newest first. It ends before the first key that has
    /// many items, and when the time is over.
    fn offsets(&self, readers: &Readers<'_>) -> io::Result<Vec<Vec<i64>>> {
        let (mut offsets, mut steps) = (Vec::new(), STEPS);
        for key in self.keys {
            let named = (self.topic, &**key);
            let found = readers.few_offsets(named, self.begin, self.is_growing, &mut steps)?;
            let Some(found) = found else { break };
            offsets.push(found);
            if self.since.elapsed() > LONG {
                break;
            }
        }
        Ok(offsets)
    }
}

/// The places of each key's records, and the files. It ends before the first key with a record in no
/// file, or in one file too many. It also ends if `find` raises: Python meets the error at that key.
fn places_of(
    find: &Bound<'_, PyAny>,
    offsets: Vec<Vec<i64>>,
) -> PyResult<(Vec<LogFile>, Vec<Vec<Place>>)> {
    let (mut files, mut places): (Vec<LogFile>, _) = (Vec::new(), Vec::new());
    for offsets in offsets {
        let mut of_key = Vec::with_capacity(offsets.len());
        for offset in offsets {
            let mut found = files.iter().enumerate().rev();
            let known = found.find_map(|(number, file)| Some((number, file.position(offset)?)));
            if let Some((number, position)) = known {
                fetch::range(bytes_of(&files[number].buffer), position, position + FETCHED);
                of_key.push((number, position));
                continue;
            }
            let mapped = match find.call1((offset,)) {
                Ok(mapped) if !mapped.is_none() && files.len() < MOST_FILES => mapped,
                Err(error) if !error.is_instance_of::<PyException>(find.py()) => return Err(error),
                _ => return Ok((files, places)),
            };
            let file = LogFile::of(&mapped)?;
            let Some(position) = file.position(offset) else { return Ok((files, places)) };
            of_key.push((files.len(), position));
            files.push(file);
        }
        places.push(of_key);
    }
    Ok((files, places))
}

/// Adds the lines of the newest `most` messages of a key, in log order. Returns how many they are, and
/// how many of the records that were read have another topic or key. Adds nothing and returns None if
/// a record is missing or not plain, or if the lines are too long.
fn add_lines(
    lines: &mut Lines,
    out: &mut Vec<u8>,
    files: &[LogFile],
    places: &[Place],
    (topic, key): (&str, &str),
    most: usize,
) -> Option<(usize, usize)> {
    let (mut found, mut collisions) = (Vec::new(), 0);
    for &(number, position) in places {
        let file = &files[number];
        let record = file.record(position)?;
        if is_of_key(bytes_of(&file.buffer), &record, topic, key)? {
            found.push((file.file_from_offset, position, record, file));
        } else {
            collisions += 1;
        }
        if found.len() == most {
            break;
        }
    }
    found.sort_by_key(|&(from, position, ..)| (from, position));
    let (before, mismatches) = (out.len(), lines.mismatches);
    for (_, position, record, file) in &found {
        let is_line = lines.push(out, bytes_of(&file.buffer), *position, record);
        if !is_line || out.len() - before > MOST_OF_KEY {
            out.truncate(before);
            lines.mismatches = mismatches;
            return None;
        }
    }
    Some((found.len(), collisions))
}

/// A key without a message: its number, the bytes of lines and the messages of the keys before it, and
/// how many items with its hash have records of other topics or keys.
type Absent = (usize, usize, usize, usize);

/// The result for the first `done` keys.
#[derive(Default)]
struct Told {
    out: Vec<u8>,
    count: usize,
    done: usize,
    collisions: usize,
    absent: Vec<Absent>,
}

/// Lines of the newest `most` messages of each key, those of a key in log order. Also returns how many
/// keys were looked up, how many items with their hashes have records of other topics or keys, and the
/// keys that have no message. It ends before a key for which `rows_of_key` would return None, and when
/// there are enough lines. The other parameters, and what is raised, are as there.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "an index's, a log's and a key's")]
pub fn lines_of_keys(
    py: Python<'_>,
    mut lines: PyRefMut<'_, PyLines>,
    readers: Vec<PyRef<'_, IndexReader>>,
    find: &Bound<'_, PyAny>,
    topic: &str,
    keys: Vec<PyBackedStr>,
    begin: i64,
    is_growing: bool,
    most: usize,
) -> PyResult<(Made, usize, usize, Vec<Absent>)> {
    let readers = Readers::new(&readers);
    let asked = Asked { topic, keys: &keys, begin, is_growing, since: Instant::now() };
    let offsets = py.detach(|| guarded(|| Ok(asked.offsets(&readers)?)))?;
    let (files, places) = places_of(find, offsets)?;
    let lines = &mut lines.lines;
    lines.mismatches = 0;
    let mut told = Told { out: take(places.len() * LINE_ROOM), ..Told::default() };
    let work = || {
        for (key, places) in keys.iter().zip(&places) {
            let named = (topic, &**key);
            let added = add_lines(lines, &mut told.out, &files, places, named, most);
            let Some((messages, others)) = added else { break };
            if messages == 0 {
                told.absent.push((told.done, told.out.len(), told.count, others));
            }
            told.done += 1;
            told.count += messages;
            told.collisions += others;
            if told.out.len() >= ENOUGH || asked.since.elapsed() > LONG {
                break;
            }
        }
        Ok(lines.mismatches)
    };
    let mismatches = py.detach(|| guarded(work))?;
    let Told { out, count, done, collisions, absent } = told;
    Ok(((lent(out), count, mismatches), done, collisions, absent))
}
