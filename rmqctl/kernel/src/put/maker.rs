//! Makes records of messages, and gives them their places in log and queues. The bytes are those that
//! `BulkAppender` (`rmqctl/engine/write/bulk.py`) writes for the same messages.
//!
//! Only messages with nothing unusual are taken. At any other message it stops and says why: Python
//! then deals with that message.

use std::collections::HashMap;
use std::convert::Infallible;
use std::mem;

use crate::bytes::mapped::Room;
use crate::layouts::VERSIONS;
use crate::put::behind::Behind;
use crate::put::derived;
use crate::put::message::{Host, Message, Origin, PREFIX, Texts, extend_properties, put, seal};
use crate::put::storing::{Made, Row};
use crate::record::indexkeys::KeyPrefix;
use crate::record::properties::Properties;
use crate::record::shapes::KnownShapes;

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
    /// It has another store host than the messages before it, since [`Maker::begin`].
    Host = 5,
    /// The source of the messages has raised an error.
    Failed = 6,
}

/// Why a message was not stored.
pub enum Refused<E> {
    /// It is not taken. For `Stop::Room` the number is the position up to which it needs room.
    Stopped(Stop, usize),
    /// The clock, or something else that was asked, has raised an error.
    Failed(E),
}

impl<E> Refused<E> {
    pub const UNSURE: Self = Refused::Stopped(Stop::Unsure, 0);
}

const UNSURE: (Stop, usize) = (Stop::Unsure, 0);

/// What lines have in common that say nothing else, and the limits of the store.
#[derive(Debug, Clone, Copy)]
pub struct Fixed {
    /// Without a born time ([`Maker::set_usual_born`]). Where each message has an origin nobody reads
    /// it.
    pub usual: Origin,
    /// The fewest bytes of a message's properties, and the most of a record.
    pub shortest_properties: usize,
    pub largest_record: usize,
    /// Whether messages get an index item of their tags.
    pub indexes_tags: bool,
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
    /// It stops when so many records were made since [`Maker::begin`].
    pub most: usize,
    /// It stops after a record that ends at this position, or behind it.
    pub enough: usize,
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

/// Encodes the records of one store, and gives them their queue offsets.
pub struct Maker {
    largest_record: usize,
    shortest_properties: usize,
    indexes_tags: bool,
    /// A record's fixed fields, with the values that most records have in common.
    template: [u8; PREFIX.size],
    /// The origin of a line that says nothing else.
    pub usual: Origin,
    /// The store host of the records that were made since [`Maker::begin`].
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
    /// How many records were made since [`Maker::begin`].
    made: usize,
    shapes: KnownShapes,
}

impl Maker {
    pub fn new(fixed: Fixed) -> Self {
        let mut template = [0; PREFIX.size];
        put(&mut template, PREFIX.magic_code, VERSIONS[0].magic_code.to_be_bytes());
        Maker {
            usual: fixed.usual,
            host: None,
            largest_record: fixed.largest_record,
            indexes_tags: fixed.indexes_tags,
            shortest_properties: fixed.shortest_properties,
            template,
            numbers: HashMap::new(),
            queues: Vec::new(),
            recent: [0; RECENT],
            wanted: Vec::new(),
            record: Vec::new(),
            made: 0,
            shapes: KnownShapes::default(),
        }
    }

    /// Lets messages go to a queue, from its queue offset `next` up to `limit`. Returns its number.
    pub fn admit(&mut self, topic: &[u8], queue_id: i32, next: i64, limit: i64) -> u32 {
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

    /// Sets the born time (ms) of messages that have none.
    pub fn set_usual_born(&mut self, timestamp: i64) {
        self.usual.born_timestamp = timestamp;
        self.usual.put(&mut self.template);
    }

    /// Begins to count anew, and to expect one store host.
    pub fn begin(&mut self) {
        self.made = 0;
        self.host = None;
    }

    /// Forgets all queues.
    pub fn forget(&mut self) {
        self.numbers.clear();
        self.queues.clear();
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
        Ok((size, found.unwrap_or_else(|| self.shapes.read(&self.record, start, size))))
    }

    /// Does the same, but appends the record to `records`. An error may leave a part of it there.
    /// Returns the record's size, where its properties begin in it, and the properties, if they were
    /// parsed.
    fn lay(
        &mut self,
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
                let found = derived::plain_properties(&mut self.shapes, record, start + 2, size);
                Some(found.ok_or(UNSURE)?)
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
        let prefix = KeyPrefix::of(topic.as_bytes(), self.indexes_tags);
        derived::add_hashes(&self.record, found, prefix, hashes);
        derived::tags_code(&self.record, found)
    }

    /// Refuses a message if it has another store host than those before it, since [`Maker::begin`].
    pub fn expect_host<E>(&mut self, host: Host) -> Result<(), Refused<E>> {
        let known = *self.host.get_or_insert(host);
        if known == host { Ok(()) } else { Err(Refused::Stopped(Stop::Host, 0)) }
    }
}

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
