//! The Python interface for looking up many keys in one call: lines of the messages.

use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, iter};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;

use crate::bytes::fetch;
use crate::bytes::memory::take;
use crate::lines::rows::Lines;
use crate::lines::second::Helper;
use crate::python::keys::{IndexReader, Readers, STEPS};
use crate::python::lines::{Made, PyLines, lent};
use crate::python::records::{found_at, is_of_key};
use crate::python::{bytes_of, guarded, refused};
use crate::record::entry::Record;

/// Bytes of a record that are prefetched: most records are not longer.
const FETCHED: usize = 512;
/// Initial capacity (bytes) for the lines of a key.
const LINE_ROOM: usize = 1 << 10;
/// How many keys the second thread looks up at a time.
const KEYS_OF_PART: usize = 32;
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

/// Keys to be looked up. A job of the second thread must be dropped by the asking thread, which has the
/// GIL.
pub struct Job {
    readers: Vec<Py<IndexReader>>,
    topic: String,
    keys: Arc<Vec<PyBackedStr>>,
    /// The earliest store time (ms).
    begin: i64,
    is_growing: bool,
    /// When the call began.
    since: Instant,
}

/// The physical offsets of each key's items, newest first.
type Offsets = Vec<Vec<i64>>;
/// A second thread that looks up keys.
pub type KeysAhead = Helper<Job, io::Result<Offsets>>;

impl Job {
    /// Ends before the first key that has many items, and when the time is over.
    fn offsets(&self) -> io::Result<Offsets> {
        let readers = Readers::new(self.readers.iter().map(Py::get));
        let (mut offsets, mut steps) = (Vec::with_capacity(self.keys.len()), STEPS);
        for key in &*self.keys {
            let named = (&*self.topic, &**key);
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

/// The places of each key's records. It ends before the first key with a record in no file, or in one
/// file too many. It also ends if `find` raises: Python meets the error at that key.
fn places_of(
    find: &Bound<'_, PyAny>,
    files: &mut Vec<LogFile>,
    offsets: Offsets,
) -> PyResult<Vec<Vec<Place>>> {
    let mut places = Vec::with_capacity(offsets.len());
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
                _ => return Ok(places),
            };
            let file = LogFile::of(&mapped)?;
            let Some(position) = file.position(offset) else { return Ok(places) };
            of_key.push((files.len(), position));
            files.push(file);
        }
        places.push(of_key);
    }
    Ok(places)
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

impl Told {
    /// Adds the lines of keys, whose records have these places. Returns whether the next keys may
    /// follow: all of these are done, there are not enough lines, and the call, which began at `since`,
    /// has not taken too long.
    fn add(
        &mut self,
        lines: &mut Lines,
        (topic, keys): (&str, &[PyBackedStr]),
        files: &[LogFile],
        places: &[Vec<Place>],
        most: usize,
        since: Instant,
    ) -> bool {
        for (key, places) in keys.iter().zip(places) {
            let named = (topic, &**key);
            let added = add_lines(lines, &mut self.out, files, places, named, most);
            let Some((messages, others)) = added else { return false };
            if messages == 0 {
                self.absent.push((self.done, self.out.len(), self.count, others));
            }
            self.done += 1;
            self.count += messages;
            self.collisions += others;
            if self.out.len() >= ENOUGH || since.elapsed() > LONG {
                return false;
            }
        }
        places.len() == keys.len()
    }
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
    readers: Vec<Py<IndexReader>>,
    find: &Bound<'_, PyAny>,
    topic: &str,
    keys: Vec<PyBackedStr>,
    begin: i64,
    is_growing: bool,
    most: usize,
) -> PyResult<(Made, usize, usize, Vec<Absent>)> {
    let since = Instant::now();
    let PyLines { lines, keys_ahead, .. } = &mut *lines;
    lines.mismatches = 0;
    let mut told = Told { out: take(keys.len() * LINE_ROOM), ..Told::default() };
    let mut files = Vec::new();
    let is_split = keys.len() >= 2 * KEYS_OF_PART && keys_ahead.may_ask();
    let job_of = |keys: &Arc<_>| Job {
        readers: readers.iter().map(|reader| reader.clone_ref(py)).collect(),
        topic: topic.to_owned(),
        keys: Arc::clone(keys),
        begin,
        is_growing,
        since,
    };
    // This thread looks up the first part. The second one looks up the others, while this one makes
    // lines.
    let mut parts = Vec::new();
    for keys in parts_of(keys, if is_split { KEYS_OF_PART } else { usize::MAX }) {
        let asks = is_split && !parts.is_empty();
        let asked = asks.then(|| keys_ahead.ask(job_of(&keys), || Job::offsets)).flatten();
        parts.push((keys, asked));
    }
    let (mut parts, mut is_ready) = (parts.into_iter(), false);
    for (keys, asked) in parts.by_ref() {
        let mut done = None;
        if let Some(pending) = asked {
            let outcome = py.detach(|| guarded(|| Ok(pending.end(since.elapsed()))))?;
            done = keys_ahead.done(outcome);
            is_ready |= done.is_some();
        }
        let offsets = match done {
            Some((offsets, _)) => offsets.map_err(refused)?,
            None => {
                let job = job_of(&keys);
                py.detach(|| guarded(|| job.offsets().map_err(refused)))?
            }
        };
        let places = places_of(find, &mut files, offsets)?;
        let work = || guarded(|| Ok(told.add(lines, (topic, &keys), &files, &places, most, since)));
        if !py.detach(work)? {
            break;
        }
    }
    if is_split {
        keys_ahead.was_ready(is_ready);
    }
    let unused = parts.filter_map(|(_, asked)| asked);
    guarded(|| {
        unused.for_each(|pending| keys_ahead.leave(pending));
        Ok(())
    })?;
    let Told { out, count, done, collisions, absent } = told;
    Ok(((lent(out), count, lines.mismatches), done, collisions, absent))
}

/// The keys in parts of `size`, in their order.
fn parts_of(keys: Vec<PyBackedStr>, size: usize) -> impl Iterator<Item = Arc<Vec<PyBackedStr>>> {
    let mut keys = keys.into_iter();
    iter::from_fn(move || {
        let part: Vec<_> = keys.by_ref().take(size).collect();
        (!part.is_empty()).then(|| Arc::new(part))
    })
}
