//! Stores records in a second thread, while the first one makes the next records.
//!
//! The first thread decides whether a message is taken, and gives it its position, its queue offset and
//! its time. The second one adds the checksum, stores the record, and makes units and keys, in the
//! order of the log. When the call ends, all records that were made are stored, so no record is
//! reported that is not there. A kill leaves the log like a kill between two messages, only with fewer
//! messages.

use std::mem;
use std::panic::resume_unwind;
use std::process;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{self, Scope, ScopedJoinHandle};

use crate::bytes::mapped::Room;
use crate::bytes::processors::Asker;
use crate::put::storing::{Clock, Made, Storing};
use crate::record::indexkeys::KeyPrefix;

/// Bytes of records that are handed to the second thread together.
const CHUNK_BYTES: usize = 1 << 18;
/// How many chunks may wait for the second thread. Then the first one waits, which bounds memory.
const MOST_CHUNKS: usize = 4;
/// How many bytes of a stream the first thread stores itself, at least. For fewer bytes, starting a
/// second thread would take a good part of the time.
pub const ALONE_BYTES: usize = 1 << 19;

/// What storing needs: where the records go, in the file that begins at `file_from_offset`, and where
/// units and keys are collected.
pub struct Work<'a> {
    storing: &'a mut Storing,
    room: Room<'a>,
    file_from_offset: i64,
    clock: Clock,
    process: u32,
}

/// Consecutive records, and what is known of each. `admitted` are the queues that were admitted since
/// the last chunk: their numbers, and the hashes of `topic#`, with which the hashes of keys begin.
struct Chunk {
    admitted: Vec<(u32, KeyPrefix)>,
    records: Vec<u8>,
    made: Vec<Made>,
}

impl Default for Chunk {
    /// With some room behind the limit, so that the last record mostly fits without a reallocation.
    fn default() -> Self {
        let records = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 8);
        Chunk { admitted: Vec::new(), records, made: Vec::new() }
    }
}

/// Takes records, and has them stored.
pub struct Behind<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    /// Bytes that this thread still stores itself before a second one is started.
    alone: usize,
    chunk: Chunk,
    /// None once the second thread has it.
    work: Option<Work<'env>>,
    other: Option<Other<'scope>>,
    /// The process that has the second thread.
    process: u32,
    indexes_tags: bool,
}

/// The second thread, which stores. It gives chunks back, to be filled again.
struct Other<'scope> {
    filled: SyncSender<Chunk>,
    emptied: Receiver<Chunk>,
    thread: ScopedJoinHandle<'scope, ()>,
}

/// Calls `make`, which makes records. All of them are stored when this returns. This thread stores at
/// least the first `alone` bytes itself.
pub fn store_behind<'env, T>(
    work: Work<'env>,
    alone: usize,
    make: impl for<'scope> FnOnce(&mut Behind<'scope, 'env>) -> T,
) -> T {
    thread::scope(|scope| {
        let (chunk, process) = (Chunk::default(), process::id());
        let (indexes_tags, work) = (work.storing.indexes_tags, Some(work));
        let mut behind = Behind { scope, alone, chunk, work, other: None, process, indexes_tags };
        let made = make(&mut behind);
        behind.finish();
        made
    })
}

impl Behind<'_, '_> {
    /// Where `Maker::make` appends the next record.
    pub fn records(&mut self) -> &mut Vec<u8> {
        &mut self.chunk.records
    }

    /// Admits a queue. Records that are added later may go to it.
    pub fn admit(&mut self, number: u32, topic: &[u8]) {
        self.chunk.admitted.push((number, KeyPrefix::of(topic, self.indexes_tags)));
    }

    /// Takes the record that was just appended to `records`.
    #[inline]
    pub fn add(&mut self, made: Made) {
        self.chunk.made.push(made);
        if self.chunk.records.len() >= CHUNK_BYTES {
            self.hand_on();
        }
    }

    fn hand_on(&mut self) {
        self.end_if_forked();
        if self.other.is_none() && self.alone == 0 {
            self.begin();
        }
        if let Some(work) = &mut self.work {
            self.alone = self.alone.saturating_sub(self.chunk.records.len());
            work.store(&mut self.chunk);
        } else if let Some(other) = &self.other {
            let empty = other.emptied.try_recv().unwrap_or_default();
            let full = mem::replace(&mut self.chunk, empty);
            if other.filled.send(full).is_err() {
                self.finish();
            }
        }
    }

    /// Starts the second thread, if the system gives one.
    fn begin(&mut self) {
        let (filled, chunks) = sync_channel::<Chunk>(MOST_CHUNKS);
        let (back, emptied) = channel();
        let (give, given) = channel::<Work<'_>>();
        let asker = Asker::here();
        let thread =
            thread::Builder::new().name("store".to_owned()).spawn_scoped(self.scope, move || {
                asker.leave();
                let Ok(mut work) = given.recv() else { return };
                for mut chunk in chunks {
                    work.claim(&chunk);
                    work.store(&mut chunk);
                    // Nobody receives the last ones.
                    let _ = back.send(chunk);
                }
            });
        let Ok(thread) = thread else {
            self.alone = usize::MAX;
            return;
        };
        if let Some(work) = self.work.take() {
            // The thread is waiting for this, so it is received.
            let _ = give.send(work);
        }
        self.other = Some(Other { filled, emptied, thread });
        asker.make_way();
    }

    /// Ends a child process that the source of the messages has forked. It does not have the second
    /// thread, and would wait for it for ever.
    fn end_if_forked(&self) {
        if self.other.is_some() && process::id() != self.process {
            eprintln!(
                "error: this process was forked while a stream of messages was stored, and cannot \
                 go on with it. Fork before the stream, or end the child with os._exit."
            );
            // Not `exit`: it would end what other threads of the parent have begun, and crash.
            process::abort();
        }
    }

    /// Waits until everything is stored. A panic of the second thread continues here.
    fn finish(&mut self) {
        self.end_if_forked();
        if let Some(work) = &mut self.work {
            work.store(&mut self.chunk);
        }
        let Some(Other { filled, thread, .. }) = self.other.take() else { return };
        // It is received unless the thread has panicked.
        let _ = filled.send(mem::take(&mut self.chunk));
        drop(filled);
        if let Err(cause) = thread.join() {
            resume_unwind(cause);
        }
    }
}

impl<'a> Work<'a> {
    pub fn new(
        storing: &'a mut Storing,
        room: Room<'a>,
        file_from_offset: i64,
        clock: Clock,
    ) -> Self {
        Work { storing, room, file_from_offset, clock, process: process::id() }
    }

    /// Claims the part of the file for a chunk and what follows it: the stream goes on.
    fn claim(&mut self, chunk: &Chunk) {
        if let Some(first) = chunk.made.first() {
            let (position, size) = (first.row.position, chunk.records.len());
            self.storing.claim(&self.room, self.file_from_offset, position, size);
        }
    }

    fn store(&mut self, chunk: &mut Chunk) {
        let Chunk { admitted, records, made } = chunk;
        // The source of the messages may have forked. The child must not write to the store.
        if process::id() != self.process {
            made.clear();
        }
        for (number, key_prefix) in admitted.drain(..) {
            self.storing.admit(number, key_prefix);
        }
        let clock = self.clock;
        self.storing.store(&mut self.room, self.file_from_offset, made, records, clock);
        records.clear();
        made.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{ALONE_BYTES, CHUNK_BYTES, Work, store_behind};
    use crate::bytes::mapped::Room;
    use crate::put::append_tests::empty;
    use crate::put::maker::Place;
    use crate::put::message::{Message, Texts};

    const FILE: usize = 1 << 20;

    /// The content of the file, and what `taken` reports, after so many messages.
    fn stored(messages: usize, alone: usize) -> (Vec<u8>, String) {
        let mut file = vec![0; FILE];
        let mut appender = empty();
        for queue_id in 0..3 {
            appender.admit(b"t", queue_id, 7, 1 << 20);
        }
        let place = Place {
            position: 0,
            end: FILE,
            file_from_offset: 1 << 30,
            most: messages,
            enough: FILE,
        };
        let (maker, storing) = (&mut appender.maker, &mut appender.storing);
        let room = Room::of(&mut file);
        let work = Work::new(storing, room, place.file_from_offset, None);
        store_behind(work, alone, |behind| {
            let mut position = 0;
            for number in 0..messages {
                let body = vec![number as u8; number % 700];
                let (keys, tags) = (format!("a{number} b{number}"), format!("tag{}", number % 5));
                let stored = format!("KEYS\u{1}{keys}\u{2}TAGS\u{1}{tags}");
                let properties = if number % 2 == 0 {
                    Texts::Stored(stored.as_bytes())
                } else {
                    Texts::Entries(vec![(0, ("KEYS", &keys)), (0, ("TAGS", &tags))])
                };
                let (topic, queue_id) = ("t", (number % 3) as i32);
                let mut message =
                    Message { topic, queue_id, body: &body, properties, origin: None };
                let clock = || Ok::<_, ()>(number as i64);
                let made = maker.make(behind.records(), place, position, &mut message, clock);
                let Ok(made) = made else { panic!("message {number} is refused") };
                behind.add(made);
                position += made.row.size;
                let begun = position.saturating_sub(CHUNK_BYTES) >= alone;
                assert!(begun || behind.other.is_none());
                assert!(behind.other.is_some() || position < alone.saturating_add(3 * CHUNK_BYTES));
            }
        });
        let said = appender.taken(|rows, totals, keys| format!("{:?}", (rows, totals, keys)));
        (file, said)
    }

    #[test]
    fn one_thread_and_two_store_the_same() {
        for messages in [0, 1, 5, 100, 2000] {
            let alone = stored(messages, usize::MAX);
            for bytes in [0, CHUNK_BYTES, ALONE_BYTES] {
                assert!(stored(messages, bytes) == alone, "{messages} messages");
            }
            assert_eq!(alone.0.iter().all(|byte| *byte == 0), messages == 0);
        }
    }

    #[test]
    fn a_panic_of_the_other_thread_is_told() {
        let mut file = vec![0; 2 * CHUNK_BYTES];
        let mut appender = empty();
        appender.admit(b"t", 0, 0, 1 << 20);
        // The room ends before the place that records are made for.
        let place = Place {
            position: 0,
            end: 16 * CHUNK_BYTES,
            file_from_offset: 0,
            most: 9999,
            enough: 16 * CHUNK_BYTES,
        };
        let (maker, storing) = (&mut appender.maker, &mut appender.storing);
        let work = Work::new(storing, Room::of(&mut file), 0, None);
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            store_behind(work, 0, |behind| {
                let mut position = 0;
                while position < 8 * CHUNK_BYTES {
                    let mut message = Message {
                        topic: "t",
                        queue_id: 0,
                        body: &[7; 5000],
                        properties: Texts::Stored(b""),
                        origin: None,
                    };
                    let clock = || Ok::<_, ()>(1);
                    let made = maker.make(behind.records(), place, position, &mut message, clock);
                    let Ok(made) = made else { panic!("it is refused") };
                    behind.add(made);
                    position += made.row.size;
                }
            })
        }));
        assert!(told.is_err());
        let rows = appender.taken(|rows, _, _| rows.to_vec());
        // Exactly the records that are stored are reported.
        assert!(rows.iter().all(|row| file[row.position + 3] != 0));
        assert!(!rows.is_empty() && rows.last().is_some_and(|row| row.position < 2 * CHUNK_BYTES));
    }
}
