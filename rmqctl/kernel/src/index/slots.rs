//! An index file that is filled, or looked at, from its first item on: its slots, and how its items
//! hang on them. What `NewSlots` (`rmqctl/engine/index/newslots.py`) does with arrays.

use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use memmap2::{Advice, MmapMut};

use crate::bytes::fetch;
use crate::index::items::time_diff_seconds;
use crate::layouts::{
    INDEX_ITEM_BYTES, INDEX_ITEM_KEY_HASH, INDEX_ITEM_PHYSICAL_OFFSET, INDEX_ITEM_PREV_INDEX_NO,
    INDEX_ITEM_TIME_DIFF_SECONDS,
};

/// The newest item of each slot; 0 where there is none.
pub struct Slots {
    /// Of each slot the number as it is stored.
    newest: Arc<Memory>,
    count: u32,
    /// How many slots have an item.
    pub used: usize,
}

/// Items whose slots are fetched ahead: they lie far from each other.
const AHEAD: usize = 16;
/// What a slot takes.
const SLOT_BYTES: usize = size_of::<i32>();

/// Zeros. Slots are touched in no order, 20 MB of them by default: in pages as large as the system
/// gives, each of which it has to find only once.
struct Memory {
    mapped: Option<MmapMut>,
    /// Where the system has no map to give.
    owned: Vec<u8>,
}

/// What a table takes, in bytes, whose memory is kept for the next one of its size; one of the
/// default geometry takes 20 MB.
const KEPT_BYTES: RangeInclusive<usize> = 1 << 20..=32 << 20;

/// The memory of the last such table: for the system to give pages anew takes four times as long as
/// to empty them.
static KEPT: Mutex<Option<MmapMut>> = Mutex::new(None);

/// None where another thread is at it: nobody waits, as for a [`crate::bytes::memory::Shelf`].
fn kept() -> Option<MutexGuard<'static, Option<MmapMut>>> {
    match KEPT.try_lock() {
        Ok(kept) => Some(kept),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Memory {
    fn new(size: usize) -> Self {
        let again = kept().and_then(|mut kept| kept.take_if(|map| map.len() == size));
        if let Some(mut map) = again {
            map.fill(0);
            return Memory { mapped: Some(map), owned: Vec::new() };
        }
        match MmapMut::map_anon(size.max(1)) {
            Ok(map) => {
                // It may have none, and goes on with small ones.
                let _ = map.advise(Advice::HugePage);
                Memory { mapped: Some(map), owned: Vec::new() }
            }
            Err(_) => Memory { mapped: None, owned: vec![0; size] },
        }
    }

    fn bytes(&self) -> &[u8] {
        self.mapped.as_deref().unwrap_or(&self.owned)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.mapped.as_deref_mut().unwrap_or(&mut self.owned)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let map = self.mapped.take().filter(|map| KEPT_BYTES.contains(&map.len()));
        if let (Some(map), Some(mut kept)) = (map, kept()) {
            *kept = Some(map);
        }
    }
}

/// Some of the slots as they are stored. While there is one, no item is hung on any of them.
pub struct Lent {
    newest: Arc<Memory>,
    slots: Range<usize>,
}

impl Lent {
    /// Numbers in big-endian order.
    pub fn bytes(&self) -> &[u8] {
        &self.newest.bytes()[self.slots.start * SLOT_BYTES..self.slots.end * SLOT_BYTES]
    }
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
        let newest = Arc::new(Memory::new(count * SLOT_BYTES));
        Slots { newest, used: 0, count: count as u32 }
    }

    /// Consecutive items as they are stored: of `(key hash, physical offset, store time)`.
    pub fn pack(
        &mut self,
        keys: impl ExactSizeIterator<Item = (i32, i64, i64)> + Clone,
        items: Items,
        stored: &mut [u8],
    ) {
        assert_eq!(stored.len(), keys.len() * INDEX_ITEM_BYTES);
        let numbers = items.first..;
        let mut first_diff = items.first_diff;
        let mut hooks = self.hooks();
        let mut ahead = keys.clone();
        ahead.by_ref().take(AHEAD).for_each(|(key_hash, ..)| hooks.fetch(key_hash));
        for ((item, (key_hash, offset, stamp)), number) in
            stored.chunks_exact_mut(INDEX_ITEM_BYTES).zip(keys).zip(numbers)
        {
            let seconds = || time_diff_seconds(stamp, items.begin_timestamp);
            let diff = first_diff.take().unwrap_or_else(seconds);
            if let Some((next, ..)) = ahead.next() {
                hooks.fetch(next);
            }
            let previous = hooks.hang(key_hash, number);
            put(item, INDEX_ITEM_KEY_HASH, key_hash.to_be_bytes());
            put(item, INDEX_ITEM_PHYSICAL_OFFSET, offset.to_be_bytes());
            put(item, INDEX_ITEM_TIME_DIFF_SECONDS, diff.to_be_bytes());
            put(item, INDEX_ITEM_PREV_INDEX_NO, previous.to_be_bytes());
        }
    }

    /// Hangs stored items on their slots so long as each is what [`Slots::pack`] makes of its key;
    /// how many there were.
    pub fn prove(
        &mut self,
        stored: &[u8],
        keys: impl Iterator<Item = (i32, i64, i64)>,
        items: Items,
    ) -> usize {
        let mut hooks = self.hooks();
        let numbers = items.first..;
        let stored = stored.chunks_exact(INDEX_ITEM_BYTES);
        let are_proven = stored.zip(keys).zip(numbers).take_while(|((item, key), number)| {
            let (key_hash, offset, stamp) = *key;
            let diff = time_diff_seconds(stamp, items.begin_timestamp);
            int_at(item, INDEX_ITEM_KEY_HASH) == key_hash
                && item[INDEX_ITEM_PHYSICAL_OFFSET..][..8] == offset.to_be_bytes()
                && int_at(item, INDEX_ITEM_TIME_DIFF_SECONDS) == diff
                && hooks.hang_behind(key_hash, *number, int_at(item, INDEX_ITEM_PREV_INDEX_NO))
        });
        are_proven.count()
    }

    /// Hangs stored items on their slots, the first one of this number; the rows that say another
    /// item before them than there is, and which one there is.
    pub fn wrong_links(&mut self, stored: &[u8], first: i32) -> (Vec<i64>, Vec<i32>) {
        let (mut rows, mut previous) = (Vec::new(), Vec::new());
        let mut hooks = self.hooks();
        for ((row, item), number) in stored.chunks_exact(INDEX_ITEM_BYTES).enumerate().zip(first..)
        {
            let before = hooks.hang(int_at(item, INDEX_ITEM_KEY_HASH), number);
            if before != int_at(item, INDEX_ITEM_PREV_INDEX_NO) {
                rows.push(row as i64);
                previous.push(before);
            }
        }
        (rows, previous)
    }

    /// Some of the slots, none beyond the last; None when none of them has an item.
    pub fn stored(&self, slots: Range<usize>) -> Option<Lent> {
        let lent = Lent { newest: Arc::clone(&self.newest), slots };
        let is_used = lent.bytes().chunks_exact(SLOT_BYTES).any(|slot| slot != [0; SLOT_BYTES]);
        is_used.then_some(lent)
    }

    /// Whether somebody looks at slots as they are: no item can be hung on any.
    pub fn is_lent(&self) -> bool {
        Arc::strong_count(&self.newest) > 1
    }

    fn hooks(&mut self) -> Hooks<'_> {
        let newest = Arc::get_mut(&mut self.newest).expect("nobody looks at the slots");
        Hooks { newest: newest.bytes_mut(), count: self.count, used: &mut self.used }
    }
}

/// Where items are hung.
struct Hooks<'a> {
    newest: &'a mut [u8],
    count: u32,
    used: &'a mut usize,
}

impl Hooks<'_> {
    /// Hangs an item on its slot (`IndexFile#putKey`); the number of the one before it there.
    #[inline]
    fn hang(&mut self, key_hash: i32, number: i32) -> i32 {
        let slot = self.slot(key_hash);
        let previous = int_at(slot, 0);
        slot.copy_from_slice(&number.to_be_bytes());
        *self.used += usize::from(previous == 0);
        previous
    }

    /// The same, unless another item is before it than this one.
    #[inline]
    fn hang_behind(&mut self, key_hash: i32, number: i32, previous: i32) -> bool {
        let slot = self.slot(key_hash);
        let is_behind = int_at(slot, 0) == previous;
        if is_behind {
            slot.copy_from_slice(&number.to_be_bytes());
            *self.used += usize::from(previous == 0);
        }
        is_behind
    }

    /// Has the processor fetch an item's slot.
    #[inline]
    fn fetch(&self, key_hash: i32) {
        let at = self.place(key_hash);
        fetch::range(self.newest, at, at + SLOT_BYTES);
    }

    #[inline]
    fn slot(&mut self, key_hash: i32) -> &mut [u8] {
        let at = self.place(key_hash);
        &mut self.newest[at..at + SLOT_BYTES]
    }

    #[inline]
    fn place(&self, key_hash: i32) -> usize {
        (key_hash.max(0) as u32 % self.count) as usize * SLOT_BYTES
    }
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
