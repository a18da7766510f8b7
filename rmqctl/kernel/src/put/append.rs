//! Makes lines of NDJSON records of a log file, and derives what dispatch makes of them. The bytes are
//! those that `BulkAppender` (`rmqctl/engine/write/bulk.py`) writes for the messages that
//! `MessageMaker` makes of the lines.

use memchr::memchr;

use crate::bytes::mapped::Room;
use crate::layouts::{PROPERTY_CRC32, PROPERTY_KEYS, PROPERTY_TAGS};
use crate::put::behind::{Behind, Work, store_behind};
use crate::put::derived::Keys;
use crate::put::jsonline::{self, Defaults, Read};
use crate::put::maker::{Asked, Fixed, Maker, Place, Refused, Stop};
use crate::put::message::{Entry, Message, Texts, has};
use crate::put::storing::{Made, Row, Storing, Total};
use crate::record::indexkeys::KeyPrefix;

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

/// Appends to one store. Queues are admitted for one bulk.
pub struct Appender {
    pub maker: Maker,
    pub storing: Storing,
}

impl Appender {
    pub fn new(fixed: Fixed) -> Self {
        Appender { maker: Maker::new(fixed), storing: Storing::new(fixed.indexes_tags) }
    }

    /// Lets messages go to a queue, from its queue offset `next` up to `limit`. Returns its number.
    pub fn admit(&mut self, topic: &[u8], queue_id: i32, next: i64, limit: i64) -> u32 {
        let number = self.maker.admit(topic, queue_id, next, limit);
        self.storing.admit(number, KeyPrefix::of(topic, self.storing.indexes_tags));
        number
    }

    /// Calls `told` with what was stored since the last call: rows, totals of queues, and keys.
    pub fn taken<T>(&mut self, told: impl FnOnce(&[Row], &[(u32, Total)], &Keys) -> T) -> T {
        self.maker.begin();
        self.storing.taken(told)
    }

    /// Forgets all queues.
    pub fn forget(&mut self) {
        self.maker.forget();
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
        self.set_usual_born(times.born);
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
