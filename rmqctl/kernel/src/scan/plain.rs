//! Scans plain records: those for which a check has no finding, and dispatch no special case. Most logs
//! have only such records. They are not put into a batch, only counted. Their units and keys are made
//! in the form in which they are stored or compared.

use std::io;
use std::ops::Range;

use crate::bytes::fetch;
use crate::bytes::memory::take;
use crate::bytes::pieces::{Piece, Source};
use crate::index::links::Places;
use crate::layouts::{
    COMPRESSED_FLAG, EARLIEST_STORE_TIME, END_OF_STORE_TIMES, QUEUE_UNIT_BYTES,
    QUEUE_UNIT_PHYSICAL_OFFSET, QUEUE_UNIT_SIZE, QUEUE_UNIT_TAGS_CODE, TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE, TRANSACTION_TYPE_MASK,
};
use crate::record::entry::{self, Found, Record};
use crate::record::indexkeys::each_key;
use crate::record::keyhash::hash_code;
use crate::record::properties::{self, Properties};
use crate::record::shapes::KnownShapes;
use crate::record::topics::{Topic, Topics};
use crate::scan::parts::{believed, spread, windows_of};
use crate::scan::window::{Window, body_matches};

/// The largest queue offset whose unit has a byte offset that fits into 64 bits.
const MAX_QUEUE_OFFSET: i64 = i64::MAX / QUEUE_UNIT_BYTES as i64 - 1;

/// If a record's size (bytes) differs by at most this from that of the one before, the next records are
/// assumed to be as large.
const LIKE: usize = 32;

/// How many bytes behind a part are read with it, because its last record may end there.
const OVERLAP: usize = 1 << 12;

/// The initial capacities: queues of a part, and bytes of log for each index key. They grow.
const QUEUES: usize = 64;
const BYTES_OF_KEY: usize = 128;

/// What is asked of a scan of plain records.
#[derive(Debug, Default, Clone, Copy)]
pub struct Asked {
    /// Whether records are checked. Then a record with a finding is not plain.
    pub check: bool,
    pub units: bool,
    pub keys: bool,
}

/// Units of one queue with consecutive queue offsets.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    /// The number that the thread which has read the part gave to the topic.
    pub topic: i64,
    pub queue: i64,
    /// The queue offset of the first unit.
    pub queue_offset: i64,
    /// The bytes of the units, as they are stored.
    pub units: Vec<u8>,
}

impl Run {
    fn next_offset(&self) -> i64 {
        self.queue_offset + (self.units.len() / QUEUE_UNIT_BYTES) as i64
    }
}

/// Index keys in the order of their items: columns of equal length.
#[derive(Debug, Default)]
pub struct Keys {
    /// See [`Key::marked`](crate::record::indexkeys::Key::marked).
    pub key_hash: Vec<i32>,
    pub physical_offset: Vec<i64>,
    pub store_timestamp: Vec<i64>,
}

/// The result of one part.
#[derive(Debug)]
pub struct Part {
    /// The number of the thread that has read it.
    pub thread: usize,
    /// The numbers of the topics that this thread has seen here first.
    pub new_topics: Range<usize>,
    pub records: usize,
    pub units: usize,
    /// The newest store time (ms), at least 0.
    pub newest_timestamp: i64,
    /// The physical offset of the last record.
    pub last_offset: i64,
    pub runs: Vec<Run>,
    pub keys: Keys,
    pub start: usize,
    pub reached: usize,
    /// Why it could not read further.
    error: Option<io::Error>,
}

/// Reads the plain records of a window, up to the first record that is not plain, in parts that begin
/// at `starts`. There are as many threads as tables of topics. Returns the parts that count
/// (`parts.rs`), in order, or why the file cannot be read.
pub fn read(
    threads: &mut [Topics],
    source: Source<'_>,
    window: Window,
    starts: &[usize],
    asked: Asked,
) -> io::Result<Vec<Part>> {
    let windows = windows_of(window, starts);
    let mut parts = spread(threads, windows, |thread, topics, room, window| {
        Reader::new(window, asked).read(source, room, thread, topics)
    });
    parts.sort_unstable_by_key(|part| part.start);
    let count = believed(parts.iter().map(|part| (part.start, part.reached)));
    for part in parts.drain(count..) {
        threads[part.thread].forget_from(part.new_topics.start);
    }
    if let Some(error) = parts.iter_mut().find_map(|part| part.error.take()) {
        return Err(error);
    }
    if !asked.units && !asked.keys {
        parts.dedup_by(|part, before| before.is_joined_by(part));
    }
    Ok(parts)
}

impl Part {
    /// Adds the counts of the next part to this one, if that has no new topics. It must have no units
    /// and keys. Returns whether it did.
    fn is_joined_by(&mut self, next: &Part) -> bool {
        let is_joined = next.new_topics.is_empty() && next.records > 0;
        if is_joined {
            self.records += next.records;
            self.newest_timestamp = self.newest_timestamp.max(next.newest_timestamp);
            (self.last_offset, self.reached) = (next.last_offset, next.reached);
        }
        is_joined
    }
}

struct Reader {
    window: Window,
    asked: Asked,
    queues: Places,
    /// The last run of each queue.
    newest: Vec<usize>,
    shapes: KnownShapes,
    part: Part,
}

impl Reader {
    fn new(window: Window, asked: Asked) -> Self {
        let bytes = window.limit.saturating_sub(window.position);
        let room = if asked.keys { bytes / BYTES_OF_KEY } else { 0 };
        let keys =
            Keys { key_hash: take(room), physical_offset: take(room), store_timestamp: take(room) };
        let part = Part {
            thread: 0,
            new_topics: 0..0,
            records: 0,
            units: 0,
            newest_timestamp: 0,
            last_offset: 0,
            runs: Vec::new(),
            keys,
            start: window.position,
            reached: window.position,
            error: None,
        };
        let (queues, newest, shapes) = (Places::new(QUEUES), Vec::new(), KnownShapes::default());
        Reader { window, asked, queues, newest, shapes, part }
    }

    fn read(
        mut self,
        source: Source<'_>,
        room: &mut Vec<u8>,
        thread: usize,
        topics: &mut Topics,
    ) -> Part {
        let known = topics.len();
        let end = self.window.limit.saturating_add(OVERLAP);
        let mut file = source.file;
        while self.part.reached < self.window.limit {
            let begin = self.part.reached;
            let piece = match file.map(|file| source.read(file, room, begin, end)) {
                Some(Ok(piece)) => piece,
                Some(Err(error)) => {
                    self.part.error = Some(error);
                    break;
                }
                None => source.mapped(),
            };
            if !self.pass(piece, topics) {
                break;
            }
            if self.part.reached == begin {
                // A record is larger than a piece. Use the map for the rest: others may be, too.
                file = None;
            }
        }
        self.part.thread = thread;
        self.part.new_topics = known..topics.len();
        self.part
    }

    /// Takes the plain records of a piece. Returns whether more may follow, because it stopped at a
    /// record that may end behind the piece.
    fn pass(&mut self, piece: Piece<'_>, topics: &mut Topics) -> bool {
        let Piece { data, base, readable, .. } = piece;
        let Some(from) = self.window.file_from_offset.checked_add(base as i64) else {
            return false;
        };
        let (limit, readable) = (self.window.limit - base, readable - base);
        let mut position = self.part.reached - base;
        let mut before = 0;
        while position < limit {
            let Found::Record(record) = entry::read(data, position, readable, from) else {
                return piece.has_more;
            };
            let end = position + record.total_size;
            if !piece.was_read {
                self.fetch(data, &record, end, readable, before);
            }
            before = record.total_size;
            let named = topics.len();
            if !self.take(data, &record, from + position as i64, topics) {
                // The full scan will read the record, and number its topic.
                topics.forget_from(named);
                return false;
            }
            position = end;
            self.part.reached = base + end;
        }
        false
    }

    /// Prefetches bytes behind a record that ends at `end`. The record before it had `before` bytes.
    #[inline]
    fn fetch(&self, data: &[u8], record: &Record, end: usize, readable: usize, before: usize) {
        let size = record.total_size;
        if self.asked.check || size.abs_diff(before) > LIKE {
            fetch::behind(data, end, size, readable);
        } else {
            let tail = end - record.body_position - record.body_length;
            fetch::around(data, end, (size, tail), readable);
        }
    }

    /// Takes a record if it is plain. Returns whether it is.
    #[inline]
    fn take(&mut self, data: &[u8], record: &Record, offset: i64, topics: &mut Topics) -> bool {
        let at = record.topic_position;
        let topic = topics.get(&data[at..at + record.topic_length]);
        let kind = record.sys_flag & TRANSACTION_TYPE_MASK;
        if !topic.is_plain || kind == TRANSACTION_ROLLBACK_TYPE {
            return false;
        }
        let has_unit = kind != TRANSACTION_PREPARED_TYPE;
        let is_placed =
            record.queue_id >= 0 && (0..=MAX_QUEUE_OFFSET).contains(&record.queue_offset);
        if has_unit && !is_placed {
            return false;
        }
        let start = record.properties_position;
        let found = self.shapes.read(data, start, start + record.properties_length);
        if found.delay != (0, 0) || found.multi_dispatch != (0, 0) {
            return false;
        }
        if self.asked.check && !self.is_sound(data, record, &found) {
            return false;
        }
        if self.asked.units && has_unit {
            self.add_unit(data, record, offset, &found, topic);
        }
        if self.asked.keys {
            self.add_keys(data, record, offset, &found, topic);
        }
        self.part.records += 1;
        self.part.newest_timestamp = self.part.newest_timestamp.max(record.store_timestamp);
        self.part.last_offset = offset;
        true
    }

    /// Whether a check has no finding for a record, and need not look at it more closely.
    #[inline]
    fn is_sound(&self, data: &[u8], record: &Record, found: &Properties) -> bool {
        let ports = 0..=i32::from(u16::MAX);
        let start = record.properties_position;
        record.body_length > 0
            && (EARLIEST_STORE_TIME..END_OF_STORE_TIMES).contains(&record.store_timestamp)
            && record.properties_length > 0
            && !found.malformed
            && record.sys_flag & COMPRESSED_FLAG == 0
            && ports.contains(&record.born_port)
            && ports.contains(&record.store_port)
            && !properties::may_end_with_crc(&data[start..start + record.properties_length])
            && body_matches(data, record)
    }

    #[inline]
    fn add_unit(
        &mut self,
        data: &[u8],
        record: &Record,
        offset: i64,
        found: &Properties,
        topic: Topic,
    ) {
        let tags = hash_code(data, found.tags.0, found.tags.1, 0) as i32;
        let mut unit = [0; QUEUE_UNIT_BYTES];
        let mut put = |at: usize, bytes: &[u8]| unit[at..at + bytes.len()].copy_from_slice(bytes);
        put(QUEUE_UNIT_PHYSICAL_OFFSET, &offset.to_be_bytes());
        put(QUEUE_UNIT_SIZE, &(record.total_size as i32).to_be_bytes());
        put(QUEUE_UNIT_TAGS_CODE, &i64::from(tags).to_be_bytes());
        let key = (topic.number, i64::from(record.queue_id));
        let (place, is_new) = self.queues.place_of(key);
        if is_new {
            self.newest.push(usize::MAX);
        }
        self.part.units += 1;
        if let Some(run) = self.part.runs.get_mut(self.newest[place]) {
            if run.next_offset() == record.queue_offset {
                run.units.extend_from_slice(&unit);
                return;
            }
        }
        self.newest[place] = self.part.runs.len();
        self.part.runs.push(Run {
            topic: key.0,
            queue: key.1,
            queue_offset: record.queue_offset,
            units: unit.to_vec(),
        });
    }

    #[inline]
    fn add_keys(
        &mut self,
        data: &[u8],
        record: &Record,
        offset: i64,
        found: &Properties,
        topic: Topic,
    ) {
        let keys = &mut self.part.keys;
        each_key(data, found, topic.key_prefix, |key| {
            keys.key_hash.push(key.marked());
            keys.physical_offset.push(offset);
            keys.store_timestamp.push(record.store_timestamp);
        });
    }
}

/// A run of a queue's units in the result of [`Sorted::join`]: from unit number `start` on, up to the
/// next run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    pub topic: i64,
    pub queue: i64,
    pub queue_offset: i64,
    pub start: usize,
}

/// The runs of some parts, sorted by queue, for [`Sorted::join`].
pub struct Sorted<'a> {
    runs: Vec<(i64, i64, usize, &'a Run)>,
    /// The bytes of their units.
    pub bytes: usize,
}

/// Sorts the runs of parts, which are given in the order of the log, by topic and queue. With each part
/// come the final numbers of its topics, by the numbers that its thread gave them.
pub fn sorted<'a>(parts: impl Iterator<Item = (&'a [Run], &'a [i64])>) -> Sorted<'a> {
    let mut runs: Vec<(i64, i64, usize, &Run)> = Vec::new();
    for (own, numbers) in parts {
        for run in own {
            runs.push((numbers[run.topic as usize], run.queue, runs.len(), run));
        }
    }
    runs.sort_unstable_by_key(|&(topic, queue, number, _)| (topic, queue, number));
    let bytes = runs.iter().map(|(.., run)| run.units.len()).sum();
    Sorted { runs, bytes }
}

impl Sorted<'_> {
    /// Adds all units to `stored`. Runs of a queue that continue each other become one.
    pub fn join(&self, stored: &mut Vec<u8>) -> Vec<Joined> {
        let (mut joined, mut next): (Vec<Joined>, _) = (Vec::new(), None);
        for &(topic, queue, _, run) in &self.runs {
            let queue_offset = run.queue_offset;
            if next != Some((topic, queue, queue_offset)) {
                joined.push(Joined {
                    topic,
                    queue,
                    queue_offset,
                    start: stored.len() / QUEUE_UNIT_BYTES,
                });
            }
            stored.extend_from_slice(&run.units);
            next = Some((topic, queue, run.next_offset()));
        }
        joined
    }
}
