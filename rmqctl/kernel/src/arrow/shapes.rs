//! Recognises properties that have the same names and lengths as earlier ones, which is true of most
//! in a log. Then they need not be parsed.

use std::ops::RangeInclusive;

use crate::layouts::PROPERTY_TAGS;
use crate::record::shapes::Fixed;

/// Bytes of properties that can have a shape: at least a word, because words are compared.
const LENGTHS: RangeInclusive<usize> = 8..=160;
const SLOTS: usize = 32;
/// Only one of so many properties without a known shape becomes a new shape, because in some logs each
/// has its own.
const EVERY: usize = 8;

/// The positions of an entry, relative to the begin of the properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub start: usize,
    pub name_end: usize,
    pub end: usize,
}

/// The names and separators of properties of one length, and their positions. Such properties are
/// plain: no name is there twice, and all bytes are ASCII.
#[derive(Debug, Default, Clone)]
pub struct Shape {
    fixed: Fixed,
    pub entries: Vec<Entry>,
    /// All names, one behind the other, and the end of each.
    pub names: Vec<u8>,
    pub name_ends: Vec<i32>,
    /// The entry of TAGS, if there is one.
    pub tags: Option<Entry>,
}

/// A cache of shapes.
#[derive(Debug)]
pub struct Shapes {
    slots: Vec<Shape>,
    missed: usize,
}

impl Shapes {
    pub fn new() -> Self {
        Shapes { slots: vec![Shape::default(); SLOTS], missed: 0 }
    }

    /// The shape of properties, if it is known.
    #[inline]
    pub fn find(&self, properties: &[u8]) -> Option<&Shape> {
        let shape = self.slots.get(slot_of(properties)?)?;
        shape.fixed.are_of(properties).then_some(shape)
    }

    /// Call this for plain properties that have no known shape. They may become a new shape.
    pub fn missed(&mut self, properties: &[u8], entries: impl FnOnce() -> Vec<Entry>) {
        let Some(slot) = slot_of(properties) else { return };
        if self.missed % EVERY == 0 {
            self.slots[slot] = Shape::of(properties, entries());
        }
        self.missed = self.missed.wrapping_add(1);
    }
}

#[inline]
fn slot_of(properties: &[u8]) -> Option<usize> {
    let is_known = LENGTHS.contains(&properties.len());
    is_known.then(|| (properties.len() + 7 * usize::from(properties[0])) % SLOTS)
}

impl Shape {
    fn of(properties: &[u8], entries: Vec<Entry>) -> Self {
        // Only values may differ: separators, and bytes outside of entries, are part of the shape.
        let mut is_value = vec![false; properties.len()];
        let (mut names, mut name_ends) = (Vec::new(), Vec::with_capacity(entries.len()));
        for entry in &entries {
            is_value[entry.name_end + 1..entry.end].fill(true);
            names.extend_from_slice(&properties[entry.start..entry.name_end]);
            name_ends.push(names.len() as i32);
        }
        let mask: Vec<u8> = is_value.iter().map(|value| if *value { 0 } else { 255 }).collect();
        let is_tags = |entry: &&Entry| &properties[entry.start..entry.name_end] == PROPERTY_TAGS;
        let tags = entries.iter().find(is_tags).copied();
        Shape { fixed: Fixed::of(properties, &mask), entries, names, name_ends, tags }
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Shapes};

    const PROPERTIES: &[u8] = b"KEYS\x01order17\x02TAGS\x01new\x02WAIT\x01true\x02";

    fn known() -> Shapes {
        let mut shapes = Shapes::new();
        let entry = |start, name_end, end| Entry { start, name_end, end };
        shapes.missed(PROPERTIES, || vec![entry(0, 4, 12), entry(13, 17, 21), entry(22, 26, 31)]);
        shapes
    }

    #[test]
    fn values_may_be_others() {
        let shapes = known();
        let found = shapes.find(b"KEYS\x01another\x02TAGS\x01old\x02WAIT\x01fals\x02").unwrap();
        assert_eq!(
            (&found.names[..], &found.name_ends[..]),
            (&b"KEYSTAGSWAIT"[..], &[4, 8, 12][..])
        );
        assert_eq!(found.entries.len(), 3);
    }

    #[test]
    fn each_byte_that_makes_another_shape_is_seen() {
        let shapes = known();
        assert!(shapes.find(PROPERTIES).is_some());
        let values = [5..12, 18..21, 27..31];
        for at in 0..PROPERTIES.len() {
            for byte in 0..=255 {
                let mut other = PROPERTIES.to_vec();
                other[at] = byte;
                let is_plain = byte > 3 && byte < 128 && values.iter().any(|one| one.contains(&at));
                assert_eq!(shapes.find(&other).is_some(), is_plain || other == PROPERTIES);
            }
        }
    }

    #[test]
    fn other_lengths_have_other_shapes() {
        let shapes = known();
        for end in 0..PROPERTIES.len() {
            assert!(shapes.find(&PROPERTIES[..end]).is_none());
        }
        assert!(shapes.find(&[PROPERTIES, b"x"].concat()).is_none());
        assert!(shapes.find(&[b'K'; 1000]).is_none());
        let mut none = Shapes::new();
        for length in [0, 1, 7, 161, 1000] {
            none.missed(&vec![b'a'; length], || panic!("not asked for"));
        }
    }
}
