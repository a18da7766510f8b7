//! What dispatch makes of records that are being stored: the code of their tags, and the hashes of
//! their keys. The scanner finds the same in stored records (`each_key` in `scan/window.rs`).

use crate::layouts::KEY_SEPARATOR;
use crate::record::keyhash::{hash_code, index_hash};
use crate::record::properties::{self, Properties};

/// The keys of some records in the order of their index items, as parallel columns: the hash of each
/// key, and the physical offset and store time (ms) of its record.
#[derive(Debug, Default)]
pub struct Keys {
    pub hashes: Vec<i32>,
    pub offsets: Vec<i64>,
    pub stamps: Vec<i64>,
}

/// Parses the properties at `start..end` of a record that will be stored. None if dispatch has more to
/// do than to make one unit and the items of its keys, or if they could not be read back.
#[inline]
pub fn plain_properties(record: &[u8], start: usize, end: usize) -> Option<Properties> {
    let found = properties::read(record, start, end);
    let is_plain = found.delay == (0, 0) && found.multi_dispatch == (0, 0) && !found.malformed;
    is_plain.then_some(found)
}

/// The hash of `topic#`, with which the hash of each key of the topic begins.
#[inline]
pub fn key_prefix(topic: &[u8]) -> u32 {
    hash_code(topic, 0, topic.len(), 0).wrapping_mul(31).wrapping_add(u32::from(b'#'))
}

/// The code of a record's tags; 0 without tags.
#[inline]
pub fn tags_code(record: &[u8], found: &Properties) -> i64 {
    i64::from(hash_code(record, found.tags.0, found.tags.1, 0) as i32)
}

/// Adds the hashes of a record's keys in the order of their index items.
#[inline]
pub fn add_hashes(record: &[u8], found: &Properties, key_prefix: u32, hashes: &mut Vec<i32>) {
    let mut add = |start: usize, end: usize| {
        if start < end {
            hashes.push(index_hash(hash_code(record, start, end, key_prefix)));
        }
    };
    add(found.uniq_key.0, found.uniq_key.1);
    let (mut start, end) = found.keys;
    for space in memchr::memchr_iter(KEY_SEPARATOR, &record[found.keys.0..end]) {
        let space = found.keys.0 + space;
        add(start, space);
        start = space + 1;
    }
    add(start, end);
}

impl Keys {
    pub fn clear(&mut self) {
        self.hashes.clear();
        self.offsets.clear();
        self.stamps.clear();
    }

    /// Adds the keys of one record.
    #[inline]
    pub fn add(&mut self, record: &[u8], found: &Properties, prefix: u32, offset: i64, stamp: i64) {
        add_hashes(record, found, prefix, &mut self.hashes);
        self.offsets.resize(self.hashes.len(), offset);
        self.stamps.resize(self.hashes.len(), stamp);
    }
}
