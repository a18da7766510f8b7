//! The Python interface of lines: a class that makes them of the records of a log.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::bytes::memory::{give, take};
use crate::layouts::{QUEUE_UNIT_BYTES, QUEUE_UNIT_SIZE};
use crate::lines::columns::{COLUMNS, Cell, Form, Spelling};
use crate::lines::pull::{Limits, Part, Pulled, Tags, Units, pull};
use crate::lines::rows::{Choice, Lines};
use crate::lines::units;
use crate::python::ahead::{self, Ahead, Job};
use crate::python::keylines::KeysAhead;
use crate::python::memory::Memory;
use crate::python::{bytes_of, guarded};
use crate::record::entry::{self, Found, i32_at};

/// Initial capacity (bytes) for lines if the caller gives none.
const ROOM: usize = 1 << 18;

/// From so many lines on a second thread makes half of them. To wake it takes as long as making a
/// hundred lines.
const LEAST_HALF: usize = 256;
/// How many bytes a line has more than its record: a guess, used before the first line is made.
const HEAD_BYTES: usize = 600;

/// A cell: its name, and its text if that is always the same; None: it is a column of the record.
type NamedCell = (String, Option<Vec<u8>>);
/// Lines, how many they are, and how many have a body that does not match its CRC.
pub type Made = (Memory, usize, usize);
/// Lines of pulls, and the queue offset of the next answer.
type Pulls = (Made, i64);

/// Lines of records, of one form.
#[pyclass(name = "Lines")]
pub struct PyLines {
    pub lines: Lines,
    choice: Choice,
    /// The mean bytes of a line in the last pull; 0: there was none.
    line_bytes: usize,
    /// Makes half of a pull's lines.
    ahead: Ahead,
    /// Looks up keys while lines of others are made.
    pub keys_ahead: KeysAhead,
}

#[pymethods]
impl PyLines {
    /// Lines of a `form`: `ndjson` or `csv`, as they are printed, or `ndjson-file` or `csv-file`, as
    /// they are exported. `body` is the encoding of bodies: `base64`, `hex` or `utf8`.
    #[new]
    #[pyo3(signature = (form, cells, body, *, decompresses = false, checks = false, topic = None,
                        queue_id = None, since = None, until = None))]
    #[expect(clippy::too_many_arguments, reason = "they have names")]
    fn new(
        form: &str,
        cells: Vec<NamedCell>,
        body: &str,
        decompresses: bool,
        checks: bool,
        topic: Option<Vec<u8>>,
        queue_id: Option<i64>,
        since: Option<i64>,
        until: Option<i64>,
    ) -> PyResult<Self> {
        let cells = cells.into_iter().map(cell_of).collect::<PyResult<Vec<_>>>()?;
        let form = match form {
            "ndjson" => Form::Json,
            "csv" => Form::Csv,
            "ndjson-file" => Form::JsonFile,
            "csv-file" => Form::CsvFile,
            _ => return Err(PyValueError::new_err(format!("no form {form:?}"))),
        };
        let spelling = match body {
            "base64" => Spelling::Base64,
            "hex" => Spelling::Hex,
            "utf8" => Spelling::Utf8,
            _ => return Err(PyValueError::new_err(format!("no spelling {body:?}"))),
        };
        let lines = Lines::new(cells, form, spelling, decompresses, checks);
        let choice = Choice { topic, queue_id, since, until };
        let (ahead, keys_ahead) = (Ahead::new("lines"), KeysAhead::new("keys"));
        Ok(PyLines { lines, choice, line_bytes: 0, ahead, keys_ahead })
    }

    /// Lines of consecutive records, from `position` on, that begin before `limit`. It stops after
    /// `most` lines or `room` bytes, at anything that is not a plain record, and does not read behind
    /// `readable`. Returns the lines, and the position behind the last record that was read.
    #[expect(clippy::too_many_arguments, reason = "a window's, and its buffer")]
    fn log(
        &mut self,
        py: Python<'_>,
        buffer: PyBuffer<u8>,
        position: usize,
        limit: usize,
        readable: usize,
        file_from_offset: i64,
        most: usize,
        room: usize,
    ) -> PyResult<(Made, usize)> {
        let data = bytes_of(&buffer);
        let data = &data[..readable.min(data.len())];
        let (lines, choice) = (&mut self.lines, &self.choice);
        lines.mismatches = 0;
        let work = || {
            guarded(|| {
                let mut out = take(room + room / 8);
                let (mut at, mut count) = (position, 0);
                while at < limit && count < most && out.len() < room {
                    let Found::Record(record) = entry::read(data, at, readable, file_from_offset)
                    else {
                        break;
                    };
                    if choice.takes(data, &record) {
                        if !lines.push(&mut out, data, at, &record) {
                            break;
                        }
                        count += 1;
                    }
                    at += record.total_size;
                }
                Ok((out, count, at))
            })
        };
        let (out, count, at) = py.detach(work)?;
        Ok(((lent(out), count, self.lines.mismatches), at))
    }

    /// Lines of the messages of pulls, answer by answer, as long as nothing is unusual and another
    /// answer follows: at most `most`, until they have `room` bytes. `units` begin at the queue offset
    /// `first`. `queue` has the queue offsets at which the queue's file and the queue end. `places` is
    /// the part of the log's file, which is mapped in `buffer`, that may be used. `limits` has the
    /// fields of `Limits` (`lines/pull.rs`), `tags` the codes and texts of the wanted tags. Returns the
    /// lines and the queue offset of the next answer; and, if a second thread has made them meanwhile,
    /// the lines of the answers from there on, and the queue offset behind those.
    #[pyo3(signature = (units, first, queue, buffer, places, file_from_offset, limits, tags, most,
                        room))]
    #[expect(clippy::too_many_arguments, reason = "a queue's, a log's and a pull's")]
    fn pull(
        &mut self,
        py: Python<'_>,
        units: PyBuffer<u8>,
        first: i64,
        queue: (i64, i64),
        buffer: PyBuffer<u8>,
        places: (usize, usize),
        file_from_offset: i64,
        limits: (usize, usize, i64, (i64, usize), (i64, usize), i64),
        tags: Option<(Vec<i64>, Vec<Vec<u8>>)>,
        most: usize,
        room: usize,
    ) -> PyResult<(Made, i64, Option<Pulls>)> {
        let (stored, data) = (bytes_of(&units), bytes_of(&buffer));
        let (messages, units, in_memory, memory, disk, log_end) = limits;
        let limits = Limits { messages, units, in_memory, memory, disk, log_end };
        let units = Units { stored, first, file_end: queue.0, queue_end: queue.1 };
        let part = Part { data, places: places.0..places.1, file_from_offset };
        let tags = tags.map(|(codes, texts)| Tags { codes, texts: Some(texts) });
        // Without a filter the end of an answer is known before its records are read, so the pull can
        // be split.
        let own = if tags.is_none() { self.half(limits, stored, most, room) } else { None };
        let (mut asked, mut wanted) = (None, (most, room));
        if let Some(half) = own {
            let job = second_half(units, &part, limits, half, (most, room), &buffer, py)?;
            let lines = &self.lines;
            asked = self.ahead.ask(job, || ahead::work(lines.clone()));
            if asked.is_some() {
                // One more than its own half, because lines are made only of answers that another
                // message follows.
                wanted = (half + 1, 2 * room);
            }
        }
        let lines = &mut self.lines;
        lines.mismatches = 0;
        let out = take(wanted.1 + wanted.1 / 8);
        let work = || {
            guarded(|| {
                let since = Instant::now();
                let pulled = catch_unwind(AssertUnwindSafe(|| {
                    pull(lines, out, units, &part, limits, tags.as_ref(), wanted)
                }));
                // The second thread must stop using the buffer before a panic continues. It is given as
                // much time as this thread took for its own half.
                let other = asked.map(|pending| pending.end(since.elapsed()));
                Ok((pulled.unwrap_or_else(|cause| resume_unwind(cause)), other))
            })
        };
        let (Pulled { out, count, next }, other) = py.detach(work)?;
        self.line_bytes = out.len().checked_div(count).unwrap_or(self.line_bytes);
        let follows = |half| next == first.saturating_add_unsigned(half as u64);
        let done = other.map(|outcome| self.ahead.done(outcome));
        if let Some(done) = &done {
            self.ahead.was_ready(done.is_some());
        }
        let other = done.flatten().and_then(|((made, mismatches), _)| {
            let lines = || ((lent(made.out), made.count, mismatches), made.next);
            own.is_some_and(follows).then(lines)
        });
        Ok(((lent(out), count, self.lines.mismatches), next, other))
    }

    /// Lines of the records at these positions of a file (64-bit integers in this machine's byte order),
    /// in their order, up to the first that is not plain.
    fn at(
        &mut self,
        py: Python<'_>,
        buffer: PyBuffer<u8>,
        places: PyBuffer<u8>,
        readable: usize,
        file_from_offset: i64,
    ) -> PyResult<Made> {
        let (data, places) = (bytes_of(&buffer), bytes_of(&places));
        let data = &data[..readable.min(data.len())];
        let lines = &mut self.lines;
        lines.mismatches = 0;
        let work = || {
            guarded(|| {
                let (mut out, mut count) = (take(ROOM), 0);
                for place in places.chunks_exact(8) {
                    let place = i64::from_ne_bytes(place.try_into().expect("eight bytes"));
                    let Ok(place) = usize::try_from(place) else { break };
                    let found = entry::read(data, place, readable, file_from_offset);
                    let Found::Record(record) = found else { break };
                    if !lines.push(&mut out, data, place, &record) {
                        break;
                    }
                    count += 1;
                }
                Ok((out, count))
            })
        };
        let (out, count) = py.detach(work)?;
        Ok((lent(out), count, self.lines.mismatches))
    }
}

impl PyLines {
    /// How many messages are one half of a pull, if a second thread should make the other half; else
    /// None.
    fn half(&mut self, limits: Limits, stored: &[u8], most: usize, room: usize) -> Option<usize> {
        if !self.ahead.may_ask() {
            return None;
        }
        if self.line_bytes == 0 {
            let unit = stored.get(..QUEUE_UNIT_BYTES)?;
            self.line_bytes = HEAD_BYTES + i32_at(unit, QUEUE_UNIT_SIZE).max(0) as usize;
        }
        let units = (stored.len() / QUEUE_UNIT_BYTES).min(most);
        let lines = (room / self.line_bytes).min(units.saturating_sub(1) / 2);
        let half = lines.checked_div(limits.messages)? * limits.messages;
        (half >= LEAST_HALF).then_some(half)
    }
}

/// The job of the second thread: the answers behind the first `half` messages, for as many messages.
fn second_half(
    units: Units<'_>,
    part: &Part<'_>,
    limits: Limits,
    half: usize,
    (most, room): (usize, usize),
    buffer: &PyBuffer<u8>,
    py: Python<'_>,
) -> PyResult<Job> {
    let object = buffer.obj(py).ok_or_else(|| PyValueError::new_err("no buffer of an object"))?;
    let from = half * QUEUE_UNIT_BYTES;
    // And one unit more, because lines are made only of answers that another message follows.
    let to = (from + from + QUEUE_UNIT_BYTES).min(units.stored.len());
    Ok(Job {
        units: units.stored[from..to].to_vec(),
        first: units.first.saturating_add_unsigned(half as u64),
        file_end: units.file_end,
        queue_end: units.queue_end,
        buffer: PyBuffer::get(object)?,
        places: part.places.clone(),
        file_from_offset: part.file_from_offset,
        limits,
        most: (most - half).min(half + 1),
        room: 2 * room,
    })
}

/// Lines for Python. Few lines are copied into memory of their own size, so that keeping them does not
/// keep a large block.
pub fn lent(out: Vec<u8>) -> Memory {
    if out.len() > out.capacity() / 4 {
        return Memory::Bytes(out);
    }
    let few = out.as_slice().to_vec();
    give(out);
    Memory::Bytes(few)
}

/// Lines of the units of a queue, at most `most`, up to the first that was never written. The first
/// unit has this `queue_offset`. Units that point outside of `from..to` in the log are skipped. `parts`
/// are the texts before each number of a line (queue offset, physical offset, size, tags code) and
/// behind the last. Returns the lines, how many they are, and how many units were read.
#[pyfunction]
pub fn unit_lines(
    py: Python<'_>,
    units: PyBuffer<u8>,
    queue_offset: i64,
    parts: [Vec<u8>; 5],
    most: usize,
    from: Option<i64>,
    to: Option<i64>,
) -> PyResult<(Memory, usize, usize)> {
    let units = bytes_of(&units);
    let work = || guarded(|| Ok(units::unit_lines(units, queue_offset, &parts, most, (from, to))));
    let (out, count, seen) = py.detach(work)?;
    Ok((lent(out), count, seen))
}

fn cell_of((name, always): NamedCell) -> PyResult<(String, Cell)> {
    if let Some(text) = always {
        return Ok((name, Cell::Text(text)));
    }
    let known = COLUMNS.iter().find(|(column, _)| *column == name);
    let Some((_, column)) = known else {
        return Err(PyValueError::new_err(format!("no column {name:?}")));
    };
    Ok((name, Cell::Of(*column)))
}
