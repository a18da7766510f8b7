//! An index file that is filled, or looked at, from its first item on: its slots, and how its items
//! hang on them. What `NewSlots` (`rmqctl/engine/index/newslots.py`) does with arrays.

use crate::layouts::{
    INDEX_ITEM_BYTES, INDEX_ITEM_KEY_HASH, INDEX_ITEM_PHYSICAL_OFFSET, INDEX_ITEM_PREV_INDEX_NO,
    INDEX_ITEM_TIME_DIFF_SECONDS,
};

/// The newest item of each slot; 0 where there is none.
pub struct Slots {
    newest: Vec<i32>,
    /// How many slots have an item.
    pub used: usize,
}

/// What the items of a batch have in common.
#[derive(Debug, Clone, Copy)]
pub struct Items {
    /// The number of the first one.
    pub first: i32,
    /// The time (ms) from which the file's items count; none at or below 0.
    pub begin_timestamp: i64,
    /// What the first one has in place of that.
    pub first_diff: Option<i32>,
}

impl Slots {
    /// So many empty ones.
    pub fn new(count: usize) -> Self {
        Slots { newest: vec![0; count], used: 0 }
    }

    /// Hangs an item on its slot (`IndexFile#putKey`); the number of the one before it there.
    #[inline]
    fn hang(&mut self, key_hash: i32, number: i32) -> i32 {
        let slot = key_hash.max(0) as u32 % self.newest.len() as u32;
        let previous = std::mem::replace(&mut self.newest[slot as usize], number);
        self.used += usize::from(previous == 0);
        previous
    }

    /// Consecutive items as they are stored: of `(key hash, physical offset, store time)`.
    pub fn pack(
        &mut self,
        keys: impl ExactSizeIterator<Item = (i32, i64, i64)>,
        items: Items,
        stored: &mut [u8],
    ) {
        assert_eq!(stored.len(), keys.len() * INDEX_ITEM_BYTES);
        let numbers = items.first..;
        let mut first_diff = items.first_diff;
        for ((item, (key_hash, offset, stamp)), number) in
            stored.chunks_exact_mut(INDEX_ITEM_BYTES).zip(keys).zip(numbers)
        {
            let seconds = || time_diff_seconds(stamp, items.begin_timestamp);
            let diff = first_diff.take().unwrap_or_else(seconds);
            let previous = self.hang(key_hash, number);
            put(item, INDEX_ITEM_KEY_HASH, key_hash.to_be_bytes());
            put(item, INDEX_ITEM_PHYSICAL_OFFSET, offset.to_be_bytes());
            put(item, INDEX_ITEM_TIME_DIFF_SECONDS, diff.to_be_bytes());
            put(item, INDEX_ITEM_PREV_INDEX_NO, previous.to_be_bytes());
        }
    }

    /// Hangs stored items on their slots, the first one of this number; the rows that say another
    /// item before them than there is, and which one there is.
    pub fn wrong_links(&mut self, stored: &[u8], first: i32) -> (Vec<i64>, Vec<i32>) {
        let (mut rows, mut previous) = (Vec::new(), Vec::new());
        for ((row, item), number) in stored.chunks_exact(INDEX_ITEM_BYTES).enumerate().zip(first..)
        {
            let before = self.hang(int_at(item, INDEX_ITEM_KEY_HASH), number);
            if before != int_at(item, INDEX_ITEM_PREV_INDEX_NO) {
                rows.push(row as i64);
                previous.push(before);
            }
        }
        (rows, previous)
    }

    /// The slots as they are stored, of numbers in big-endian order.
    pub fn stored(&self) -> impl ExactSizeIterator<Item = [u8; 4]> {
        self.newest.iter().map(|number| number.to_be_bytes())
    }
}

/// `time_diff_seconds` of `rmqctl/engine/index/header.py`.
#[inline]
fn time_diff_seconds(store_timestamp: i64, begin_timestamp: i64) -> i32 {
    if begin_timestamp <= 0 {
        return 0;
    }
    let seconds = store_timestamp.wrapping_sub(begin_timestamp) / 1000;
    seconds.clamp(0, i64::from(i32::MAX)) as i32
}

#[inline]
fn int_at(item: &[u8], at: usize) -> i32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&item[at..at + 4]);
    i32::from_be_bytes(bytes)
}

#[inline]
fn put<const N: usize>(item: &mut [u8], at: usize, bytes: [u8; N]) {
    item[at..at + N].copy_from_slice(&bytes);
}
