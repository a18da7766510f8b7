//! What Python sees of puts of single messages: one call stores a record, its unit and its index
//! items, and says so to those who keep the ends of them.
//!
//! What is true is in the Python objects: log, table of queue offsets, queue, index file. They are
//! asked each time, and told afterwards. Kept here are buffers of their files, and disk space that
//! was made sure of: so nothing can go wrong when the first byte is stored.

use std::collections::HashMap;
use std::time::Instant;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::append::{self, Place, Stop};
use crate::items::{self, Common, Places};
use crate::layouts::QUEUE_UNIT_BYTES;
use crate::newunits;
use crate::pyappend::{fixed_of, room_of, system_clock};
use crate::pymessage::{Fields, Reader};
use crate::python::guarded;
use crate::units::{self, Unit};

/// Queues of which a file is held, at most.
const MOST_QUEUES: usize = 96;
/// Where the message needs an index file that is not known.
const INDEX: u8 = 7;

/// Those who keep the ends of what is written: the log, what of it is dispatched, the queue offsets
/// by `(topic, queue id)`, the queues, what is derived, the index (None: none is written).
#[derive(FromPyObject)]
struct Parts {
    log: Py<PyAny>,
    tail: Py<PyAny>,
    table: Py<PyDict>,
    queues: Py<PyAny>,
    derived: Py<PyAny>,
    index: Option<Py<PyAny>>,
}

/// A file of the log: where it begins, and up to where there is disk space for records.
struct LogFile {
    buffer: PyBuffer<u8>,
    base: i64,
    reserved: usize,
}

/// The file that a queue ends in: the queue offset of its first unit, and the one before which there
/// is disk space.
struct Queue {
    queue: Py<PyAny>,
    key: Py<PyTuple>,
    mapped: Py<PyAny>,
    dirty: Py<PyAny>,
    buffer: PyBuffer<u8>,
    first: i64,
    limit: i64,
    counter: usize,
}

/// The newest index file, whose header is this object as long as nobody else writes to it; `limit` is
/// the number of the first item without disk space, or which fills the file.
struct IndexFile {
    file: Py<PyAny>,
    mapped: Py<PyAny>,
    dirty: Py<PyAny>,
    buffer: PyBuffer<u8>,
    places: Places,
    limit: i32,
    header: Py<PyAny>,
    fields: Header,
}

/// `IndexHeader`: times and physical offsets of the first and the last message, and counts.
type Header = (i64, i64, i64, i64, i32, i32);

/// Classes and values of answers: `PutMessageResult`, `AppendMessageResult`, their PUT_OK, and
/// `IndexHeader._make`.
#[derive(FromPyObject)]
struct Answers {
    put: Py<PyType>,
    append: Py<PyType>,
    put_ok: Py<PyAny>,
    append_ok: Py<PyAny>,
    header: Py<PyAny>,
}

/// Names of attributes.
struct Names {
    write_offset: Py<PyString>,
    store_timestamp: Py<PyString>,
    stale_end: Py<PyString>,
    done: Py<PyString>,
    failed: Py<PyString>,
    generation: Py<PyString>,
    wrote: Py<PyString>,
    max_physical_offset: Py<PyString>,
    last: Py<PyString>,
    header: Py<PyString>,
    logics_msg_timestamp: Py<PyString>,
    end: Py<PyString>,
    mark_dirty: Py<PyString>,
}

/// What was put, until somebody asks: messages and bytes of topics, how many puts took how long, by
/// classes, and the longest (ms).
#[pyclass]
pub struct PutCounts {
    numbers: HashMap<String, usize>,
    topics: Vec<(String, i64, i64)>,
    ends: Vec<i64>,
    classes: Vec<i64>,
    longest: f64,
}

/// Puts of single messages into one store.
#[pyclass]
pub struct SingleAppender {
    records: append::Appender,
    reader: Reader,
    parts: Parts,
    answers: Answers,
    names: Names,
    clock: Option<Py<PyAny>>,
    counts: Py<PutCounts>,
    file: Option<LogFile>,
    queues: HashMap<Box<[u8]>, Queue>,
    generation: i64,
    index: Option<IndexFile>,
    key: Vec<u8>,
    hashes: Vec<i32>,
}

/// Why a message was not stored: a stop of the append, or what Python has raised.
enum Refused {
    Stopped(u8),
    Raised(PyErr),
}

impl From<PyErr> for Refused {
    fn from(error: PyErr) -> Self {
        Refused::Raised(error)
    }
}

type Result<T> = std::result::Result<T, Refused>;

fn stopped<T>(stop: Stop) -> Result<T> {
    Err(Refused::Stopped(stop as u8))
}

#[pymethods]
impl PutCounts {
    /// `ends` are those of the classes of times (ms), but of the last one.
    #[new]
    fn new(ends: Vec<i64>) -> Self {
        let classes = vec![0; ends.len() + 1];
        PutCounts { numbers: HashMap::new(), topics: Vec::new(), ends, classes, longest: 0.0 }
    }

    /// What was put since this was asked last: `(topic, messages, bytes)`, puts by class, and the
    /// longest time (ms).
    fn take(&mut self) -> (Vec<(String, i64, i64)>, Vec<i64>, f64) {
        let put = self.topics.iter().filter(|(_, messages, _)| *messages > 0).cloned().collect();
        for (_, messages, bytes) in &mut self.topics {
            (*messages, *bytes) = (0, 0);
        }
        let empty = vec![0; self.classes.len()];
        let longest = std::mem::take(&mut self.longest);
        (put, std::mem::replace(&mut self.classes, empty), longest)
    }
}

impl PutCounts {
    fn number_of(&mut self, topic: &str) -> usize {
        if let Some(number) = self.numbers.get(topic) {
            return *number;
        }
        self.topics.push((topic.to_owned(), 0, 0));
        self.numbers.insert(topic.to_owned(), self.topics.len() - 1);
        self.topics.len() - 1
    }

    fn stored(&mut self, number: usize, size: usize) {
        let (_, messages, bytes) = &mut self.topics[number];
        *messages += 1;
        *bytes += size as i64;
    }

    fn put_ended(&mut self, elapsed: f64) {
        let millis = elapsed as i64;
        let class = self.ends.iter().position(|end| millis <= 0 || millis < *end);
        self.classes[class.unwrap_or(self.ends.len())] += 1;
        self.longest = self.longest.max(elapsed);
    }
}

#[pymethods]
impl SingleAppender {
    /// `clock` gives store times (ms); None: the system's.
    #[new]
    #[pyo3(signature = (*, shortest_properties, largest_record, classes, parts, answers, clock,
        counts))]
    #[expect(clippy::too_many_arguments, reason = "a store's parts")]
    fn new(
        py: Python<'_>,
        shortest_properties: usize,
        largest_record: usize,
        classes: (Py<PyType>, Py<PyType>),
        parts: Parts,
        answers: Answers,
        clock: Option<Py<PyAny>>,
        counts: Py<PutCounts>,
    ) -> PyResult<Self> {
        let host = ([127, 0, 0, 1], 0);
        let name = |name| PyString::intern(py, name).unbind();
        Ok(SingleAppender {
            records: fixed_of(host, host, shortest_properties, largest_record),
            reader: Reader::new(py, classes)?,
            parts,
            answers,
            names: Names {
                write_offset: name("write_offset"),
                store_timestamp: name("store_timestamp"),
                stale_end: name("stale_end"),
                done: name("done"),
                failed: name("failed"),
                generation: name("generation"),
                wrote: name("_wrote"),
                max_physical_offset: name("max_physical_offset"),
                last: name("_last"),
                header: name("header"),
                logics_msg_timestamp: name("logics_msg_timestamp"),
                end: name("end"),
                mark_dirty: name("mark_dirty"),
            },
            clock,
            counts,
            file: None,
            queues: HashMap::new(),
            generation: -1,
            index: None,
            key: Vec::new(),
            hashes: Vec::new(),
        })
    }

    /// The file at the log's end begins at this physical offset, and has disk space for records up to
    /// a position.
    fn set_log(&mut self, buffer: PyBuffer<u8>, base: i64, reserved: usize) {
        self.file = Some(LogFile { buffer, base, reserved });
    }

    /// A queue ends in this file, whose first unit has queue offset `first`; there is disk space for
    /// units before `limit`.
    #[expect(clippy::too_many_arguments, reason = "a queue, and its file")]
    fn admit(
        &mut self,
        py: Python<'_>,
        topic: &str,
        queue_id: i32,
        queue: Py<PyAny>,
        mapped: Py<PyAny>,
        dirty: Py<PyAny>,
        buffer: PyBuffer<u8>,
        first: i64,
        limit: i64,
    ) -> PyResult<()> {
        if self.queues.len() >= MOST_QUEUES {
            self.queues.clear();
        }
        let counter = self.counts.borrow_mut(py).number_of(topic);
        let key = (topic, queue_id).into_pyobject(py)?.unbind();
        let held = Queue { queue, key, mapped, dirty, buffer, first, limit, counter };
        self.queues.insert(append::key(&mut self.key, topic.as_bytes(), queue_id).into(), held);
        Ok(())
    }

    /// The newest index file, with this header; `limit` is the number of the first item that it
    /// cannot take so.
    #[expect(clippy::too_many_arguments, reason = "a file, and where what stands in it")]
    fn set_index(
        &mut self,
        file: Py<PyAny>,
        mapped: Py<PyAny>,
        dirty: Py<PyAny>,
        buffer: PyBuffer<u8>,
        slots: usize,
        slot_count: u32,
        items: usize,
        limit: i32,
        header: Py<PyAny>,
        fields: Header,
    ) {
        let places = Places { slots, slot_count, items, next: fields.5 };
        self.index = Some(IndexFile { file, mapped, dirty, buffer, places, limit, header, fields });
    }

    /// Stores a message, its unit and its index items; the answer, or the number of a stop: what has
    /// to be said before. With `waits` the put goes on behind this one's answer.
    fn put<'py>(
        &mut self,
        py: Python<'py>,
        message: &Bound<'py, PyAny>,
        waits: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        match guarded(|| Ok(self.store(message, waits)))? {
            Ok(answer) => Ok(answer),
            Err(Refused::Stopped(stop)) => Ok(stop.into_pyobject(py)?.into_any()),
            Err(Refused::Raised(error)) => Err(error),
        }
    }
}

impl SingleAppender {
    fn store<'py>(
        &mut self,
        message: &Bound<'py, PyAny>,
        waits: bool,
    ) -> Result<Bound<'py, PyAny>> {
        let (py, begin) = (message.py(), Instant::now());
        let names = &self.names;
        let Some(fields) = self.reader.read(message) else { return stopped(Stop::Unsure) };
        let Some(mut plain) = fields.message() else { return stopped(Stop::Unsure) };
        let (log, tail) = (self.parts.log.bind(py), self.parts.tail.bind(py));
        let start: i64 = log.getattr(&names.write_offset)?.extract()?;
        if tail.getattr(&names.done)?.extract::<i64>()? != start
            || tail.getattr(&names.failed)?.is_truthy()?
            || log.getattr(&names.stale_end)?.extract::<i64>()? > start
        {
            return stopped(Stop::Unsure);
        }
        let generation = self.parts.queues.bind(py).getattr(&names.generation)?.extract()?;
        if generation != self.generation {
            self.queues.clear();
            self.generation = generation;
        }

        // Where the unit goes.
        let key = append::key(&mut self.key, plain.topic.as_bytes(), plain.queue_id);
        let Some(queue) = self.queues.get(key) else { return stopped(Stop::Queue) };
        let (table, of_queue) = (self.parts.table.bind(py), queue.queue.bind(py));
        let Some(queue_offset) = table.get_item(&queue.key)? else { return stopped(Stop::Queue) };
        let queue_offset: i64 = queue_offset.extract()?;
        let wrote: i64 = of_queue.getattr(&names.wrote)?.extract()?;
        let before: i64 = of_queue.getattr(&names.max_physical_offset)?.extract()?;
        let goes_on = wrote == queue_offset * QUEUE_UNIT_BYTES as i64;
        if !goes_on || queue_offset >= queue.limit || queue_offset < queue.first {
            return stopped(Stop::Queue);
        }
        if before < 0 || before > start {
            return stopped(Stop::Unsure);
        }

        // Where the record goes.
        let Some(file) = self.file.as_mut().filter(|file| file.base <= start) else {
            return stopped(Stop::Room);
        };
        let position = (start - file.base) as usize;
        let (end, file_from_offset) = (file.reserved, file.base);
        let place = Place { position, end, file_from_offset, most: 1, enough: end };
        let encoded = self.records.encode(place, position, &mut plain, queue_offset);
        let (size, found) = match encoded {
            Ok(encoded) => encoded,
            Err((stop, _)) => return stopped(stop),
        };

        // Where the items go.
        let hashes = &mut self.hashes;
        let tags_code = self.records.derive(plain.topic, &found, hashes);
        let mut index = None;
        if let Some(service) = &self.parts.index {
            let newest = service.bind(py).getattr(&names.last)?;
            let known = self.index.as_mut().filter(|known| newest.is(&known.file));
            let Some(known) = known else { return Err(Refused::Stopped(INDEX)) };
            let header = known.file.bind(py).getattr(&names.header)?;
            let count = i64::from(known.fields.5) + hashes.len() as i64;
            if !header.is(&known.header) || count >= i64::from(known.limit) {
                return Err(Refused::Stopped(INDEX));
            }
            if known.fields.3 >= start {
                return stopped(Stop::Unsure);
            }
            index = Some(known);
        }

        let timestamp = match &self.clock {
            Some(clock) => clock.bind(py).call0()?.extract()?,
            None => system_clock()?,
        };
        let (mut room, mut units) = (room_of(&file.buffer)?, room_of(&queue.buffer)?);
        self.records.store(&mut room, position, timestamp);
        let mut unit = [0; QUEUE_UNIT_BYTES];
        let of_record = Unit {
            topic: 0,
            queue: 0,
            queue_offset,
            physical_offset: start,
            size: size as i64,
            tags_code,
        };
        units::store(&of_record, &mut unit);
        let at = (queue_offset - queue.first) as usize * QUEUE_UNIT_BYTES;
        newunits::store_all(&mut units, at, &unit);

        // The log and the queue have it.
        let behind = (start + size as i64).into_pyobject(py).map_err(PyErr::from)?;
        let time = timestamp.into_pyobject(py).map_err(PyErr::from)?;
        log.setattr(&names.write_offset, &behind)?;
        log.setattr(&names.store_timestamp, &time)?;
        table.set_item(&queue.key, queue_offset + 1)?;
        of_queue.setattr(&names.wrote, wrote + QUEUE_UNIT_BYTES as i64)?;
        of_queue.setattr(&names.max_physical_offset, &behind)?;
        mark_dirty(names, &queue.mapped, queue.dirty.bind(py), at, at + QUEUE_UNIT_BYTES)?;
        if let Some(index) = index.filter(|_| !hashes.is_empty()) {
            index.put(py, names, &self.answers.header, hashes, start, timestamp)?;
        }
        tail.setattr(&names.done, &behind)?;
        self.parts.derived.bind(py).setattr(&names.logics_msg_timestamp, &time)?;

        // Not while Python is at work below, when somebody may ask for them.
        self.counts.borrow_mut(py).stored(queue.counter, size);
        let answers = &self.answers;
        let msg_id = msg_id(&fields, start);
        let ok = &answers.append_ok;
        // Where a put takes a millisecond, it is the pages that it waits for.
        let elapsed = begin.elapsed();
        let page_cache_rt = elapsed.as_millis() as i64;
        let appended = (ok, start, size, msg_id, time, queue_offset, page_cache_rt);
        let appended = answers.append.bind(py).call1(appended)?;
        let topic_and_queue = queue.key.bind(py);
        let (topic, queue_id) = (topic_and_queue.get_item(0)?, topic_and_queue.get_item(1)?);
        let answer = answers.put.bind(py).call1((&answers.put_ok, appended, topic, queue_id))?;
        if !waits {
            self.counts.borrow_mut(py).put_ended(elapsed.as_secs_f64() * 1000.0);
        }
        Ok(answer)
    }
}

impl IndexFile {
    /// Stores the items of a message, then the header, the count of it last.
    fn put(
        &mut self,
        py: Python<'_>,
        names: &Names,
        make: &Py<PyAny>,
        hashes: &[i32],
        physical_offset: i64,
        stamp: i64,
    ) -> PyResult<()> {
        let (mut begin, _, mut begin_offset, _, slots, count) = self.fields;
        let first_diff = items::time_diff_seconds(stamp, begin);
        if count <= 1 {
            (begin, begin_offset) = (stamp, physical_offset);
        }
        let diff = items::time_diff_seconds(stamp, begin);
        let mut room = room_of(&self.buffer)?;
        let places = Places { next: count, ..self.places };
        let common = Common { physical_offset, first_diff, diff };
        let slots = slots + items::store(&mut room, places, hashes, common);
        let count = count + hashes.len() as i32;
        self.fields = (begin, stamp, begin_offset, physical_offset, slots, count);
        items::store_header(&mut room, self.fields);
        let header = make.bind(py).call1((self.fields,))?;
        self.file.bind(py).setattr(&names.header, &header)?;
        self.header = header.unbind();
        let end = self.places.items + crate::layouts::INDEX_ITEM_BYTES * count as usize;
        mark_dirty(names, &self.mapped, self.dirty.bind(py), 0, end)
    }
}

/// `MappedFile.mark_dirty`, where the file is dirty already without it.
fn mark_dirty(
    names: &Names,
    mapped: &Py<PyAny>,
    dirty: &Bound<'_, PyAny>,
    start: usize,
    end: usize,
) -> PyResult<()> {
    let known: usize = dirty.getattr(&names.end)?.extract()?;
    if known == 0 {
        mapped.bind(dirty.py()).call_method1(&names.mark_dirty, (start, end))?;
    } else if known < end {
        dirty.setattr(&names.end, end)?;
    }
    Ok(())
}

/// `offset_msg_id` of a message's store host.
fn msg_id(fields: &Fields<'_>, physical_offset: i64) -> String {
    let (address, port) = fields.store_host;
    let head = u64::from(u32::from_be_bytes(address)) << 32 | u64::from(port);
    let mut text = String::with_capacity(32);
    for number in [head, physical_offset as u64] {
        for shift in (0..16).rev() {
            text.push(char::from(b"0123456789ABCDEF"[(number >> (4 * shift)) as usize & 15]));
        }
    }
    text
}
