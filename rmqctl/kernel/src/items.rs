//! The items of one message, stored into an index file: `IndexFile.put_keys`
//! (`rmqctl/engine/index/indexfile.py`) without its header.

use crate::layouts::{
    INDEX_ITEM_BYTES, INDEX_ITEM_KEY_HASH, INDEX_ITEM_PHYSICAL_OFFSET, INDEX_ITEM_PREV_INDEX_NO,
    INDEX_ITEM_TIME_DIFF_SECONDS,
};
use crate::mapped::Room;

/// Where slots and items of a file begin, how many slots there are, and the number of the next item.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    pub slots: usize,
    pub slot_count: u32,
    pub items: usize,
    pub next: i32,
}

/// What the items of a message have in common; the first one has a time of its own.
#[derive(Debug, Clone, Copy)]
pub struct Common {
    pub physical_offset: i64,
    pub first_diff: i32,
    pub diff: i32,
}

/// Stores items behind those that there are, then the slots; how many slots had none before.
///
/// A slot that names no item before the new one is an empty one (`IndexFile#putKey`).
pub fn store(room: &mut Room<'_>, places: Places, hashes: &[i32], common: Common) -> i32 {
    let mut fresh = 0;
    let mut newest: Vec<(usize, i32)> = Vec::with_capacity(hashes.len());
    for (number, &hash) in (places.next..).zip(hashes) {
        let slot = places.slots + 4 * (hash.max(0) as u32 % places.slot_count) as usize;
        let own = newest.iter().rev().find(|(other, _)| *other == slot);
        let previous = match own {
            Some((_, number)) => *number,
            None => Some(i32::from_be_bytes(room.read(slot)))
                .filter(|stored| (1..=number).contains(stored))
                .unwrap_or(0),
        };
        fresh += i32::from(previous == 0);
        newest.push((slot, number));
        let diff = if number == places.next { common.first_diff } else { common.diff };
        let mut item = [0; INDEX_ITEM_BYTES];
        put(&mut item, INDEX_ITEM_KEY_HASH, hash.to_be_bytes());
        put(&mut item, INDEX_ITEM_PHYSICAL_OFFSET, common.physical_offset.to_be_bytes());
        put(&mut item, INDEX_ITEM_TIME_DIFF_SECONDS, diff.to_be_bytes());
        put(&mut item, INDEX_ITEM_PREV_INDEX_NO, previous.to_be_bytes());
        room.write(places.items + INDEX_ITEM_BYTES * number as usize, &item);
    }
    for (slot, number) in newest {
        room.write(slot, &number.to_be_bytes());
    }
    fresh
}

fn put<const N: usize>(item: &mut [u8], at: usize, bytes: [u8; N]) {
    item[at..at + N].copy_from_slice(&bytes);
}
