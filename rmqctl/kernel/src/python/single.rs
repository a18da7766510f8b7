//! The Python interface for putting single messages: one call stores a record, its unit and its index
//! items, and updates the Python objects that keep the ends of log, queue and index.
//!
//! These Python objects (log, table of queue offsets, queue, index file) are authoritative. They are
//! updated with each message. This class caches their state. The cache is valid as long as the log's
//! end is the very object that was set last, because then nobody else has appended anything. Also
//! cached are the buffers of their files, in which disk space is already allocated: so no error is
//! possible after the first byte is stored.

use std::collections::HashMap;
use std::time::Instant;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::index::items::{Header, Places};
use crate::layouts::QUEUE_UNIT_BYTES;
use crate::put::maker::{self, Fixed, Maker, Place, Stop};
use crate::put::message::Origin;
use crate::python::append::{room_of, system_clock};
use crate::python::guarded;
use crate::python::liveindex::{IndexFile, LiveHeader};
use crate::python::message::{Reader, Values};
use crate::python::putcounts::PutCounts;
use crate::queue::newunits;
use crate::queue::units::{self, Unit};

/// How many queues are cached at most, each with a file.
const MOST_QUEUES: usize = 96;
/// Like a `Stop`: the message needs an index file that is not known here.
const INDEX: u8 = 7;

/// The Python objects that keep the ends of what is written: the log, the end of what is dispatched,
/// the queue offsets by `(topic, queue id)`, and the writer of queues and index; and whether an index
/// is written.
#[derive(FromPyObject)]
struct Parts {
    log: Py<PyAny>,
    tail: Py<PyAny>,
    table: Py<PyDict>,
    derived: Py<PyAny>,
    has_index: bool,
}

/// A file of the log: the physical offset at which it begins, and the position up to which disk space
/// is allocated.
struct LogFile {
    buffer: PyBuffer<u8>,
    base: i64,
    reserved: usize,
}

/// A queue and its last file: the queue offset of the first unit in it, and the queue offset before
/// which units have disk space.
struct Queue {
    queue: Py<PyAny>,
    key: Py<PyTuple>,
    mapped: Py<PyAny>,
    dirty: Py<PyAny>,
    buffer: PyBuffer<u8>,
    first: i64,
    limit: i64,
    counter: usize,
    /// The queue offset of the next message. It is valid during this era of [`SingleAppender`].
    era: u64,
    next: i64,
    next_object: Py<PyAny>,
}

/// For answers: makes a `PutMessageResult` without fields, and the status that all of them get.
#[derive(FromPyObject)]
struct Answers {
    new: Py<PyAny>,
    put_ok: Py<PyAny>,
}

/// Names of attributes.
struct Names {
    write_offset: Py<PyString>,
    store_timestamp: Py<PyString>,
    stale_end: Py<PyString>,
    done: Py<PyString>,
    wrote: Py<PyString>,
    max_physical_offset: Py<PyString>,
    logics_msg_timestamp: Py<PyString>,
    end: Py<PyString>,
    mark_dirty: Py<PyString>,
    status: Py<PyString>,
    kept: Py<PyString>,
}

/// Puts of single messages into one store.
#[pyclass]
pub struct SingleAppender {
    records: Maker,
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
    /// The log's end and the store time (ms) that were set last, as numbers and as Python objects.
    behind: Option<(i64, Py<PyAny>)>,
    time: (i64, Py<PyAny>),
    /// Counts how often somebody else has, or may have, appended something between two messages.
    era: u64,
}

/// Why a message was not stored: a `Stop` of the append, or an exception.
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
impl SingleAppender {
    /// `clock` gives store times (ms); None: the system's clock.
    #[new]
    #[pyo3(signature = (*, shortest_properties, largest_record, indexes_tags, classes, parts,
        answers, clock, counts))]
    #[expect(clippy::too_many_arguments, reason = "a store's parts")]
    fn new(
        py: Python<'_>,
        shortest_properties: usize,
        largest_record: usize,
        indexes_tags: bool,
        classes: (Py<PyType>, Py<PyType>),
        parts: Parts,
        answers: Answers,
        clock: Option<Py<PyAny>>,
        counts: Py<PutCounts>,
    ) -> PyResult<Self> {
        let usual = Origin::default();
        let fixed = Fixed { usual, shortest_properties, largest_record, indexes_tags };
        let name = |name| PyString::intern(py, name).unbind();
        Ok(SingleAppender {
            records: Maker::new(fixed),
            reader: Reader::new(py, classes)?,
            parts,
            answers,
            names: Names {
                write_offset: name("write_offset"),
                store_timestamp: name("store_timestamp"),
                stale_end: name("stale_end"),
                done: name("done"),
                wrote: name("_wrote"),
                max_physical_offset: name("max_physical_offset"),
                logics_msg_timestamp: name("logics_msg_timestamp"),
                end: name("end"),
                mark_dirty: name("mark_dirty"),
                status: name("status"),
                kept: name("_kept"),
            },
            clock,
            counts,
            file: None,
            queues: HashMap::new(),
            generation: -1,
            index: None,
            key: Vec::new(),
            hashes: Vec::new(),
            behind: None,
            time: (-1, py.None()),
            era: 0,
        })
    }

    /// Sets the last file of the log. It begins at the physical offset `base`, and has disk space up to
    /// the position `reserved`.
    fn set_log(&mut self, buffer: PyBuffer<u8>, base: i64, reserved: usize) {
        self.file = Some(LogFile { buffer, base, reserved });
    }

    /// Adds a queue and its last file, whose first unit has the queue offset `first`. There is disk
    /// space for units before the queue offset `limit`.
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
        let (era, next, next_object) = (0, 0, py.None());
        let held = Queue {
            queue,
            key,
            mapped,
            dirty,
            buffer,
            first,
            limit,
            counter,
            era,
            next,
            next_object,
        };
        self.queues.insert(maker::key(&mut self.key, topic.as_bytes(), queue_id).into(), held);
        Ok(())
    }

    /// Sets the newest index file, whose header has these fields. `limit` is the number of the first
    /// item that cannot be stored here. Returns the header object to which the file must then refer as
    /// its `live`.
    #[expect(clippy::too_many_arguments, reason = "a file, and where what stands in it")]
    fn set_index(
        &mut self,
        py: Python<'_>,
        mapped: Py<PyAny>,
        dirty: Py<PyAny>,
        buffer: PyBuffer<u8>,
        slots: usize,
        slot_count: u32,
        items: usize,
        limit: i32,
        fields: Header,
    ) -> PyResult<Py<LiveHeader>> {
        let places = Places { slots, slot_count, items, next: fields.5 };
        let held = (mapped, dirty, buffer);
        let (index, live) = IndexFile::new(py, held, places, limit, fields)?;
        self.index = Some(index);
        Ok(live)
    }

    /// Stores a message, its unit and its index items. Returns the result of the put, or the number of a
    /// stop, which says what must be set first. The parameters are the values of a
    /// `MessageExtBrokerInner`, which are cheaper to pass than to read from here, and the state that may
    /// have changed: the log's end, whether a dispatch has failed, the generation of the queues, and the
    /// `live` of the newest index file. With `waits` the put is not over with this call.
    #[expect(clippy::too_many_arguments, reason = "a message, and what there is")]
    fn put<'py>(
        &mut self,
        py: Python<'py>,
        topic: &Bound<'py, PyAny>,
        body: &Bound<'py, PyAny>,
        queue_id: &Bound<'py, PyAny>,
        flag: &Bound<'py, PyAny>,
        sys_flag: &Bound<'py, PyAny>,
        properties: &Bound<'py, PyAny>,
        properties_bytes: &Bound<'py, PyAny>,
        born_timestamp: &Bound<'py, PyAny>,
        born_host: &Bound<'py, PyAny>,
        store_host: &Bound<'py, PyAny>,
        reconsume_times: &Bound<'py, PyAny>,
        prepared_transaction_offset: &Bound<'py, PyAny>,
        write_offset: &Bound<'py, PyAny>,
        failed: bool,
        generation: i64,
        live: &Bound<'py, PyAny>,
        waits: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let values = [
            topic,
            body,
            queue_id,
            flag,
            sys_flag,
            properties,
            properties_bytes,
            born_timestamp,
            born_host,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
        ];
        let now = Now { write_offset, failed, generation, live };
        match guarded(|| Ok(self.store(values, now, waits)))? {
            Ok(answer) => Ok(answer),
            Err(Refused::Stopped(stop)) => Ok(stop.into_pyobject(py)?.into_any()),
            Err(Refused::Raised(error)) => Err(error),
        }
    }
}

/// What may have changed since the last message.
struct Now<'a, 'py> {
    write_offset: &'a Bound<'py, PyAny>,
    failed: bool,
    generation: i64,
    live: &'a Bound<'py, PyAny>,
}

impl SingleAppender {
    /// Where the log ends. If somebody else has appended something, a new era begins.
    fn start(&mut self, now: &Now<'_, '_>) -> Result<i64> {
        if now.failed {
            return stopped(Stop::Unsure);
        }
        let known = self.behind.as_ref().filter(|(_, behind)| now.write_offset.is(behind));
        let start = match known {
            Some((start, _)) => *start,
            None => {
                let (py, names) = (now.write_offset.py(), &self.names);
                let start: i64 = now.write_offset.extract()?;
                let (log, tail) = (self.parts.log.bind(py), self.parts.tail.bind(py));
                self.behind = None;
                self.time = (-1, py.None());
                self.era += 1;
                if tail.getattr(&names.done)?.extract::<i64>()? != start
                    || log.getattr(&names.stale_end)?.extract::<i64>()? > start
                {
                    return stopped(Stop::Unsure);
                }
                start
            }
        };
        if now.generation != self.generation {
            self.queues.clear();
            self.generation = now.generation;
        }
        Ok(start)
    }

    fn store<'py>(
        &mut self,
        values: Values<'_, 'py>,
        now: Now<'_, 'py>,
        waits: bool,
    ) -> Result<Bound<'py, PyAny>> {
        let (py, begin) = (now.write_offset.py(), Instant::now());
        let start = self.start(&now)?;
        let names = &self.names;
        let Some(fields) = self.reader.fields(values) else { return stopped(Stop::Unsure) };
        let Some(mut plain) = fields.message() else { return stopped(Stop::Unsure) };

        // Where the unit goes.
        let key = maker::key(&mut self.key, plain.topic.as_bytes(), plain.queue_id);
        let Some(queue) = self.queues.get_mut(key) else { return stopped(Stop::Queue) };
        if queue.era != self.era {
            queue.ask(py, names, self.parts.table.bind(py), start)?;
            queue.era = self.era;
        }
        let queue_offset = queue.next;
        if queue_offset >= queue.limit {
            return stopped(Stop::Queue);
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
        if self.parts.has_index {
            let known = self.index.as_mut().filter(|known| known.has(now.live));
            let Some(known) = known.filter(|known| known.has_room(hashes.len())) else {
                return Err(Refused::Stopped(INDEX));
            };
            if known.end_phy_offset() >= start {
                return stopped(Stop::Unsure);
            }
            // The slots arrive in the cache while record and unit are stored.
            known.fetch(hashes)?;
            index = Some(known).filter(|_| !hashes.is_empty());
        }

        let timestamp = match &self.clock {
            Some(clock) => clock.bind(py).call0()?.extract()?,
            None => system_clock(),
        };
        // This comes first: if it is interrupted (Ctrl-C), nothing is stored yet.
        let at = (queue_offset - queue.first) as usize * QUEUE_UNIT_BYTES;
        let ahead = (queue.limit - queue.first) as usize * QUEUE_UNIT_BYTES;
        mark_dirty(names, &queue.mapped, queue.dirty.bind(py), at, ahead)?;
        if let Some(index) = &index {
            mark_dirty(names, &index.mapped, index.dirty.bind(py), 0, index.reserved())?;
        }
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
        newunits::store_all(&mut units, at, &unit);

        // Log and queue are updated.
        let end = start + size as i64;
        let behind = end.into_pyobject(py).map_err(PyErr::from)?.into_any();
        let (log, tail) = (self.parts.log.bind(py), self.parts.tail.bind(py));
        log.setattr(&names.write_offset, &behind)?;
        let is_new_time = self.time.0 != timestamp;
        if is_new_time {
            let time = timestamp.into_pyobject(py).map_err(PyErr::from)?.into_any();
            log.setattr(&names.store_timestamp, &time)?;
            self.time = (timestamp, time.unbind());
        }
        let next = (queue_offset + 1).into_pyobject(py).map_err(PyErr::from)?.into_any();
        self.parts.table.bind(py).set_item(&queue.key, &next)?;
        let of_queue = queue.queue.bind(py);
        of_queue.setattr(&names.wrote, (queue_offset + 1) * QUEUE_UNIT_BYTES as i64)?;
        of_queue.setattr(&names.max_physical_offset, &behind)?;
        queue.next += 1;
        let of_message = std::mem::replace(&mut queue.next_object, next.unbind());
        if let Some(index) = index {
            index.put(py, hashes, start, timestamp)?;
        }
        tail.setattr(&names.done, &behind)?;
        if is_new_time {
            self.parts.derived.bind(py).setattr(&names.logics_msg_timestamp, &self.time.1)?;
        }
        self.behind = Some((end, behind.unbind()));

        // If a put takes milliseconds, it was waiting for pages of the page cache.
        let elapsed = begin.elapsed();
        let mut counts = self.counts.borrow_mut(py);
        counts.stored(queue.counter, size);
        if !waits {
            counts.put_ended(elapsed.as_secs_f64() * 1000.0);
        }
        let [.., host, _, _] = values;
        let page_cache_rt = elapsed.as_millis() as i64;
        let (key, time) = (&queue.key, &self.time.1);
        let kept = (key, now.write_offset, size, host, time, of_message, page_cache_rt);
        let answer = self.answers.new.bind(py).call0()?;
        answer.setattr(&names.status, &self.answers.put_ok)?;
        answer.setattr(&names.kept, kept)?;
        Ok(answer)
    }
}

impl Queue {
    /// Reads the queue offset of the next message from the table. It is an error if the queue does not
    /// end there, or if its last record ends behind `start`, where the next one begins.
    fn ask(
        &mut self,
        py: Python<'_>,
        names: &Names,
        table: &Bound<'_, PyDict>,
        start: i64,
    ) -> Result<()> {
        let of_queue = self.queue.bind(py);
        let Some(next) = table.get_item(&self.key)? else { return stopped(Stop::Queue) };
        self.next = next.extract()?;
        self.next_object = next.unbind();
        let wrote: i64 = of_queue.getattr(&names.wrote)?.extract()?;
        let before: i64 = of_queue.getattr(&names.max_physical_offset)?.extract()?;
        if wrote != self.next * QUEUE_UNIT_BYTES as i64 || self.next < self.first {
            return stopped(Stop::Queue);
        }
        if before < 0 || before > start {
            return stopped(Stop::Unsure);
        }
        Ok(())
    }
}

/// Calls `MappedFile.mark_dirty` for a range if the file counts as clean. The range may end behind the
/// last data.
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
    }
    Ok(())
}
