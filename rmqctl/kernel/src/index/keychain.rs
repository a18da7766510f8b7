//! Finds the items of a key in an index file, as `IndexFile.select`
//! (`rmqctl/engine/index/indexfile.py`) and RocketMQ's `IndexFile#selectPhyOffset` do.
//!
//! Slot and items are read(2) one by one. The file is not mapped, because it may shrink at any time.

use std::io;

use crate::layouts::{
    INDEX_HEADER_BEGIN_TIMESTAMP, INDEX_HEADER_BYTES, INDEX_HEADER_END_TIMESTAMP,
    INDEX_HEADER_INDEX_COUNT, INDEX_ITEM_BYTES, INDEX_ITEM_KEY_HASH, INDEX_ITEM_PHYSICAL_OFFSET,
    INDEX_ITEM_PREV_INDEX_NO, INDEX_ITEM_TIME_DIFF_SECONDS, INDEX_SLOT_BYTES,
};
use crate::record::entry::{i32_at, i64_at};

/// Something that is read in pieces: a file, or bytes in memory.
pub trait Pieces {
    /// Fills `piece` from a position on. It is an error if the file ends before.
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

/// How many slots a file has, and how many items (`maxIndexNum`), of which item 0 is never used.
#[derive(Debug, Clone, Copy)]
pub struct Geometry {
    pub slots: u32,
    pub items: i32,
}

/// The wanted items: those with a key hash (never negative) and a time from `begin` to `end` (ms,
/// both inclusive). With `is_growing` a writer may store more items behind the header's count while
/// the file is read.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub key_hash: i32,
    pub begin: i64,
    pub end: i64,
    pub is_growing: bool,
}

/// How far a search has come: the header's begin and count when it began, and the number of the next
/// item to read; 0 at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    pub begin_timestamp: i64,
    pub index_count: i32,
    pub index_no: i32,
}

/// An item: its number, its physical offset, its time (seconds, as stored), and the number of the item
/// before it in the slot.
pub type Hit = (i32, i64, i32, i32);

/// The first and the last store time (ms) and the count of a file's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    first: i64,
    last: i64,
    index_count: i32,
}

impl Header {
    pub fn read<F: Pieces + ?Sized>(file: &F) -> io::Result<Self> {
        let mut header = [0; INDEX_HEADER_BYTES];
        file.read(&mut header, 0)?;
        Ok(Header {
            first: i64_at(&header, INDEX_HEADER_BEGIN_TIMESTAMP),
            last: i64_at(&header, INDEX_HEADER_END_TIMESTAMP),
            // As `IndexHeader#load` has it.
            index_count: i32_at(&header, INDEX_HEADER_INDEX_COUNT).max(1),
        })
    }

    fn is_time_matched(&self, begin: i64, end: i64) -> bool {
        let times = self.first..=self.last;
        (begin < self.first && end > self.last) || times.contains(&begin) || times.contains(&end)
    }
}

/// Begins a search at the newest item of the key's slot, or at the end if the file has no item in that
/// time. `known` is the header as it was read for another key. It is read again, and replaced, if
/// messages that were indexed since can change the result.
pub fn start<F: Pieces + ?Sized>(
    file: &F,
    geometry: Geometry,
    wanted: Wanted,
    known: &mut Option<Header>,
) -> io::Result<Reached> {
    let (begin, end) = (wanted.begin, wanted.end);
    let tells = |header: &Header| header.index_count > 1 && header.is_time_matched(begin, end);
    let (header, is_read) = match known.filter(tells) {
        Some(header) => (header, false),
        None => (*known.insert(Header::read(file)?), true),
    };
    let mut reached =
        Reached { begin_timestamp: header.first, index_count: header.index_count, index_no: 0 };
    if tells(&header) && geometry.slots > 0 {
        let mut slot = [0; INDEX_SLOT_BYTES];
        let number = u64::from(wanted.key_hash.max(0) as u32 % geometry.slots);
        let position = INDEX_HEADER_BYTES as u64 + number * INDEX_SLOT_BYTES as u64;
        file.read(&mut slot, position)?;
        let newest = i32_at(&slot, 0);
        // The count is the number of the next item.
        if newest >= header.index_count && !is_read {
            *known = None;
            return start(file, geometry, wanted, known);
        }
        if wanted.is_growing || newest <= header.index_count {
            reached.index_no = newest;
        }
    }
    Ok(reached)
}

/// Continues a search: the next hits, newest first, at most `most` of them. It reads at most `steps`
/// items, and subtracts those that it read. The chain ends at the first link that does not lead to an
/// earlier item, so a cycle in a damaged file ends, too.
pub fn select<F: Pieces + ?Sized>(
    file: &F,
    geometry: Geometry,
    wanted: Wanted,
    reached: &mut Reached,
    (most, steps): (usize, &mut usize),
) -> io::Result<Vec<Hit>> {
    let slots = u64::from(geometry.slots) * INDEX_SLOT_BYTES as u64;
    let items = INDEX_HEADER_BYTES as u64 + slots;
    let mut hits = Vec::new();
    while *steps > 0 {
        *steps -= 1;
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

#[cfg(test)]
mod tests {
    use super::{Geometry, Header, Wanted, select, start};
    use crate::layouts::{
        INDEX_HEADER_BYTES, INDEX_HEADER_END_TIMESTAMP, INDEX_HEADER_INDEX_COUNT,
    };

    /// A file of one slot that has so many items, all of key hash 5.
    fn file(items: i32) -> Vec<u8> {
        let mut file = vec![0; INDEX_HEADER_BYTES];
        file[INDEX_HEADER_END_TIMESTAMP..][..8].copy_from_slice(&9i64.to_be_bytes());
        file[INDEX_HEADER_INDEX_COUNT..][..4].copy_from_slice(&(items + 1).to_be_bytes());
        file.extend(items.to_be_bytes());
        file.extend([0; 20]);
        for number in 1..=items {
            file.extend(5i32.to_be_bytes());
            file.extend((i64::from(number) * 100).to_be_bytes());
            file.extend(0i32.to_be_bytes());
            file.extend((number - 1).to_be_bytes());
        }
        file
    }

    #[test]
    fn a_header_that_knows_less_than_the_slot_is_read_again() {
        let geometry = Geometry { slots: 1, items: 9 };
        let pairs = [(3, 3), (3, 4), (3, 7), (1, 2), (0, 0), (0, 2)];
        let cases = pairs.into_iter().flat_map(|pair| [(pair, false), (pair, true)]);
        for ((before, now), is_growing) in cases {
            let wanted = Wanted { key_hash: 5, begin: -1, end: i64::MAX, is_growing };
            let mut known = Some(Header::read(&*file(before)).expect("a header"));
            let file = file(now);
            let mut reached = start(&*file, geometry, wanted, &mut known).expect("a file");
            let steps = &mut 9;
            let hits = select(&*file, geometry, wanted, &mut reached, (9, steps)).expect("items");
            let offsets: Vec<i64> = hits.iter().map(|hit| hit.1).collect();
            let newest: Vec<i64> = (1..=i64::from(now)).rev().map(|number| number * 100).collect();
            assert_eq!(offsets, newest, "{before} items, then {now}");
            assert_eq!(*steps, 9 - now as usize - 1);
        }
    }
}
