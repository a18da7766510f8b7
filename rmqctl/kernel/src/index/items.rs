//! Stores the items of one message, or of many, into an index file, as `IndexFile.put_keys` and
//! `put_key_batch` (`rmqctl/engine/index/indexfile.py`) do.

use std::hint::black_box;

use crate::bytes::mapped::Room;
use crate::layouts::{
    INDEX_HEADER_BEGIN_PHY_OFFSET, INDEX_HEADER_BEGIN_TIMESTAMP, INDEX_HEADER_BYTES,
    INDEX_HEADER_END_PHY_OFFSET, INDEX_HEADER_END_TIMESTAMP, INDEX_HEADER_HASH_SLOT_COUNT,
    INDEX_HEADER_INDEX_COUNT, INDEX_ITEM_BYTES, INDEX_ITEM_KEY_HASH, INDEX_ITEM_PHYSICAL_OFFSET,
    INDEX_ITEM_PREV_INDEX_NO, INDEX_ITEM_TIME_DIFF_SECONDS,
};

/// How many slots are read at once before their items are stored.
const AT_ONCE: usize = 32;

/// The positions (bytes) in a file at which its slots begin, and at which item 0 would be, how many
/// slots it has, and the number of the next item.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    pub slots: usize,
    pub slot_count: u32,
    pub items: usize,
    pub next: i32,
}

/// What the items of a message have in common. `first_diff` (s) is the time of the file's first item,
/// `diff` (s) that of all others.
#[derive(Debug, Clone, Copy)]
pub struct Common {
    pub physical_offset: i64,
    pub first_diff: i32,
    pub diff: i32,
}

/// Prefetches the slots of hashes whose items are stored soon: slots are far apart.
pub fn fetch(room: &Room<'_>, places: Places, hashes: &[i32]) {
    for &hash in hashes {
        room.fetch(places.slot_of(hash));
    }
}

/// Stores the items of one message behind the items of the file, and then their slots. Returns how
/// many slots had no item before.
///
/// A slot counts as empty if it does not name an item before the new one (`IndexFile#putKey`).
pub fn store(room: &mut Room<'_>, places: Places, hashes: &[i32], common: Common) -> i32 {
    let slot_of = |hash: i32| places.slot_of(hash);
    let mut fresh = 0;
    for (at, (number, &hash)) in (places.next..).zip(hashes).enumerate() {
        let slot = slot_of(hash);
        let own = hashes[..at].iter().rposition(|other| slot_of(*other) == slot);
        let previous = match own {
            Some(before) => places.next + before as i32,
            None => Some(i32::from_be_bytes(room.claim(slot)))
                .filter(|stored| (1..=number).contains(stored))
                .unwrap_or(0),
        };
        fresh += i32::from(previous == 0);
        let diff = if number == places.next { common.first_diff } else { common.diff };
        let item = item_of(hash, common.physical_offset, diff, previous);
        room.write(places.items + INDEX_ITEM_BYTES * number as usize, &item);
    }
    for (number, &hash) in (places.next..).zip(hashes) {
        room.write(slot_of(hash), &number.to_be_bytes());
    }
    fresh
}

/// The fields of `IndexHeader`: times (ms) and physical offsets of the first and the last message,
/// `hash_slot_count` and `index_count`.
pub type Header = (i64, i64, i64, i64, i32, i32);

/// Hash, physical offset and store time (ms) of a key.
pub type Key = (i32, i64, i64);

/// Stores the items of consecutive keys behind the items of the file, each before its slot, and then
/// the header. `header` already counts the items; the slots that had no item before are added to it.
/// `first_diff` (s) is the time of the first item. Returns the stored header.
pub fn store_run(
    room: &mut Room<'_>,
    places: Places,
    keys: &[Key],
    first_diff: i32,
    header: Header,
) -> Header {
    let (begin_timestamp, end, begin_offset, end_offset, slots, count) = header;
    let mut fresh = 0;
    for (number, keys) in (places.next..).step_by(AT_ONCE).zip(keys.chunks(AT_ONCE)) {
        // First read all slots: they are far apart, and the processor waits for many cache misses at
        // once as long as no other work depends on them.
        for (hash, ..) in keys {
            black_box(room.read::<4>(places.slot_of(*hash)));
        }
        for (number, &(hash, physical_offset, stamp)) in (number..).zip(keys) {
            let slot = places.slot_of(hash);
            let stored = i32::from_be_bytes(room.read(slot));
            let previous = if (1..=number).contains(&stored) { stored } else { 0 };
            fresh += i32::from(previous == 0);
            let is_first = number == places.next;
            let seconds = || time_diff_seconds(stamp, begin_timestamp);
            let diff = if is_first { first_diff } else { seconds() };
            let item = item_of(hash, physical_offset, diff, previous);
            room.write(places.items + INDEX_ITEM_BYTES * number as usize, &item);
            room.write(slot, &number.to_be_bytes());
        }
    }
    // A count that overflows wraps, as in Java.
    let slots = slots.wrapping_add(fresh);
    let header = (begin_timestamp, end, begin_offset, end_offset, slots, count);
    store_header(room, header);
    header
}

impl Places {
    /// The position of the slot of a hash.
    #[inline]
    fn slot_of(&self, hash: i32) -> usize {
        self.slots + 4 * (hash.max(0) as u32 % self.slot_count) as usize
    }
}

/// `time_diff_seconds` of `rmqctl/engine/index/header.py`. A difference that overflows wraps, as in
/// Java.
#[inline]
pub fn time_diff_seconds(store_timestamp: i64, begin_timestamp: i64) -> i32 {
    if begin_timestamp <= 0 {
        return 0;
    }
    let seconds = store_timestamp.wrapping_sub(begin_timestamp) / 1000;
    seconds.clamp(0, i64::from(i32::MAX)) as i32
}

/// Stores a header (`IndexHeader`), the count last, so that all items that it counts are whole.
pub fn store_header(room: &mut Room<'_>, header: Header) {
    let (begin, end, begin_offset, end_offset, slot_count, count) = header;
    let mut stored = [0; INDEX_HEADER_BYTES];
    put(&mut stored, INDEX_HEADER_BEGIN_TIMESTAMP, begin.to_be_bytes());
    put(&mut stored, INDEX_HEADER_END_TIMESTAMP, end.to_be_bytes());
    put(&mut stored, INDEX_HEADER_BEGIN_PHY_OFFSET, begin_offset.to_be_bytes());
    put(&mut stored, INDEX_HEADER_END_PHY_OFFSET, end_offset.to_be_bytes());
    put(&mut stored, INDEX_HEADER_HASH_SLOT_COUNT, slot_count.to_be_bytes());
    room.write(0, &stored[..INDEX_HEADER_INDEX_COUNT]);
    room.publish(INDEX_HEADER_INDEX_COUNT, &count.to_be_bytes());
}

fn item_of(hash: i32, physical_offset: i64, diff: i32, previous: i32) -> [u8; INDEX_ITEM_BYTES] {
    let mut item = [0; INDEX_ITEM_BYTES];
    put(&mut item, INDEX_ITEM_KEY_HASH, hash.to_be_bytes());
    put(&mut item, INDEX_ITEM_PHYSICAL_OFFSET, physical_offset.to_be_bytes());
    put(&mut item, INDEX_ITEM_TIME_DIFF_SECONDS, diff.to_be_bytes());
    put(&mut item, INDEX_ITEM_PREV_INDEX_NO, previous.to_be_bytes());
    item
}

fn put<const N: usize>(stored: &mut [u8], at: usize, bytes: [u8; N]) {
    stored[at..at + N].copy_from_slice(&bytes);
}
