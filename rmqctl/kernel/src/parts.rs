//! A window in parts, read by several threads. A part begins at a place that looks like a record's;
//! what is found in it is believed when the part before it has arrived exactly there
//! (`rmqctl/engine/scan/chain.py` does the same with arrays). So the answer is that of one thread,
//! whatever stands in the bytes; and where the parts lie does not depend on how many threads there
//! are.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use memchr::memmem;

use crate::columns::{Extras, Ints};
use crate::layouts::{PREFIXES, RECORD_MAGIC_HEAD};
use crate::record::{self, Found};
use crate::scan::{Batch, Stop, Wanted, Window};
use crate::topics::Topics;

/// How far a place for a part to begin is looked for.
const SEARCHED: usize = 1 << 16;

/// What was read of a part.
pub struct Part {
    /// The thread that has read it, and which of the topics that it knows came up here first.
    pub thread: usize,
    pub new_topics: Range<usize>,
    pub rows: usize,
    pub extras: Extras,
    start: usize,
    limit: usize,
    is_full: bool,
    reached: usize,
    stop: Stop,
}

/// What was read of a window.
pub struct Filled {
    /// The parts that are believed, in order: one at least.
    pub parts: Vec<Part>,
    pub reached: usize,
    pub stop: Stop,
    /// Whether there may be more where it stopped: there was no room, or the next part was none.
    pub goes_on: bool,
}

/// Reads the records of a window in parts that begin at `starts`, ascending, each into a room of its
/// own, by as many threads as there are tables of topics, one at least of each.
pub fn fill(
    threads: &mut [Topics],
    data: &[u8],
    window: Window,
    starts: &[usize],
    wanted: Wanted,
    rooms: Vec<Ints<'_>>,
) -> Filled {
    let ends = starts[1..].iter().copied().chain([window.limit]);
    let windows = starts.iter().zip(ends);
    let windows = windows.map(|(&position, limit)| Window { position, limit, ..window });
    let work = Mutex::new(windows.zip(rooms));
    let next = || work.lock().unwrap_or_else(PoisonError::into_inner).next();
    let read_all = |thread: usize, topics: &mut Topics| -> Vec<Part> {
        let mut parts = Vec::new();
        while let Some((window, mut ints)) = next() {
            parts.push(read(data, window, wanted, thread, topics, &mut ints));
        }
        parts
    };
    let count = threads.len().min(starts.len());
    let (first, others) = threads[..count].split_at_mut(1);
    let mut parts = thread::scope(|scope| {
        let read_all = &read_all;
        let others = others.iter_mut().enumerate();
        let others: Vec<_> = others
            .map(|(number, topics)| scope.spawn(move || read_all(number + 1, topics)))
            .collect();
        let mut parts = read_all(0, &mut first[0]);
        for other in others {
            parts.extend(other.join().unwrap_or_else(|cause| resume_unwind(cause)));
        }
        parts
    });
    parts.sort_unstable_by_key(|part| part.start);
    let met = parts.windows(2).take_while(|pair| pair[0].reached == pair[1].start);
    let believed = 1 + met.count();
    for part in parts.drain(believed..) {
        threads[part.thread].forget_from(part.new_topics.start);
    }
    let last = &parts[believed - 1];
    let (reached, stop) = (last.reached, last.stop);
    let goes_on = last.is_full || reached >= last.limit;
    Filled { parts, reached, stop, goes_on }
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
    let mut batch = Batch { topics, extras: &mut extras, ints, wanted };
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

/// Where each part begins: the window's first byte, and records behind it at some distance from
/// each other, at most so many in all.
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
            let found = record::read(data, *place, window.readable, window.file_from_offset);
            *place > last && matches!(found, Found::Record(_))
        };
        let mut places = finder.find_iter(searched).filter_map(|at| (low + at).checked_sub(head));
        starts.extend(places.find(is_record));
    }
    starts
}
