//! Lines of many records, made by several threads: each has some of them, one behind the other, so
//! that the lines stand in their order whatever the number of threads.

use std::panic::resume_unwind;
use std::thread;

use crate::fetch;
use crate::record::Record;
use crate::rows::Lines;

/// Records that are worth the start of a thread, mostly.
pub const SHARE: usize = 128;
/// Bytes that a line has beside what it tells of the record's own bytes, about.
const LINE_BYTES: usize = 600;
/// Records at once where one was not plain before.
const FEW: usize = 32;
/// Records further on that the processor is told of, and bytes of each.
const AHEAD: usize = 6;
const MOST_TOUCHED: usize = 1 << 12;

/// A record of a file, and its place there.
pub type Placed = (usize, Record);

/// What one thread has made.
#[derive(Debug)]
struct Maker {
    lines: Lines,
    /// Is used again: fresh memory costs more than what is stored into it.
    out: Vec<u8>,
    /// Behind each line: the bytes, and how many bodies were not what was stored.
    marks: Vec<(usize, usize)>,
}

impl Maker {
    fn new(lines: Lines) -> Self {
        Maker { lines, out: Vec::new(), marks: Vec::new() }
    }

    fn clear(&mut self) {
        self.out.clear();
        self.marks.clear();
        self.lines.mismatches = 0;
    }

    fn make(&mut self, data: &[u8], records: &[Placed]) {
        for (number, (position, record)) in records.iter().enumerate() {
            if let Some((start, next)) = records.get(number + AHEAD) {
                fetch::range(data, *start, start + next.total_size.min(MOST_TOUCHED));
            }
            if !self.lines.push(&mut self.out, data, *position, record) {
                break;
            }
            self.marks.push((self.out.len(), self.lines.mismatches));
        }
    }

    /// Keeps so many lines at most.
    fn truncate(&mut self, count: usize) {
        self.marks.truncate(count);
        let (bytes, mismatches) = self.marks.last().copied().unwrap_or_default();
        self.out.truncate(bytes);
        self.lines.mismatches = mismatches;
    }
}

/// Makes lines of records by some threads.
#[derive(Debug)]
pub struct LineMakers {
    makers: Vec<Maker>,
    /// Records that a thread is started for.
    share: usize,
    /// Records that are taken at once, at most.
    at_once: usize,
}

impl LineMakers {
    /// By so many threads, one at least, each of which has `share` records or more.
    pub fn new(lines: &Lines, threads: usize, share: usize) -> Self {
        let makers = (0..threads.max(1)).map(|_| Maker::new(lines.clone())).collect();
        LineMakers { makers, share, at_once: usize::MAX }
    }

    /// What makes a line of one record.
    pub fn lines(&mut self) -> &mut Lines {
        &mut self.makers[0].lines
    }

    /// Whether lines of these records, which have so many `bytes`, are enough for a room; not many
    /// are where one of the last ones was not plain: what follows it is looked at in vain.
    pub fn is_enough(&self, records: usize, bytes: usize, room: usize) -> bool {
        records >= self.at_once || bytes.saturating_add(records.saturating_mul(LINE_BYTES)) >= room
    }

    /// Makes the lines of records up to the first that is not plain; how many there are.
    pub fn make(&mut self, data: &[u8], records: &[Placed]) -> usize {
        self.makers.iter_mut().for_each(Maker::clear);
        let threads = self.makers.len().min(records.len() / self.share).max(1);
        let share = records.len().div_ceil(threads).max(1);
        let mut work = self.makers.iter_mut().zip(records.chunks(share));
        let Some((first, own)) = work.next() else { return 0 };
        thread::scope(|scope| {
            let others: Vec<_> = work
                .map(|(maker, records)| scope.spawn(move || maker.make(data, records)))
                .collect();
            first.make(data, own);
            for other in others {
                other.join().unwrap_or_else(|cause| resume_unwind(cause));
            }
        });
        let mut count = 0;
        for (maker, records) in self.makers.iter_mut().zip(records.chunks(share)) {
            count += maker.marks.len();
            if maker.marks.len() < records.len() {
                break;
            }
        }
        self.truncate(count);
        self.at_once =
            if count < records.len() { FEW } else { self.at_once.saturating_mul(2).max(FEW) };
        count
    }

    /// Keeps so many of the lines at most.
    pub fn truncate(&mut self, count: usize) {
        let mut left = count;
        for maker in &mut self.makers {
            maker.truncate(left);
            left -= maker.marks.len();
        }
    }

    /// The lines, in pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.makers.iter().map(|maker| maker.out.as_slice())
    }

    /// Of how many of the lines the body is not what was stored.
    pub fn mismatches(&self) -> usize {
        self.makers.iter().map(|maker| maker.lines.mismatches).sum()
    }
}
