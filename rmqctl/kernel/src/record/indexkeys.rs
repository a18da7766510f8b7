//! The keys under which the index has a record (`IndexService#buildIndex`).

use crate::layouts::{INDEX_TAG_TYPE, KEY_SEPARATOR};
use crate::record::keyhash::{hash_code, index_hash};
use crate::record::properties::Properties;

/// The hashes with which the keys of a topic's index items begin.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct KeyPrefix {
    /// Of `topic#`, before a key.
    pub keys: u32,
    /// Of `topic#T#`, before the tags; None if tags are not indexed, as by versions before 5.4.
    pub tags: Option<u32>,
}

impl KeyPrefix {
    pub fn of(topic: &[u8], indexes_tags: bool) -> Self {
        let next = |before: u32, byte: u8| before.wrapping_mul(31).wrapping_add(u32::from(byte));
        let keys = next(hash_code(topic, 0, topic.len(), 0), b'#');
        let tags = indexes_tags.then(|| next(next(keys, INDEX_TAG_TYPE), b'#'));
        KeyPrefix { keys, tags }
    }
}

/// An index key of a record: its hash, and whether it stands for the tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    pub hash: i32,
    pub is_tags: bool,
}

impl Key {
    /// The hash, or its complement, which is negative, for a key that stands for tags.
    #[inline]
    pub fn marked(self) -> i32 {
        if self.is_tags { !self.hash } else { self.hash }
    }
}

/// Calls `take` with each index key of a record, in the order of the items.
#[inline]
pub fn each_key(data: &[u8], found: &Properties, prefix: KeyPrefix, mut take: impl FnMut(Key)) {
    let mut add = |start: usize, end: usize, before: u32, is_tags: bool| {
        if start < end {
            take(Key { hash: index_hash(hash_code(data, start, end, before)), is_tags });
        }
    };
    add(found.uniq_key.0, found.uniq_key.1, prefix.keys, false);
    let (mut start, end) = found.keys;
    for space in memchr::memchr_iter(KEY_SEPARATOR, &data[start..end]) {
        let space = found.keys.0 + space;
        add(start, space, prefix.keys, false);
        start = space + 1;
    }
    add(start, end, prefix.keys, false);
    if let Some(before) = prefix.tags {
        add(found.tags.0, found.tags.1, before, true);
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, KeyPrefix, each_key};
    use crate::record::keyhash::{hash_code, index_hash};
    use crate::record::properties;

    /// The keys of a record with these properties, in the order of their items.
    fn keys(text: &[u8], indexes_tags: bool) -> Vec<Key> {
        let found = properties::read(text, 0, text.len());
        let mut keys = Vec::new();
        each_key(text, &found, KeyPrefix::of(b"Topic", indexes_tags), |key| keys.push(key));
        keys
    }

    fn hash(text: &str) -> i32 {
        index_hash(hash_code(text.as_bytes(), 0, text.len(), 0))
    }

    #[test]
    fn tags_are_the_last_key_where_they_are_indexed() {
        let text = b"TAGS\x01t\x02KEYS\x01a  b\x02UNIQ_KEY\x01u";
        let plain = ["Topic#u", "Topic#a", "Topic#b"].map(hash);
        let hashes = |keys: &[Key]| keys.iter().map(|key| key.hash).collect::<Vec<_>>();
        assert_eq!(hashes(&keys(text, false)), plain);
        let all = keys(text, true);
        assert_eq!(hashes(&all[..3]), plain);
        assert_eq!(all[3], Key { hash: hash("Topic#T#t"), is_tags: true });
        assert_eq!(all.iter().filter(|key| key.marked() < 0).count(), 1);
        assert_eq!(keys(b"TAGS\x01", true), []);
    }
}
