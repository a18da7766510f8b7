//! The slots of an index file that is filled, or checked, from its first item on. `NewSlots`
//! (`rmqctl/engine/index/newslots.py`) does the same with arrays.

use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use memmap2::{Advice, MmapMut};

use crate::bytes::fetch;
use crate::index::items::time_diff_seconds;
use crate::layouts::{
    INDEX_ITEM_BYTES, INDEX_ITEM_KEY_HASH, INDEX_ITEM_PHYSICAL_OFFSET, INDEX_ITEM_PREV_INDEX_NO,
    INDEX_ITEM_TIME_DIFF_SECONDS,
};

/// The newest item of each slot; 0 if it has none.
pub struct Slots {
    /// The item numbers of all slots, as they are stored.
    newest: Arc<Memory>,
    count: u32,
    /// How many slots have an item.
    pub used: usize,
}

/// How many items ahead slots are prefetched: slots are far apart.
const AHEAD: usize = 16;
/// Bytes of a slot.
const SLOT_BYTES: usize = size_of::<i32>();

/// Memory that begins as zeros, 20 MB by default. Slots are accessed in random order, so it is in huge
/// pages if the system has some: that causes fewer page faults and TLB misses.
struct Memory {
    mapped: Option<MmapMut>,
    /// Used if the system gives no map.
    owned: Vec<u8>,
}

/// The sizes (bytes) of memory that is kept for the next table of the same size. With the default
/// geometry it is 20 MB.
const KEPT_BYTES: RangeInclusive<usize> = 1 << 20..=32 << 20;

/// The memory of the last such table. To get new pages from the system takes four times as long as to
/// zero these.
static KEPT: Mutex<Option<MmapMut>> = Mutex::new(None);

/// The kept memory; None while another thread holds the lock. Nobody waits for it, for the same reason
/// as with [`crate::bytes::memory::Shelf`].
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
                // Without huge pages it works as well, with small ones.
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

/// A range of the slots, as they are stored. While one exists, no item can be added to any slot.
pub struct Lent {
    newest: Arc<Memory>,
    slots: Range<usize>,
}

impl Lent {
    /// The item numbers, big-endian.
    pub fn bytes(&self) -> &[u8] {
        &self.newest.bytes()[self.slots.start * SLOT_BYTES..self.slots.end * SLOT_BYTES]
    }
}

/// What the items of a batch have in common.
#[derive(Debug, Clone, Copy)]
pub struct Items {
    /// The number of the first one.
    pub first: i32,
    /// The time (ms) from which the times of items count; at most 0: there is none.
    pub begin_timestamp: i64,
    /// The time (s) of the first item, if it is not computed like the others.
    pub first_diff: Option<i32>,
}

impl Slots {
    /// So many empty slots.
    pub fn new(count: usize) -> Self {
        let newest = Arc::new(Memory::new(count * SLOT_BYTES));
        Slots { newest, used: 0, count: count as u32 }
    }

    /// Writes the items of `(key hash, physical offset, store time in ms)` into `stored`, as they are
    /// stored in the file, and adds them to their slots.
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

    /// Adds stored items to their slots, up to the first that differs from what [`Slots::pack`] makes
    /// of its key. Returns how many were added.
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

    /// Adds stored items to their slots; the first one has the number `first`. Returns the rows of the
    /// items whose link is wrong, and the numbers that these links should have.
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

    /// A range of the slots; None if none of these has an item. The range must not go beyond the last
    /// slot.
    pub fn stored(&self, slots: Range<usize>) -> Option<Lent> {
        let lent = Lent { newest: Arc::clone(&self.newest), slots };
        let is_used = lent.bytes().chunks_exact(SLOT_BYTES).any(|slot| slot != [0; SLOT_BYTES]);
        is_used.then_some(lent)
    }

    /// Whether a [`Lent`] exists, so that no item can be added.
    pub fn is_lent(&self) -> bool {
        Arc::strong_count(&self.newest) > 1
    }

    fn hooks(&mut self) -> Hooks<'_> {
        let newest = Arc::get_mut(&mut self.newest).expect("nobody looks at the slots");
        Hooks { newest: newest.bytes_mut(), count: self.count, used: &mut self.used }
    }
}

/// The slots, borrowed to add items.
struct Hooks<'a> {
    newest: &'a mut [u8],
    count: u32,
    used: &'a mut usize,
}

impl Hooks<'_> {
    /// Adds an item to its slot (`IndexFile#putKey`). Returns the number of the item before it.
    #[inline]
    fn hang(&mut self, key_hash: i32, number: i32) -> i32 {
        let slot = self.slot(key_hash);
        let previous = int_at(slot, 0);
        slot.copy_from_slice(&number.to_be_bytes());
        *self.used += usize::from(previous == 0);
        previous
    }

    /// Adds an item to its slot if the item before it there is `previous`. Returns whether it is.
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

    /// Prefetches the slot of a key hash.
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
