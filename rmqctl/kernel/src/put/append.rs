//! Encodes messages, and lines of NDJSON, as records of a log file, and derives what dispatch makes of
//! them. The bytes are those that `BulkAppender` (`rmqctl/engine/write/bulk.py`) writes for the same
//! messages, or for those that `MessageMaker` makes of the lines.
//!
//! Only messages with nothing unusual are taken. At any other message it stops and says why: Python
//! then deals with that message.

use std::collections::HashMap;
use std::convert::Infallible;
use std::mem;

use memchr::memchr;

use crate::bytes::mapped::Room;
use crate::layouts::{
    COMPRESSED_FLAG, COMPRESSION_TYPE_MASK, MULTI_TAGS_FLAG, NAME_VALUE_SEPARATOR, PREFIXES,
    PROPERTY_CRC32, PROPERTY_DELAY_TIME_LEVEL, PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_KEYS,
    PROPERTY_SEPARATOR, PROPERTY_TAGS, Prefix, VERSIONS,
};
use crate::put::behind::{Behind, Work, store_behind};
use crate::put::derived::{self, Keys};
use crate::put::jsonline::{self, Defaults, Read};
use crate::put::storing::{Made, Row, Storing, Total};
use crate::record::hashmap;
use crate::record::properties::{self, Properties};

/// The most properties of a message that is taken: sorting them takes the square of their number.
const MOST_PROPERTIES: usize = 64;
const PREFIX: Prefix = PREFIXES[0];
/// Bits of the sys flag that change nothing but the record's field. Others make a message of a
/// transaction, or say of which kind its hosts are.
pub const TAKEN_FLAGS: i32 = COMPRESSED_FLAG | MULTI_TAGS_FLAG | COMPRESSION_TYPE_MASK;

/// Entries of the table that finds queues without a hash map.
const RECENT: usize = 64;

/// Why the next line, or message, was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// There is none.
    Lines = 0,
    /// It is unusual: Python must look at it.
    Unsure = 1,
    /// Its queue was not admitted, or has no disk space for its unit.
    Queue = 2,
    /// Its record needs more room than there is.
    Room = 3,
    /// As much was stored as was asked for.
    Full = 4,
    /// It has another store host than the messages before it, since `Appender::taken`.
    Host = 5,
    /// The source of the messages has raised an error.
    Failed = 6,
}

/// An IPv4 address and a port.
pub type Host = ([u8; 4], u16);

/// What lines have in common that say nothing else, and the limits of the store.
#[derive(Debug, Clone, Copy)]
pub struct Fixed {
    /// Without a born time: [`Times`] has that. Where each message has an origin nobody reads it.
    pub usual: Origin,
    /// The fewest bytes of a message's properties, and the most of a record.
    pub shortest_properties: usize,
    pub largest_record: usize,
}

/// A queue that messages may go to: the queue offset of its next message, and the queue offset before
/// which its units have disk space.
#[derive(Debug)]
struct Queue {
    /// The queue's key in `Maker::numbers`.
    name: Box<[u8]>,
    next: i64,
    limit: i64,
}

/// Where records go: positions in one file.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub position: usize,
    /// No record may end behind this position.
    pub end: usize,
    pub file_from_offset: i64,
    /// It stops when so many records were made since `Appender::taken`.
    pub most: usize,
    /// It stops after a record that ends at this position, or behind it.
    pub enough: usize,
}

/// Lines of NDJSON, of which the first one to be taken begins at the position `at`.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    pub lines: &'a [u8],
    pub at: usize,
    pub defaults: &'a Defaults,
}

/// The born time (ms) of messages that have none, and the store time (ms).
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub born: i64,
    pub stored: i64,
}

/// How far it came: the position of the next record in the file, the position of the next line, how
/// many lines (of one message each) were taken, and why the next one was not.
#[derive(Debug, PartialEq, Eq)]
pub struct Taken {
    pub position: usize,
    pub at: usize,
    pub lines: usize,
    pub stop: Stop,
}

/// Is asked for what the next message needs. Another thread may store records meanwhile. If the answer
/// is None or false, the message is not taken.
pub trait Asked {
    type Error;

    /// The queue offset of the next message of a queue, and the queue offset before which its units
    /// have disk space. `next` is the former, if the queue was admitted before.
    fn queue(
        &mut self,
        topic: &str,
        queue_id: i32,
        next: Option<i64>,
    ) -> Result<Option<(i64, i64)>, Self::Error>;

    /// The position up to which records may go. The next one begins at `position` and ends at
    /// `needed`.
    fn room(&mut self, position: usize, needed: usize) -> Result<Option<usize>, Self::Error>;

    /// Whether a body can be decompressed as its sys flag says.
    fn is_compressed(&mut self, body: &[u8], sys_flag: i32) -> Result<bool, Self::Error>;
}

/// Grants nothing.
impl Asked for () {
    type Error = Infallible;

    fn queue(&mut self, _: &str, _: i32, _: Option<i64>) -> Result<Option<(i64, i64)>, Infallible> {
        Ok(None)
    }

    fn room(&mut self, _: usize, _: usize) -> Result<Option<usize>, Infallible> {
        Ok(None)
    }

    fn is_compressed(&mut self, _: &[u8], _: i32) -> Result<bool, Infallible> {
        Ok(false)
    }
}

/// Appends to one store. Queues are admitted for one bulk.
pub struct Appender {
    pub maker: Maker,
    pub storing: Storing,
}

/// Encodes the records of one store, and gives them their queue offsets.
pub struct Maker {
    largest_record: usize,
    shortest_properties: usize,
    /// A record's fixed fields, with the values that most records have in common.
    template: [u8; PREFIX.size],
    /// The origin of a line that says nothing else.
    usual: Origin,
    /// The store host of the records that were made since `Appender::taken`.
    pub host: Option<Host>,
    numbers: HashMap<Box<[u8]>, u32>,
    queues: Vec<Queue>,
    /// The numbers of the queues used last, by a cheap hash of their names. It is verified by a
    /// comparison, which takes less time than the collision-resistant hash of `numbers`.
    recent: [u32; RECENT],
    /// The key in `numbers` of the last message's queue; that at which it stopped, if it did.
    pub wanted: Vec<u8>,
    /// The record that [`Self::encode`] made last.
    pub record: Vec<u8>,
    /// How many records were made since `Appender::taken`.
    made: usize,
}

impl Maker {
    pub fn new(fixed: Fixed) -> Self {
        let mut template = [0; PREFIX.size];
        put(&mut template, PREFIX.magic_code, VERSIONS[0].magic_code.to_be_bytes());
        Maker {
            usual: fixed.usual,
            host: None,
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

    /// Lets messages go to a queue, from its queue offset `next` up to `limit`. Returns its number.
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

    /// The queue offset of the next message of the queue at which it stopped; None if that was not
    /// admitted.
    fn next_of_wanted(&self) -> Option<i64> {
        let number = self.numbers.get(&*self.wanted)?;
        Some(self.queues[*number as usize].next)
    }

    /// Asks for what the message needs at which it stopped: a queue, or room for a record from
    /// `position` up to `needed`. Returns whether the message may be taken now.
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

    /// Appends the record of a message, which goes to `position` of the file, to `records`. Returns
    /// what is known of it, or why it was not made. `clock` gives its store time (ms). It is called
    /// last, when nothing else can fail.
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
            .and_then(|laid| Ok((laid, clock().map_err(Refused::Failed)?)));
        if made.is_err() {
            records.truncate(before);
        }
        let ((size, start, found), store_timestamp) = made?;
        self.queues[number as usize].next += 1;
        self.made += 1;
        let row = Row { queue: number, position, size, queue_offset, store_timestamp };
        Ok(Made { row, start, found })
    }

    /// Makes the record of a message for `position`, with this queue offset, in `self.record`. No
    /// queue needs to be admitted, and what [`seal`] adds is missing. Returns its size and properties;
    /// or why it was not made, and for `Stop::Room` the position up to which it needs room.
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

    /// Does the same, but appends the record to `records`. An error may leave a part of it there.
    /// Returns the record's size, where its properties begin in it, and the properties, if they were
    /// parsed.
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
            // These were checked when they were encoded.
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

    /// Stores the record that `encode` made for `position`, with this store time (ms).
    pub fn store(&mut self, room: &mut Room<'_>, position: usize, timestamp: i64) {
        seal(&mut self.record, timestamp);
        room.store(position, &self.record);
    }

    /// What dispatch makes of the record that `encode` made: the code of its tags, and the hashes of
    /// its keys in the order of their index items.
    pub fn derived(&self, topic: &str, found: &Properties) -> (i64, Vec<i32>) {
        let mut hashes = Vec::new();
        (self.derive(topic, found, &mut hashes), hashes)
    }

    /// Does the same, with the hashes in `hashes`, whose old content is dropped.
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

    /// Lets messages go to a queue, from its queue offset `next` up to `limit`. Returns its number.
    pub fn admit(&mut self, topic: &[u8], queue_id: i32, next: i64, limit: i64) -> u32 {
        let number = self.maker.admit(topic, queue_id, next, limit);
        self.storing.admit(number, derived::key_prefix(topic));
        number
    }

    /// Calls `told` with what was stored since the last call: rows, totals of queues, and keys.
    pub fn taken<T>(&mut self, told: impl FnOnce(&[Row], &[(u32, Total)], &Keys) -> T) -> T {
        self.maker.made = 0;
        self.maker.host = None;
        self.storing.taken(told)
    }

    /// Forgets all queues.
    pub fn forget(&mut self) {
        self.maker.numbers.clear();
        self.maker.queues.clear();
        self.storing.forget();
    }

    /// Stores the messages of lines, up to the first that is not taken. This thread stores the first
    /// `alone` bytes itself, and a second one the rest. The first part of the result says how far it
    /// came, also after an error.
    pub fn append<A: Asked>(
        &mut self,
        room: Room<'_>,
        alone: usize,
        place: Place,
        input: Input<'_>,
        times: Times,
        asked: &mut A,
    ) -> (Taken, Result<(), A::Error>) {
        let Appender { maker, storing } = self;
        let work = Work::new(storing, room, place.file_from_offset, None);
        let (position, at) = (place.position, input.at);
        let mut taken = Taken { position, at, lines: 0, stop: Stop::Lines };
        let done = store_behind(work, alone, |behind| {
            maker.take_lines(place, input, &mut taken, times, asked, behind)
        });
        (taken, done)
    }
}

impl Maker {
    /// Makes the records of the messages of `lines`, from the position in `taken` on.
    fn take_lines<A: Asked>(
        &mut self,
        mut place: Place,
        Input { lines, defaults, .. }: Input<'_>,
        taken: &mut Taken,
        times: Times,
        asked: &mut A,
        behind: &mut Behind<'_, '_>,
    ) -> Result<(), A::Error> {
        self.usual.born_timestamp = times.born;
        self.usual.put(&mut self.template);
        while taken.at < lines.len() {
            let rest = &lines[taken.at..];
            let line = &rest[..memchr(b'\n', rest).unwrap_or(rest.len())];
            if self.is_full(place, taken.position) {
                taken.stop = Stop::Full;
                return Ok(());
            }
            let records = behind.records();
            let read = jsonline::read(line, defaults, &self.usual);
            match self.take_line(records, place, taken.position, read, times.stored, asked) {
                Ok(made) => {
                    behind.add(made);
                    taken.position += made.row.size;
                }
                Err(Refused::Stopped(stop, needed)) => {
                    taken.stop = stop;
                    if !self.ask(asked, (stop, needed), &mut place, taken.position, behind)? {
                        return Ok(());
                    }
                    continue;
                }
                Err(Refused::Failed(error)) => return Err(error),
            }
            taken.at += line.len() + 1;
            taken.lines += 1;
        }
        taken.stop = Stop::Lines;
        Ok(())
    }

    /// Appends the record of the message of one line, which goes to `position`, to `records`, or
    /// returns why not.
    fn take_line<A: Asked>(
        &mut self,
        records: &mut Vec<u8>,
        place: Place,
        position: usize,
        read: Option<Read<'_>>,
        timestamp: i64,
        asked: &mut A,
    ) -> Result<Made, Refused<A::Error>> {
        let read = read.ok_or(Refused::UNSURE)?;
        let entries = entries_of(&read).ok_or(Refused::UNSURE)?;
        let topic = read.topic().ok_or(Refused::UNSURE)?;
        let queue_id = read.queue_id().ok_or(Refused::UNSURE)?;
        let (origin, body) = (read.origin, read.body());
        self.expect_host(origin.unwrap_or(self.usual).store_host)?;
        if let Some(sys_flag) = read.compression() {
            if !asked.is_compressed(body, sys_flag).map_err(Refused::Failed)? {
                return Err(Refused::UNSURE);
            }
        }
        let properties = Texts::Entries(entries);
        let mut message = Message { topic, queue_id, body, properties, origin };
        self.make(records, place, position, &mut message, || Ok(timestamp))
    }

    /// Refuses a message if it has another store host than those before it, since `Appender::taken`.
    pub fn expect_host<E>(&mut self, host: Host) -> Result<(), Refused<E>> {
        let known = *self.host.get_or_insert(host);
        if known == host { Ok(()) } else { Err(Refused::Stopped(Stop::Host, 0)) }
    }
}

/// Adds to a record what is known last: its store time (ms) and the CRC of its body.
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
    /// It is not taken. For `Stop::Room` the number is the position up to which it needs room.
    Stopped(Stop, usize),
    /// The clock, or something else that was asked, has raised an error.
    Failed(E),
}

impl<E> Refused<E> {
    const UNSURE: Self = Refused::Stopped(Stop::Unsure, 0);
}

const UNSURE: (Stop, usize) = (Stop::Unsure, 0);

/// A message to be stored. Without an origin it has the usual one.
pub struct Message<'a> {
    pub topic: &'a str,
    pub queue_id: i32,
    pub body: &'a [u8],
    pub properties: Texts<'a>,
    pub origin: Option<Origin>,
}

/// Properties: in the order in which they were set, or as they are stored.
pub enum Texts<'a> {
    Entries(Vec<Entry<'a>>),
    Stored(&'a [u8]),
}

/// The fields of a message that come from its producer and its broker.
#[derive(Debug, Clone, Copy, Default)]
pub struct Origin {
    pub flag: i32,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub born_host: Host,
    pub store_host: Host,
    pub reconsume_times: i32,
    pub prepared_transaction_offset: i64,
}

impl Origin {
    /// That of a message of which only the hosts are known.
    pub fn of_hosts(born_host: Host, store_host: Host) -> Self {
        Origin { born_host, store_host, ..Default::default() }
    }

    fn put(&self, record: &mut [u8]) {
        let ((born, born_port), (store, store_port)) = (self.born_host, self.store_host);
        put(record, PREFIX.flag, self.flag.to_be_bytes());
        put(record, PREFIX.sys_flag, self.sys_flag.to_be_bytes());
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

/// A property, with room for the hash of its name, by which entries are sorted.
pub type Entry<'a> = (u32, (&'a str, &'a str));

/// The index of a queue in `Maker::recent`.
#[inline]
fn recent_of(name: &[u8]) -> usize {
    let of = |at: usize| name.get(at).copied().map_or(0, usize::from);
    (of(3) * 5 + of(name.len() - 1) + name.len() * 3) % RECENT
}

/// Writes the key of a queue in `Maker::numbers` into `room`.
pub fn key<'a>(room: &'a mut Vec<u8>, topic: &[u8], queue_id: i32) -> &'a [u8] {
    room.clear();
    room.extend_from_slice(&queue_id.to_be_bytes());
    room.extend_from_slice(topic);
    room
}

/// The properties of a line in the order in which they are set. None if it has `keys` or `tags`, and
/// KEYS or TAGS among its properties as well; or if it is a row of a record with a checksum, which the
/// new record must not have.
fn entries_of<'a>(read: &'a Read<'_>) -> Option<Vec<Entry<'a>>> {
    // The iterator does not know how many there are. Few have more, with keys and tags.
    let mut entries: Vec<Entry<'a>> = Vec::with_capacity(4);
    entries.extend(read.properties().map(|pair| (0, pair)));
    if read.was_stored && has(&entries, PROPERTY_CRC32) {
        return None;
    }
    let (keys, tags) = (read.keys(), read.tags());
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

/// Adds properties as they are stored (`PropertyEncoder`). None if Python must look at them: one has an
/// effect (a delay, further queues), there are too many, a name is there twice, or they could not be
/// read back.
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
