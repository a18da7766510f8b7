//! Numbers the topics that one thread of a scan sees, in the order in which they come.

use std::collections::HashMap;
use std::ops::Range;

use crate::layouts::VERSIONS;
use crate::record::indexkeys::KeyPrefix;

const SLOT_BITS: u32 = 12;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// What is known of a topic: its number, how its keys' hashes begin, and whether it is valid: UTF-8 that
/// can be the name of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topic {
    pub number: i64,
    pub key_prefix: KeyPrefix,
    pub is_plain: bool,
}

/// Topics by their bytes. `slots` is a cache whose entries are verified by comparison. Topics that
/// collide there are looked up in `by_bytes`, whose hash is randomly keyed, so no choice of topics
/// makes lookups slow.
pub struct Topics {
    slots: Vec<u32>,
    known: Vec<(Box<[u8]>, Topic)>,
    by_bytes: HashMap<Box<[u8]>, u32>,
    indexes_tags: bool,
}

impl Topics {
    /// Without topics. `indexes_tags` says whether records have an index item of their tags.
    pub fn new(indexes_tags: bool) -> Self {
        let slots = vec![0; 1 << SLOT_BITS];
        Topics { slots, known: Vec::new(), by_bytes: HashMap::new(), indexes_tags }
    }

    /// What is known of a topic.
    #[inline]
    pub fn get(&mut self, topic: &[u8]) -> Topic {
        let slot = slot_of(topic);
        if let Some((bytes, known)) = self.known.get(self.slots[slot] as usize) {
            if **bytes == *topic {
                return *known;
            }
        }
        self.look_up(topic, slot)
    }

    #[cold]
    fn look_up(&mut self, topic: &[u8], slot: usize) -> Topic {
        let place = match self.by_bytes.get(topic) {
            Some(&place) => place,
            None => {
                let place = self.known.len() as u32;
                let key_prefix = KeyPrefix::of(topic, self.indexes_tags);
                let number = i64::from(place);
                let known = Topic { number, key_prefix, is_plain: is_plain(topic) };
                self.known.push((topic.into(), known));
                self.by_bytes.insert(topic.into(), place);
                place
            }
        };
        self.slots[slot] = place;
        self.known[place as usize].1
    }

    /// How many topics there are.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// The topics with these numbers, in order.
    pub fn named(&self, numbers: Range<usize>) -> impl Iterator<Item = &[u8]> {
        self.known[numbers].iter().map(|(topic, _)| &**topic)
    }

    /// Forgets the topics with this number or a higher one.
    pub fn forget_from(&mut self, number: usize) {
        for (topic, _) in self.known.drain(number.min(self.known.len())..) {
            self.by_bytes.remove(&topic);
        }
    }
}

/// Whether a topic is UTF-8 that `topic_directory_problem` (`rmqctl/engine/files/paths.py`) accepts as
/// a directory. Topics that are longer than any broker allows are not plain, either.
fn is_plain(topic: &[u8]) -> bool {
    let separates = |byte: &u8| matches!(byte, b'/' | b'\\' | 0);
    let is_above = matches!(topic, b"" | b"." | b"..");
    let is_long = topic.len() > VERSIONS[0].topic_length.limit;
    !is_above && !is_long && !topic.iter().any(separates) && std::str::from_utf8(topic).is_ok()
}

#[inline]
fn slot_of(topic: &[u8]) -> usize {
    let word = |bytes: &[u8]| {
        bytes.iter().rev().take(8).fold(0u64, |word, &byte| word << 8 | u64::from(byte))
    };
    let (first, last) = match (topic.first_chunk::<8>(), topic.last_chunk::<8>()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => (word(topic), 0),
    };
    let mixed = first.wrapping_mul(FACTOR) ^ last.rotate_left(29).wrapping_add(topic.len() as u64);
    (mixed.wrapping_mul(FACTOR) >> (64 - SLOT_BITS)) as usize
}
