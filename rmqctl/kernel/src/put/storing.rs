//! Stores records that were made, and keeps what dispatch makes of each until it is taken.

use crate::bytes::mapped::Room;
use crate::layouts::QUEUE_UNIT_BYTES;
use crate::put::derived::{self, Keys};
use crate::put::message::seal;
use crate::queue::units::{self, Unit};
use crate::record::indexkeys::KeyPrefix;
use crate::record::properties::Properties;
use crate::record::shapes::KnownShapes;

/// One stored record. `queue` is the number of its queue, in the order in which they were admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub queue: u32,
    pub position: usize,
    pub size: usize,
    pub queue_offset: i64,
    pub store_timestamp: i64,
}

/// A record that was made: its row, where its properties begin in it, and the properties, if they were
/// already parsed.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    pub row: Row,
    pub start: usize,
    pub found: Option<Properties>,
}

/// Gives the store time (ms) of records when they are stored; None: each record has its own already.
pub type Clock = Option<fn() -> i64>;

/// What was stored for a queue since the last `Storing::taken`: the bytes of its records, the physical
/// offset of the first one, the queue offset behind the last one, and the units.
#[derive(Debug, Default)]
pub struct Total {
    pub bytes: i64,
    pub physical_offset: i64,
    pub next: i64,
    pub units: Vec<u8>,
}

/// What was stored since the last `taken`.
#[derive(Debug, Default)]
pub struct Storing {
    /// Whether messages get an index item of their tags.
    pub indexes_tags: bool,
    /// For each queue how its keys' hashes begin, and what was stored for it.
    queues: Vec<(KeyPrefix, Total)>,
    rows: Vec<Row>,
    keys: Keys,
    /// The physical offset up to which the log is claimed.
    claimed: i64,
    shapes: KnownShapes,
}

impl Storing {
    pub fn new(indexes_tags: bool) -> Self {
        Storing { indexes_tags, ..Storing::default() }
    }

    /// Admits the queue of this number, whose keys' hashes begin with `key_prefix`.
    pub fn admit(&mut self, number: u32, key_prefix: KeyPrefix) {
        if number as usize == self.queues.len() {
            self.queues.push((key_prefix, Total::default()));
        }
    }

    /// Calls `told` with the rows, the totals of queues, and the keys since the last call, and forgets
    /// them. The memory of rows and keys is reused.
    pub fn taken<T>(&mut self, told: impl FnOnce(&[Row], &[(u32, Total)], &Keys) -> T) -> T {
        let queues = self.queues.iter_mut().enumerate();
        let filled = queues.filter(|(_, (_, total))| !total.units.is_empty());
        let totals: Vec<_> =
            filled.map(|(number, (_, total))| (number as u32, std::mem::take(total))).collect();
        let answer = told(&self.rows, &totals, &self.keys);
        self.rows.clear();
        self.keys.clear();
        answer
    }

    /// Forgets all queues.
    pub fn forget(&mut self) {
        self.queues.clear();
    }

    /// Claims the part of the log into which records will be stored (`Room::claim_ahead`): `size` bytes
    /// from `position` on in the file that begins at `file_from_offset`.
    pub fn claim(&mut self, room: &Room<'_>, file_from_offset: i64, position: usize, size: usize) {
        let end = position + size;
        let claimed = usize::try_from(self.claimed - file_from_offset).unwrap_or(0);
        if claimed < end {
            let end = room.claim_ahead(position.max(claimed), end);
            self.claimed = file_from_offset.saturating_add(end as i64);
        }
    }

    /// Stores consecutive records, whose bytes are in `records`, in the file that begins at
    /// `file_from_offset`. With a clock all of them get its time.
    pub fn store(
        &mut self,
        room: &mut Room<'_>,
        file_from_offset: i64,
        made: &mut [Made],
        records: &mut [u8],
        clock: Clock,
    ) {
        let Some(first) = made.first() else { return };
        let (position, now) = (first.row.position, clock.map(|now| now()));
        let mut at = 0;
        for Made { row, .. } in &mut *made {
            row.store_timestamp = now.unwrap_or(row.store_timestamp);
            seal(&mut records[at..at + row.size], row.store_timestamp);
            at += row.size;
        }
        room.store_all(position, records, made.iter().map(|made| made.row.size));
        at = 0;
        for made in made {
            self.note(file_from_offset, made, &records[at..at + made.row.size]);
            at += made.row.size;
        }
    }

    /// Keeps what dispatch makes of a stored record.
    #[inline]
    fn note(&mut self, file_from_offset: i64, made: &Made, record: &[u8]) {
        let row = made.row;
        let read = || self.shapes.read(record, made.start, row.size);
        let found = &made.found.unwrap_or_else(read);
        let physical_offset = file_from_offset + row.position as i64;
        let (key_prefix, total) = &mut self.queues[row.queue as usize];
        total.add(&row, physical_offset, derived::tags_code(record, found));
        self.keys.add(record, found, *key_prefix, physical_offset, row.store_timestamp);
        self.rows.push(row);
    }
}

impl Total {
    #[inline]
    fn add(&mut self, row: &Row, physical_offset: i64, tags_code: i64) {
        if self.units.is_empty() {
            self.physical_offset = physical_offset;
        }
        let (queue_offset, size) = (row.queue_offset, row.size as i64);
        self.next = queue_offset + 1;
        self.bytes += size;
        let unit = Unit { topic: 0, queue: 0, queue_offset, physical_offset, size, tags_code };
        let at = self.units.len();
        self.units.resize(at + QUEUE_UNIT_BYTES, 0);
        units::store(&unit, &mut self.units[at..]);
    }

    /// How many messages were stored.
    pub fn messages(&self) -> i64 {
        (self.units.len() / QUEUE_UNIT_BYTES) as i64
    }
}
