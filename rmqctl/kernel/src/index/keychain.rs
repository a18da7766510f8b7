//! The items of a key in an index file: `IndexFile.select` (`rmqctl/engine/index/indexfile.py`),
//! `IndexFile#selectPhyOffset` of the engine.
//!
//! The file is read place by place and never mapped: it may shrink at any time.

use std::io;

use crate::layouts::{
    INDEX_HEADER_BEGIN_TIMESTAMP, INDEX_HEADER_BYTES, INDEX_HEADER_END_TIMESTAMP,
    INDEX_HEADER_INDEX_COUNT, INDEX_ITEM_BYTES, INDEX_ITEM_KEY_HASH, INDEX_ITEM_PHYSICAL_OFFSET,
    INDEX_ITEM_PREV_INDEX_NO, INDEX_ITEM_TIME_DIFF_SECONDS, INDEX_SLOT_BYTES,
};
use crate::record::entry::{i32_at, i64_at};

/// What is read in pieces.
pub trait Pieces {
    /// Fills `piece` from a position; an error where the file ends before.
    fn read(&self, piece: &mut [u8], position: u64) -> io::Result<()>;
}

impl Pieces for [u8] {
    fn read(&self, piece: &mut [u8], position: u64) -> io::Result<()> {
        let start = usize::try_from(position).unwrap_or(usize::MAX);
        let end = start.saturating_add(piece.len());
        piece.copy_from_slice(self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// How many slots a file has, and its items, of which the first place lies idle (`maxIndexNum`).
#[derive(Debug, Clone, Copy)]
pub struct Geometry {
    pub slots: u32,
    pub items: i32,
}

/// Items that are wanted: of a key hash (never negative), and stored within times (ms) that are
/// both inclusive. A file that `is_growing` may get more behind the header's count meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub key_hash: i32,
    pub begin: i64,
    pub end: i64,
    pub is_growing: bool,
}

/// How far a search has come: what the header said, and the number of the next item; 0: the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    pub begin_timestamp: i64,
    pub index_count: i32,
    pub index_no: i32,
}

/// Number, physical offset, seconds since the file's begin and the number of the item before.
pub type Hit = (i32, i64, i32, i32);

/// Begins a search: at the slot's newest item, where the file has anything to say.
pub fn start<F: Pieces + ?Sized>(
    file: &F,
    geometry: Geometry,
    wanted: Wanted,
) -> io::Result<Reached> {
    let mut header = [0; INDEX_HEADER_BYTES];
    file.read(&mut header, 0)?;
    let first = i64_at(&header, INDEX_HEADER_BEGIN_TIMESTAMP);
    let last = i64_at(&header, INDEX_HEADER_END_TIMESTAMP);
    // As `IndexHeader#load` has it.
    let index_count = i32_at(&header, INDEX_HEADER_INDEX_COUNT).max(1);
    let (begin, end) = (wanted.begin, wanted.end);
    let is_time_matched = (begin < first && end > last)
        || (first..=last).contains(&begin)
        || (first..=last).contains(&end);
    let mut reached = Reached { begin_timestamp: first, index_count, index_no: 0 };
    if is_time_matched && index_count > 1 && geometry.slots > 0 {
        let mut slot = [0; INDEX_SLOT_BYTES];
        let number = u64::from(wanted.key_hash.max(0) as u32 % geometry.slots);
        let header = INDEX_HEADER_BYTES as u64;
        file.read(&mut slot, header + number * INDEX_SLOT_BYTES as u64)?;
        let newest = i32_at(&slot, 0);
        if wanted.is_growing || newest <= index_count {
            reached.index_no = newest;
        }
    }
    Ok(reached)
}

/// Goes on with a search: the next hits, `most` of them at most, newest first, having looked at
/// `steps` items at most. A chain ends at the first link that does not go back.
pub fn select<F: Pieces + ?Sized>(
    file: &F,
    geometry: Geometry,
    wanted: Wanted,
    reached: &mut Reached,
    (most, steps): (usize, usize),
) -> io::Result<Vec<Hit>> {
    let slots = u64::from(geometry.slots) * INDEX_SLOT_BYTES as u64;
    let items = INDEX_HEADER_BYTES as u64 + slots;
    let mut hits = Vec::new();
    for _ in 0..steps {
        let number = reached.index_no;
        if number <= 0 || number >= geometry.items {
            reached.index_no = 0;
        }
        if reached.index_no == 0 || hits.len() == most {
            break;
        }
        let mut item = [0; INDEX_ITEM_BYTES];
        file.read(&mut item, items + number as u64 * INDEX_ITEM_BYTES as u64)?;
        let previous = i32_at(&item, INDEX_ITEM_PREV_INDEX_NO);
        reached.index_no = if previous < number { previous } else { 0 };
        if wanted.is_growing && number >= reached.index_count {
            continue;
        }
        let seconds = i32_at(&item, INDEX_ITEM_TIME_DIFF_SECONDS);
        let time = i128::from(reached.begin_timestamp) + i128::from(seconds) * 1000;
        if seconds < 0 {
            reached.index_no = 0;
            break;
        }
        let is_within = (i128::from(wanted.begin)..=i128::from(wanted.end)).contains(&time);
        if is_within && i32_at(&item, INDEX_ITEM_KEY_HASH) == wanted.key_hash {
            hits.push((number, i64_at(&item, INDEX_ITEM_PHYSICAL_OFFSET), seconds, previous));
        }
        if time < i128::from(wanted.begin) {
            reached.index_no = 0;
        }
    }
    Ok(hits)
}
