//! Scans a window in parts, with several threads. A part begins at a position that looks like the
//! start of a record. Its result counts only if the part before it has ended exactly there
//! (`rmqctl/engine/scan/chain.py` does the same with arrays). So the result is always that of one
//! thread, whatever the bytes are. The positions of the parts do not depend on the number of threads.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use memchr::memmem;

use crate::bytes::memory::give;
use crate::bytes::processors::Asker;
use crate::layouts::{PREFIXES, RECORD_MAGIC_HEAD};
use crate::record::entry::{self, Found};
use crate::record::shapes::KnownShapes;
use crate::record::topics::Topics;
use crate::scan::columns::{Extras, Ints};
use crate::scan::window::{Batch, Stop, Wanted, Window};

/// How many bytes are searched for a position at which a part can begin.
const SEARCHED: usize = 1 << 16;

/// The result of one part.
pub struct Part {
    /// The number of the thread that has read it.
    pub thread: usize,
    /// The numbers of the topics that this thread has seen here first.
    pub new_topics: Range<usize>,
    pub rows: usize,
    pub extras: Extras,
    start: usize,
    limit: usize,
    is_full: bool,
    reached: usize,
    stop: Stop,
}

/// The result of a window.
pub struct Filled {
    /// The parts whose results count, in order: at least one.
    pub parts: Vec<Part>,
    pub reached: usize,
    pub stop: Stop,
    /// Whether there may be more records where it stopped: there was no room for them, or the next
    /// part did not begin exactly there.
    pub goes_on: bool,
}

/// Reads the records of a window in parts that begin at `starts` (ascending, at least one). Each part
/// has its own room. There are as many threads as tables of topics.
pub fn fill(
    threads: &mut [Topics],
    data: &[u8],
    window: Window,
    starts: &[usize],
    wanted: Wanted,
    rooms: Vec<Ints<'_>>,
) -> Filled {
    let work = windows_of(window, starts).into_iter().zip(rooms);
    let mut parts = spread(threads, work.collect(), |thread, topics, _, (window, mut ints)| {
        read(data, window, wanted, thread, topics, &mut ints)
    });
    parts.sort_unstable_by_key(|part| part.start);
    let count = believed(parts.iter().map(|part| (part.start, part.reached)));
    for part in parts.drain(count..) {
        threads[part.thread].forget_from(part.new_topics.start);
    }
    let last = &parts[count - 1];
    let (reached, stop) = (last.reached, last.stop);
    let goes_on = last.is_full || reached >= last.limit;
    Filled { parts, reached, stop, goes_on }
}

/// The windows of parts that begin at `starts`, of which there is at least one.
pub fn windows_of(window: Window, starts: &[usize]) -> Vec<Window> {
    let ends = starts[1..].iter().copied().chain([window.limit]);
    let windows = starts.iter().zip(ends);
    windows.map(|(&position, limit)| Window { position, limit, ..window }).collect()
}

/// Does pieces of work, at least one, with as many threads as there are tables of topics. The results
/// are in no particular order.
pub fn spread<W: Send, T: Send>(
    threads: &mut [Topics],
    work: Vec<W>,
    read: impl Fn(usize, &mut Topics, &mut Vec<u8>, W) -> T + Sync,
) -> Vec<T> {
    let count = threads.len().min(work.len());
    let work = Mutex::new(work.into_iter());
    let next = || work.lock().unwrap_or_else(PoisonError::into_inner).next();
    let read_all = |thread: usize, topics: &mut Topics| -> Vec<T> {
        let (mut done, mut room) = (Vec::new(), Vec::new());
        while let Some(piece) = next() {
            done.push(read(thread, topics, &mut room, piece));
        }
        give(room);
        done
    };
    let (first, others) = threads[..count].split_at_mut(1);
    thread::scope(|scope| {
        let read_all = &read_all;
        let others = others.iter_mut().enumerate();
        let asker = Asker::here();
        let others: Vec<_> = others
            // If the system gives no thread, the existing ones do all.
            .filter_map(|(number, topics)| {
                let read = move || {
                    asker.leave();
                    read_all(number + 1, topics)
                };
                thread::Builder::new().name("scan".to_owned()).spawn_scoped(scope, read).ok()
            })
            .collect();
        if !others.is_empty() {
            asker.make_way();
        }
        let mut done = read_all(0, &mut first[0]);
        for other in others {
            done.extend(other.join().unwrap_or_else(|cause| resume_unwind(cause)));
        }
        done
    })
}

/// How many parts count, given the start and the end of each, in order: the first one, and each that
/// begins where the one before it has ended, up to the first that does not.
pub fn believed(parts: impl Iterator<Item = (usize, usize)>) -> usize {
    let mut arrived = None;
    let is_met = |&(start, reached): &(usize, usize)| {
        let before = arrived.replace(reached);
        before.is_none_or(|before| before == start)
    };
    parts.take_while(is_met).count()
}

fn read(
    data: &[u8],
    window: Window,
    wanted: Wanted,
    thread: usize,
    topics: &mut Topics,
    ints: &mut Ints<'_>,
) -> Part {
    let (known, mut extras) = (topics.len(), Extras::default());
    let mut batch =
        Batch { topics, extras: &mut extras, ints, wanted, shapes: KnownShapes::default() };
    let (reached, stop) = batch.fill(data, window);
    Part {
        thread,
        new_topics: known..topics.len(),
        rows: ints.rows(),
        extras,
        start: window.position,
        limit: window.limit,
        is_full: ints.is_full(),
        reached,
        stop,
    }
}

/// The positions at which parts begin, at most `most`: the window's first byte, and records behind it
/// at about equal distances.
pub fn starts(data: &[u8], window: Window, most: usize) -> Vec<usize> {
    let mut starts = vec![window.position];
    let head = PREFIXES[0].magic_code;
    let finder = memmem::Finder::new(RECORD_MAGIC_HEAD);
    let length = window.limit.saturating_sub(window.position);
    for number in 1..most {
        let low = window.position + length / most * number;
        let high = (low + SEARCHED.min(length / most)).min(window.readable).min(data.len());
        let searched = data.get(low..high).unwrap_or_default();
        let last = starts[starts.len() - 1];
        let is_record = |place: &usize| {
            let found = entry::read(data, *place, window.readable, window.file_from_offset);
            *place > last && matches!(found, Found::Record(_))
        };
        let mut places = finder.find_iter(searched).filter_map(|at| (low + at).checked_sub(head));
        starts.extend(places.find(is_record));
    }
    starts
}
