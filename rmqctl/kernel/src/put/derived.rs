//! What dispatch makes of records that are being stored: the code of their tags, and the hashes of
//! their keys.

use crate::record::indexkeys::{KeyPrefix, each_key};
use crate::record::keyhash::hash_code;
use crate::record::properties::Properties;
use crate::record::shapes::KnownShapes;

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
pub fn plain_properties(
    shapes: &mut KnownShapes,
    record: &[u8],
    start: usize,
    end: usize,
) -> Option<Properties> {
    let found = shapes.read(record, start, end);
    let is_plain = found.delay == (0, 0) && found.multi_dispatch == (0, 0) && !found.malformed;
    is_plain.then_some(found)
}

/// The code of a record's tags; 0 without tags.
#[inline]
pub fn tags_code(record: &[u8], found: &Properties) -> i64 {
    i64::from(hash_code(record, found.tags.0, found.tags.1, 0) as i32)
}

/// Adds the hashes of a record's keys in the order of their index items.
#[inline]
pub fn add_hashes(record: &[u8], found: &Properties, prefix: KeyPrefix, hashes: &mut Vec<i32>) {
    each_key(record, found, prefix, |key| hashes.push(key.hash));
}

impl Keys {
    pub fn clear(&mut self) {
        self.hashes.clear();
        self.offsets.clear();
        self.stamps.clear();
    }

    /// Adds the keys of one record.
    #[inline]
    pub fn add(
        &mut self,
        record: &[u8],
        found: &Properties,
        prefix: KeyPrefix,
        offset: i64,
        stamp: i64,
    ) {
        add_hashes(record, found, prefix, &mut self.hashes);
        self.offsets.resize(self.hashes.len(), offset);
        self.stamps.resize(self.hashes.len(), stamp);
    }
}
