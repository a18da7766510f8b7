//! What Python sees of lines: one class, that makes them of a log's records.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::bytes::memory::{give, take};
use crate::bytes::processors::has_processors;
use crate::layouts::{QUEUE_UNIT_BYTES, QUEUE_UNIT_SIZE};
use crate::lines::columns::{COLUMNS, Cell, Form, Spelling};
use crate::lines::pull::{Limits, Part, Pulled, Tags, Units, pull};
use crate::lines::rows::{Choice, Lines};
use crate::lines::second::Outcome;
use crate::lines::units;
use crate::python::ahead::{self, Ahead, Job, Pending};
use crate::python::memory::Memory;
use crate::python::{bytes_of, guarded};
use crate::record::entry::{self, Found, i32_at};

/// Bytes of lines that there is room for at first where nobody says how many.
const ROOM: usize = 1 << 18;

/// Lines that are worth another thread's while, which takes as long as a hundred to wake.
const LEAST_HALF: usize = 256;
/// Bytes that a line has more than its record, before there was one.
const HEAD_BYTES: usize = 600;
/// Pulls that are made without it, at most, after one for which it was not there in time: others want
/// the processors. None after the first such one, for a thread takes its time to wake.
const ALONE: usize = 8;

/// A cell: its name, and what it always has, where it is no column of the record.
type NamedCell = (String, Option<Vec<u8>>);
/// Lines, how many, and of how many the body is not what was stored.
pub type Made = (Memory, usize, usize);
/// Lines of pulls, and the queue offset of the next answer.
type Pulls = (Made, i64);

/// Lines of records, of one form.
#[pyclass(name = "Lines")]
pub struct PyLines {
    pub lines: Lines,
    choice: Choice,
    /// Bytes of a line of the last pull; 0: there was none.
    line_bytes: usize,
    /// What makes lines of pulls beside this thread; None before it is worth it.
    ahead: Option<Ahead>,
    /// What it is still at, of a pull that did not wait for it. Python's objects are shared between
    /// threads, and this is not, but for the lock.
    late: Mutex<Option<Pending>>,
    /// Pulls that are left before the other thread is asked again, and how many they are after the next
    /// one for which it is not there in time.
    alone: usize,
    next_alone: usize,
}

#[pymethods]
impl PyLines {
    /// Lines of the `form` `ndjson` or `csv`, as they are printed, or `ndjson-file` or `csv-file`,
    /// as they are exported, with bodies in the `body` spelling `base64`, `hex` or `utf8`.
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
        let late = Mutex::new(None);
        Ok(PyLines { lines, choice, line_bytes: 0, ahead: None, late, alone: 0, next_alone: 0 })
    }

    /// Lines of the records that follow each other from `position` on and begin before `limit`,
    /// `most` lines at most, and no more when they have `room` bytes. Nothing behind `readable` is
    /// looked at. Answers them, how many there are and of how many the body is not what was stored,
    /// and the place behind the last record that was looked at: what stands there is none, or not
    /// plain.
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

    /// Lines of the messages that pulls of a queue give, answer by answer, as long as nothing is odd
    /// and another answer follows: `most` at most, and no more when they have `room` bytes. `units`
    /// begin at the queue offset `first`; `queue` are the ends of its file and of the queue,
    /// `places` the part of the log's file in `buffer` that may be looked at, `limits` what
    /// `Limits` of `lines/pull.rs` has, in its order, `tags` the codes and texts that are wanted.
    /// Answers also the queue offset of the next answer, and, where many are wanted and a second
    /// thread has made them meanwhile, the lines of the answers from there on, with the queue offset
    /// behind those.
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
        // Which messages an answer ends with is known before only where all are wanted.
        let own = if tags.is_none() { self.half(limits, stored, most, room) } else { None };
        let (mut asked, mut wanted) = (None, (most, room));
        if let Some(half) = own {
            let job = second_half(units, &part, limits, half, (most, room), &buffer, py)?;
            asked = self.ahead.as_ref().and_then(|ahead| ahead.ask(job));
            if asked.is_some() {
                // One more than there are, for a pull is to go on behind them.
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
                // The other thread lets go of what it looks at before anybody hears of a panic.
                // It is waited for as long as it takes to make the lines here.
                let other = asked.map(|pending| pending.end(since.elapsed()));
                Ok((pulled.unwrap_or_else(|cause| resume_unwind(cause)), other))
            })
        };
        let (Pulled { out, count, next }, other) = py.detach(work)?;
        self.line_bytes = out.len().checked_div(count).unwrap_or(self.line_bytes);
        let follows = |half| next == first.saturating_add_unsigned(half as u64);
        let other = match other {
            Some(Outcome::Done((made, mismatches), job)) => {
                drop(job);
                self.next_alone = 0;
                let lines = || ((lent(made.out), made.count, mismatches), made.next);
                own.is_some_and(follows).then(lines)
            }
            Some(Outcome::NotBegun(job)) => {
                drop(job);
                self.goes_alone();
                None
            }
            Some(Outcome::Late(pending)) => {
                self.late = Mutex::new(Some(pending));
                self.goes_alone();
                None
            }
            Some(Outcome::Gone) | None => None,
        };
        Ok(((lent(out), count, self.lines.mismatches), next, other))
    }

    /// Lines of the records at places of a file (this machine's 64-bit numbers), in their order, up
    /// to the first that is not plain; how many, and of how many the body is not what was stored.
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
    /// How many messages a pull makes the lines of itself, where it has as many made by another
    /// thread; None where it does not.
    fn half(&mut self, limits: Limits, stored: &[u8], most: usize, room: usize) -> Option<usize> {
        let late = self.late.get_mut().unwrap_or_else(PoisonError::into_inner);
        *late = late.take().and_then(Pending::left);
        if self.alone > 0 {
            self.alone -= 1;
            return None;
        }
        if late.is_some() {
            return None;
        }
        if self.line_bytes == 0 {
            let unit = stored.get(..QUEUE_UNIT_BYTES)?;
            self.line_bytes = HEAD_BYTES + i32_at(unit, QUEUE_UNIT_SIZE).max(0) as usize;
        }
        let units = (stored.len() / QUEUE_UNIT_BYTES).min(most);
        let lines = (room / self.line_bytes).min(units.saturating_sub(1) / 2);
        let half = lines.checked_div(limits.messages)? * limits.messages;
        if half < LEAST_HALF || !has_processors() {
            return None;
        }
        if self.ahead.is_none() {
            self.ahead = ahead::begin(self.lines.clone());
        }
        Some(half)
    }

    /// The other thread was not there in time.
    fn goes_alone(&mut self) {
        self.alone = self.next_alone;
        self.next_alone = (2 * self.alone + 1).min(ALONE);
    }
}

/// What another thread is to do: the answers behind the first `half` messages, as many.
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
    // With the unit behind them: an answer ends before it.
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

/// Lines for Python. Few of them have memory of their own: who keeps them shall not keep room for many.
pub fn lent(out: Vec<u8>) -> Memory {
    if out.len() > out.capacity() / 4 {
        return Memory::Bytes(out);
    }
    let few = out.as_slice().to_vec();
    give(out);
    Memory::Bytes(few)
}

/// Lines of units of a queue, whose first one has this queue offset: those that point to a place
/// `from..to` in the log, `most` at most, up to the first that was never written. `parts` are what stands
/// before each number of a line (queue offset, physical offset, size, tags code) and behind the
/// last. Answers them, how many there are, and how many units were looked at.
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
