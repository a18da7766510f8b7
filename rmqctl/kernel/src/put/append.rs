//! Messages, and lines of NDJSON, as records of a log file: what `BulkAppender`
//! (`rmqctl/engine/write/bulk.py`) does with messages, and with those that `MessageMaker` makes of
//! lines, byte for byte; and what dispatch makes of those records.
//!
//! One is taken when everything about it is usual, and nothing is left to ask. At any other one it
//! stops, and says why: the answers to those are Python's.

use std::collections::HashMap;
use std::convert::Infallible;
use std::mem;

use memchr::memchr;

use crate::bytes::mapped::Room;
use crate::layouts::{
    NAME_VALUE_SEPARATOR, PREFIXES, PROPERTY_DELAY_TIME_LEVEL, PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_KEYS, PROPERTY_SEPARATOR, PROPERTY_TAGS, Prefix, VERSIONS,
};
use crate::put::behind::{Behind, Work, store_behind};
use crate::put::derived::{self, Keys};
use crate::put::jsonline::{self, Line};
use crate::put::storing::{Made, Row, Storing, Total};
use crate::record::hashmap;
use crate::record::properties::{self, Properties};

/// Properties of a line that is taken, at most: their order takes the square of it.
const MOST_PROPERTIES: usize = 64;
const PREFIX: Prefix = PREFIXES[0];

/// Queues that are known without a hash, at most.
const RECENT: usize = 64;

/// Why no further line was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// There is none.
    Lines = 0,
    /// The next one takes a closer look.
    Unsure = 1,
    /// Its queue is not known, or has no disk space for its unit.
    Queue = 2,
    /// It needs more room than there is.
    Room = 3,
    /// As much was stored as was asked for.
    Full = 4,
    /// It names another store host than those before it.
    Host = 5,
    /// What gives the messages has failed.
    Failed = 6,
}

/// What all messages have in common, and what a store takes.
#[derive(Debug, Clone, Copy)]
pub struct Fixed {
    pub born_address: [u8; 4],
    pub born_port: i32,
    pub store_address: [u8; 4],
    pub store_port: i32,
    /// Bytes of properties, at least, and of a record, at most.
    pub shortest_properties: usize,
    pub largest_record: usize,
}

/// A queue that messages may go to: the offset of its next one, and the one before which its units
/// have disk space.
#[derive(Debug)]
struct Queue {
    /// As `Maker::numbers` has it.
    name: Box<[u8]>,
    next: i64,
    limit: i64,
}

/// Where records go, all in places of one file.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub position: usize,
    /// No record goes beyond.
    pub end: usize,
    pub file_from_offset: i64,
    /// So many records are enough since they were taken, and one that ends here or behind it is the
    /// last.
    pub most: usize,
    pub enough: usize,
}

/// The times (ms) of messages that say none, and of their storing.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub born: i64,
    pub stored: i64,
}

/// How far it came: the place of the next record and of the next line, how many lines that were,
/// each of one message, and why no further one was taken.
#[derive(Debug, PartialEq, Eq)]
pub struct Taken {
    pub position: usize,
    pub at: usize,
    pub lines: usize,
    pub stop: Stop,
}

/// Who is asked, while others store, for what the next message needs; without an answer it is not
/// taken.
pub trait Asked {
    type Error;

    /// The offset of the next message of a queue, which is `next` where the queue was admitted, and
    /// the one before which its units have disk space.
    fn queue(
        &mut self,
        topic: &str,
        queue_id: i32,
        next: Option<i64>,
    ) -> Result<Option<(i64, i64)>, Self::Error>;

    /// The place before which records may end, where the next one begins and ends at these.
    fn room(&mut self, position: usize, needed: usize) -> Result<Option<usize>, Self::Error>;
}

/// Nobody is asked.
impl Asked for () {
    type Error = Infallible;

    fn queue(&mut self, _: &str, _: i32, _: Option<i64>) -> Result<Option<(i64, i64)>, Infallible> {
        Ok(None)
    }

    fn room(&mut self, _: usize, _: usize) -> Result<Option<usize>, Infallible> {
        Ok(None)
    }
}

/// Appends to one store. Queues are admitted for one bulk, and forgotten after it.
pub struct Appender {
    pub maker: Maker,
    pub storing: Storing,
}

/// Makes the records of one store, and says where they go.
pub struct Maker {
    largest_record: usize,
    shortest_properties: usize,
    /// A prefix with what all records have in common.
    template: [u8; PREFIX.size],
    numbers: HashMap<Box<[u8]>, u32>,
    queues: Vec<Queue>,
    /// Numbers of queues that came last, by a few bytes of their names: to compare one takes less
    /// time than a hash that no choice of names makes slow.
    recent: [u32; RECENT],
    /// The queue of the message at which it stopped, as `numbers` has it.
    pub wanted: Vec<u8>,
    /// The record that was made last by itself ([`Self::encode`]).
    pub record: Vec<u8>,
    /// How many were made for queues that were admitted, since what was stored of them was taken.
    made: usize,
}

impl Maker {
    pub fn new(fixed: Fixed) -> Self {
        let mut template = [0; PREFIX.size];
        put(&mut template, PREFIX.magic_code, VERSIONS[0].magic_code.to_be_bytes());
        put(&mut template, PREFIX.born_address, fixed.born_address);
        put(&mut template, PREFIX.born_port, fixed.born_port.to_be_bytes());
        put(&mut template, PREFIX.store_address, fixed.store_address);
        put(&mut template, PREFIX.store_port, fixed.store_port.to_be_bytes());
        Maker {
            largest_record: fixed.largest_record,
            shortest_properties: fixed.shortest_properties,
            template,
            numbers: HashMap::new(),
            queues: Vec::new(),
            recent: [0; RECENT],
            wanted: Vec::new(),
            record: Vec::new(),
            made: 0,
        }
    }

    /// Lets messages into a queue, from its queue offset `next` up to `limit`; its number.
    fn admit(&mut self, topic: &[u8], queue_id: i32, next: i64, limit: i64) -> u32 {
        let fresh = self.queues.len() as u32;
        let name: Box<[u8]> = key(&mut Vec::new(), topic, queue_id).into();
        let number = *self.numbers.entry(name.clone()).or_insert(fresh);
        let queue = Queue { name, next, limit };
        if number == fresh {
            self.queues.push(queue);
        } else {
            self.queues[number as usize] = queue;
        }
        number
    }

    /// The queue offset of the next message of the queue at which it stopped; None: it was not
    /// admitted.
    fn next_of_wanted(&self) -> Option<i64> {
        let number = self.numbers.get(&*self.wanted)?;
        Some(self.queues[*number as usize].next)
    }

    /// Asks for what the message needs at which it stopped, and for which there would be this
    /// place; whether that message may be taken now.
    pub fn ask<A: Asked>(
        &mut self,
        asked: &mut A,
        (stop, needed): (Stop, usize),
        place: &mut Place,
        position: usize,
        behind: &mut Behind<'_, '_>,
    ) -> Result<bool, A::Error> {
        match stop {
            Stop::Queue => {
                let next = self.next_of_wanted();
                let Some((queue_id, name)) = self.wanted.split_first_chunk() else {
                    return Ok(false);
                };
                let (queue_id, name) = (i32::from_be_bytes(*queue_id), name.to_vec());
                let Ok(topic) = std::str::from_utf8(&name) else { return Ok(false) };
                let Some((next, limit)) = asked.queue(topic, queue_id, next)? else {
                    return Ok(false);
                };
                let number = self.admit(&name, queue_id, next, limit);
                behind.admit(number, &name);
                Ok(next < limit)
            }
            Stop::Room => {
                let end = asked.room(position, needed)?.unwrap_or(place.end);
                place.end = end.max(place.end);
                Ok(needed <= end)
            }
            _ => Ok(false),
        }
    }

    /// Whether as much was stored as was asked for.
    pub fn is_full(&self, place: Place, position: usize) -> bool {
        self.made >= place.most || position >= place.enough
    }

    /// Makes the record of a message for `position`, behind what is in `records`; what is known of it,
    /// or why there is none. `clock` is asked for its store time (ms) when nothing else can go wrong
    /// any more.
    pub fn make<E>(
        &mut self,
        records: &mut Vec<u8>,
        place: Place,
        position: usize,
        message: &mut Message<'_>,
        clock: impl FnOnce() -> Result<i64, E>,
    ) -> Result<Made, Refused<E>> {
        let key = key(&mut self.wanted, message.topic.as_bytes(), message.queue_id);
        let recent = &mut self.recent[recent_of(key)];
        let known = self.queues.get(*recent as usize).is_some_and(|queue| *queue.name == *key);
        if !known {
            *recent = *self.numbers.get(key).ok_or(Refused::Stopped(Stop::Queue, 0))?;
        }
        let number = *recent;
        let queue = &self.queues[number as usize];
        let queue_offset = queue.next;
        if queue_offset >= queue.limit {
            return Err(Refused::Stopped(Stop::Queue, 0));
        }
        let before = records.len();
        let laid = self.lay(records, place, position, message, queue_offset);
        let made = laid
            .map_err(|(stop, needed)| Refused::Stopped(stop, needed))
            .and_then(|laid| Ok((laid, clock().map_err(Refused::NoTime)?)));
        if made.is_err() {
            records.truncate(before);
        }
        let ((size, start, found), store_timestamp) = made?;
        self.queues[number as usize].next += 1;
        self.made += 1;
        let row = Row { queue: number, position, size, queue_offset, store_timestamp };
        Ok(Made { row, start, found })
    }

    /// Makes the record of a message for `position` and with this queue offset, whatever queues there
    /// are, and without what [`seal`] adds; its size and properties, or why there is none, and what it
    /// needs where that is room.
    pub fn encode(
        &mut self,
        place: Place,
        position: usize,
        message: &mut Message<'_>,
        queue_offset: i64,
    ) -> Result<(usize, Properties), (Stop, usize)> {
        let mut record = mem::take(&mut self.record);
        record.clear();
        let laid = self.lay(&mut record, place, position, message, queue_offset);
        self.record = record;
        let (size, start, found) = laid?;
        Ok((size, found.unwrap_or_else(|| properties::read(&self.record, start, size))))
    }

    /// The same, behind what is in `records`, where an error may leave a part: the record's size, where
    /// its properties begin, and where they were read, what they are.
    fn lay(
        &self,
        records: &mut Vec<u8>,
        place: Place,
        position: usize,
        message: &mut Message<'_>,
        queue_offset: i64,
    ) -> Result<(usize, usize, Option<Properties>), (Stop, usize)> {
        let (topic, body, before) = (message.topic.as_bytes(), message.body, records.len());
        records.extend_from_slice(&self.template);
        if let Some(origin) = &message.origin {
            origin.put(&mut records[before..]);
        }
        records.extend_from_slice(body);
        let longest = VERSIONS[0].topic_length.limit;
        let length = u8::try_from(topic.len()).ok().filter(|_| topic.len() <= longest);
        records.push(length.ok_or(UNSURE)?);
        records.extend_from_slice(topic);
        let start = records.len() - before;
        records.extend_from_slice(&[0; 2]);
        match &mut message.properties {
            Texts::Stored(stored) => records.extend_from_slice(stored),
            Texts::Entries(entries) => extend_properties(records, entries).ok_or(UNSURE)?,
        }
        let record = &mut records[before..];
        let (size, length) = (record.len(), record.len() - start - 2);
        let longest = VERSIONS[0].properties_length.limit;
        if length < self.shortest_properties || length > longest || size > self.largest_record {
            return Err(UNSURE);
        }
        let found = match &message.properties {
            // They are plain, or they were not taken.
            Texts::Entries(_) => None,
            Texts::Stored(_) => {
                Some(derived::plain_properties(record, start + 2, size).ok_or(UNSURE)?)
            }
        };
        if size > place.end.saturating_sub(position) {
            return Err((Stop::Room, position + size));
        }
        put(record, start, (length as i16).to_be_bytes());
        let offset = place.file_from_offset + position as i64;
        put(record, PREFIX.total_size, (size as i32).to_be_bytes());
        put(record, PREFIX.queue_id, message.queue_id.to_be_bytes());
        put(record, PREFIX.queue_offset, queue_offset.to_be_bytes());
        put(record, PREFIX.physical_offset, offset.to_be_bytes());
        put(record, PREFIX.body_length, (body.len() as i32).to_be_bytes());
        Ok((size, start + 2, found))
    }

    /// Stores the record that was made for `position` as one of this store time (ms).
    pub fn store(&mut self, room: &mut Room<'_>, position: usize, timestamp: i64) {
        seal(&mut self.record, timestamp);
        room.store(position, &self.record);
    }

    /// What dispatch makes of the record that was stored last: the code of its tags, and the hashes
    /// of its keys in the order of their items.
    pub fn derived(&self, topic: &str, found: &Properties) -> (i64, Vec<i32>) {
        let mut hashes = Vec::new();
        (self.derive(topic, found, &mut hashes), hashes)
    }

    /// The same, the hashes in `hashes` instead of what is there.
    pub fn derive(&self, topic: &str, found: &Properties, hashes: &mut Vec<i32>) -> i64 {
        hashes.clear();
        let prefix = derived::key_prefix(topic.as_bytes());
        derived::add_hashes(&self.record, found, prefix, hashes);
        derived::tags_code(&self.record, found)
    }
}

impl Appender {
    pub fn new(fixed: Fixed) -> Self {
        Appender { maker: Maker::new(fixed), storing: Storing::default() }
    }

    /// Lets messages into a queue, from its queue offset `next` up to `limit`; its number.
    pub fn admit(&mut self, topic: &[u8], queue_id: i32, next: i64, limit: i64) -> u32 {
        let number = self.maker.admit(topic, queue_id, next, limit);
        self.storing.admit(number, derived::key_prefix(topic));
        number
    }

    /// Tells of what was stored since this was asked last: rows, what went to which queues, and keys.
    pub fn taken<T>(&mut self, told: impl FnOnce(&[Row], &[(u32, Total)], &Keys) -> T) -> T {
        self.maker.made = 0;
        self.storing.taken(told)
    }

    /// Forgets all queues.
    pub fn forget(&mut self) {
        self.maker.numbers.clear();
        self.maker.queues.clear();
        self.storing.forget();
    }

    /// Stores the messages of `lines` from the place `at` on, until one is not to be taken; the first
    /// `alone` bytes by this thread. What it came to before an error is told, too.
    pub fn append<A: Asked>(
        &mut self,
        room: Room<'_>,
        alone: usize,
        place: Place,
        (lines, at): (&[u8], usize),
        times: Times,
        asked: &mut A,
    ) -> (Taken, Result<(), A::Error>) {
        let Appender { maker, storing } = self;
        let work = Work::new(storing, room, place.file_from_offset, None);
        let mut taken = Taken { position: place.position, at, lines: 0, stop: Stop::Lines };
        let done = store_behind(work, alone, |behind| {
            maker.take_lines(place, lines, &mut taken, times, asked, behind)
        });
        (taken, done)
    }
}

impl Maker {
    /// Makes the records of the messages of `lines` from the place on that `taken` says.
    fn take_lines<A: Asked>(
        &mut self,
        mut place: Place,
        lines: &[u8],
        taken: &mut Taken,
        times: Times,
        asked: &mut A,
        behind: &mut Behind<'_, '_>,
    ) -> Result<(), A::Error> {
        put(&mut self.template, PREFIX.born_timestamp, times.born.to_be_bytes());
        while taken.at < lines.len() {
            let rest = &lines[taken.at..];
            let line = &rest[..memchr(b'\n', rest).unwrap_or(rest.len())];
            if self.is_full(place, taken.position) {
                taken.stop = Stop::Full;
                return Ok(());
            }
            let records = behind.records();
            match self.take_line(records, place, taken.position, line, times.stored) {
                Ok(made) => {
                    behind.add(made);
                    taken.position += made.row.size;
                }
                Err(stop) => {
                    taken.stop = stop.0;
                    if !self.ask(asked, stop, &mut place, taken.position, behind)? {
                        return Ok(());
                    }
                    continue;
                }
            }
            taken.at += line.len() + 1;
            taken.lines += 1;
        }
        taken.stop = Stop::Lines;
        Ok(())
    }

    /// Makes the record of the message of one line for `position`, behind what is in `records`, or
    /// says why not.
    fn take_line(
        &mut self,
        records: &mut Vec<u8>,
        place: Place,
        position: usize,
        line: &[u8],
        timestamp: i64,
    ) -> Result<Made, (Stop, usize)> {
        let line = jsonline::read(line).ok_or(UNSURE)?;
        let entries = entries_of(&line).ok_or(UNSURE)?;
        let queue_id = i32::try_from(line.queue_id).map_err(|_| UNSURE)?;
        let (topic, body) = (&*line.topic, line.body.as_bytes());
        let properties = Texts::Entries(entries);
        let mut message = Message { topic, queue_id, body, properties, origin: None };
        let made = self.make(records, place, position, &mut message, || Ok(timestamp));
        made.map_err(|stop| match stop {
            Refused::Stopped(stop, needed) => (stop, needed),
            Refused::NoTime(()) => UNSURE,
        })
    }
}

/// Adds to a record what is known last of it: its store time (ms), and the checksum of its body.
#[inline]
pub fn seal(record: &mut [u8], timestamp: i64) {
    let mut length = [0; 4];
    length.copy_from_slice(&record[PREFIX.body_length..][..4]);
    let body = &record[PREFIX.size..][..i32::from_be_bytes(length) as usize];
    let sum = crc32fast::hash(body) & 0x7fff_ffff;
    put(record, PREFIX.body_crc, sum.to_be_bytes());
    put(record, PREFIX.store_timestamp, timestamp.to_be_bytes());
}

/// Why a message was not stored.
pub enum Refused<E> {
    /// It is not to be taken; and what it needs where that is room.
    Stopped(Stop, usize),
    /// The clock has failed.
    NoTime(E),
}

const UNSURE: (Stop, usize) = (Stop::Unsure, 0);

/// A message to be stored; without an origin it has that of all.
pub struct Message<'a> {
    pub topic: &'a str,
    pub queue_id: i32,
    pub body: &'a [u8],
    pub properties: Texts<'a>,
    pub origin: Option<Origin>,
}

/// Properties: in the order in which they were set, or as they are to be stored.
pub enum Texts<'a> {
    Entries(Vec<Entry<'a>>),
    Stored(&'a [u8]),
}

/// Where and when a message was born, and what its producer and broker say of it.
pub struct Origin {
    pub flag: i32,
    pub born_timestamp: i64,
    pub born_host: ([u8; 4], u16),
    pub store_host: ([u8; 4], u16),
    pub reconsume_times: i32,
    pub prepared_transaction_offset: i64,
}

impl Origin {
    fn put(&self, record: &mut [u8]) {
        let ((born, born_port), (store, store_port)) = (self.born_host, self.store_host);
        put(record, PREFIX.flag, self.flag.to_be_bytes());
        put(record, PREFIX.born_timestamp, self.born_timestamp.to_be_bytes());
        put(record, PREFIX.born_address, born);
        put(record, PREFIX.born_port, i32::from(born_port).to_be_bytes());
        put(record, PREFIX.store_address, store);
        put(record, PREFIX.store_port, i32::from(store_port).to_be_bytes());
        put(record, PREFIX.reconsume_times, self.reconsume_times.to_be_bytes());
        let offset = self.prepared_transaction_offset;
        put(record, PREFIX.prepared_transaction_offset, offset.to_be_bytes());
    }
}

/// A property, with room for the hash of its name.
pub type Entry<'a> = (u32, (&'a str, &'a str));

/// Where a queue stands among those that came last.
#[inline]
fn recent_of(name: &[u8]) -> usize {
    let of = |at: usize| name.get(at).copied().map_or(0, usize::from);
    (of(3) * 5 + of(name.len() - 1) + name.len() * 3) % RECENT
}

/// The name of a queue, in `room`.
pub fn key<'a>(room: &'a mut Vec<u8>, topic: &[u8], queue_id: i32) -> &'a [u8] {
    room.clear();
    room.extend_from_slice(&queue_id.to_be_bytes());
    room.extend_from_slice(topic);
    room
}

/// The properties of a line in the order in which they are set; None where one excludes another.
fn entries_of<'a>(line: &'a Line<'_>) -> Option<Vec<Entry<'a>>> {
    let given = line.properties.0.iter();
    let mut entries: Vec<Entry<'a>> =
        given.map(|(name, value)| (0, (&*name.0, &*value.0))).collect();
    let (keys, tags) = (&*line.keys, &*line.tags);
    if keys.is_empty() && tags.is_empty() {
        return Some(entries);
    }
    if has(&entries, PROPERTY_KEYS) || has(&entries, PROPERTY_TAGS) {
        return None;
    }
    for (name, value) in [(PROPERTY_KEYS, keys), (PROPERTY_TAGS, tags)] {
        if !value.is_empty() {
            entries.push((0, (std::str::from_utf8(name).ok()?, value)));
        }
    }
    Some(entries)
}

fn has(entries: &[Entry<'_>], name: &[u8]) -> bool {
    entries.iter().any(|(_, (own, _))| own.as_bytes() == name)
}

/// Adds properties as they are stored (`PropertyEncoder`); None where they take a closer look: one
/// does more than to be stored, or could not be read back.
fn extend_properties(record: &mut Vec<u8>, entries: &mut [Entry<'_>]) -> Option<()> {
    if has(entries, PROPERTY_DELAY_TIME_LEVEL) || has(entries, PROPERTY_INNER_MULTI_DISPATCH) {
        return None;
    }
    let many = entries.len() > MOST_PROPERTIES;
    if many || !hashmap::sort(entries, |(name, _)| name.as_bytes()) {
        return None;
    }
    for (number, (_, (name, value))) in entries.iter().enumerate() {
        if name.is_empty() || is_marked(name) || is_marked(value) {
            return None;
        }
        if number > 0 {
            record.push(PROPERTY_SEPARATOR);
        }
        record.extend_from_slice(name.as_bytes());
        record.push(NAME_VALUE_SEPARATOR);
        record.extend_from_slice(value.as_bytes());
    }
    Some(())
}

/// Whether a text holds a separator or a NUL.
fn is_marked(text: &str) -> bool {
    text.bytes().any(|byte| byte <= PROPERTY_SEPARATOR)
}

#[inline]
fn put<const N: usize>(record: &mut [u8], at: usize, bytes: [u8; N]) {
    record[at..at + N].copy_from_slice(&bytes);
}
