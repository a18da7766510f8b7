//! Recognises properties of the same shape as those of an earlier record: with the same names, and
//! values of the same lengths. Messages of one kind mostly have that. The values need no parsing then:
//! to compare all other bytes takes a fifth of the time.

use std::array;
use std::ops::RangeInclusive;

use crate::layouts::{NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR};
use crate::record::keyhash::{HIGH_BITS, word_of};
use crate::record::properties::{self, Place, Properties, small_bytes};

/// Shapes that are known at a time: one each of the lengths with the same remainder.
const KNOWN: usize = 16;
/// Bytes of properties that can have a known shape.
const LENGTHS: RangeInclusive<usize> = 8..=512;
/// A shape that does not last is not worth noting. So after each one at most so many others of the
/// same lengths are only parsed.
const MOST_PASSED: u32 = 63;

/// To look for a shape in vain costs half as much as is saved by finding one. So when that happened to
/// most of some records, the next ones are only parsed.
const WORTH: i32 = 2;
const MOST_BALANCE: i32 = 32;
const ONLY_PARSED: u32 = 1 << 13;

/// The shapes that one thread has seen.
#[derive(Debug)]
pub struct KnownShapes {
    known: [Shape; KNOWN],
    /// Grows with each shape that was found, and shrinks with each search in vain.
    balance: i32,
    /// How many records are still only parsed.
    only_parsed: u32,
}

#[derive(Debug, Default)]
struct Shape {
    fixed: Fixed,
    /// What parsing found, with places from the begin of the properties on.
    found: Properties,
    /// The length of the last properties that did not fit.
    missed: usize,
    /// How many more are passed over, and how many after the next shape.
    pass: u32,
    next_pass: u32,
}

/// The bytes that all properties of a shape have: those of names and separators.
#[derive(Debug, Default, Clone)]
pub struct Fixed {
    /// 0: of no properties.
    length: usize,
    /// For each word of eight bytes a mask of the fixed ones, and their values. If the length is no
    /// multiple of eight, the last word overlaps the one before.
    words: Vec<(u64, u64)>,
}

impl Fixed {
    /// The fixed bytes of properties of at least eight bytes. `mask` has 255 for each, and else 0.
    pub fn of(properties: &[u8], mask: &[u8]) -> Self {
        let places = (0..properties.len() - 7).step_by(8);
        let last = (properties.len() % 8 != 0).then_some(properties.len() - 8);
        let word_at = |at: usize| {
            let mask = word_of(&mask[at..at + 8]);
            (mask, word_of(&properties[at..at + 8]) & mask)
        };
        let words = places.chain(last).map(word_at).collect();
        Fixed { length: properties.len(), words }
    }

    /// Whether properties have these bytes, and else only ASCII without separators.
    #[inline]
    pub fn are_of(&self, properties: &[u8]) -> bool {
        if self.length != properties.len() {
            return false;
        }
        let (Some(last), Some(&last_fixed)) = (properties.last_chunk::<8>(), self.words.last())
        else {
            return false;
        };
        let words = properties.chunks_exact(8).zip(&self.words);
        let sum = words
            .fold(differs(u64::from_le_bytes(*last), last_fixed), |sum, (word, fixed)| {
                sum | differs(word_of(word), *fixed)
            });
        sum == 0
    }
}

/// Not 0 if a word has another fixed byte, or among the others a separator or one that is not ASCII.
#[inline]
fn differs(word: u64, (mask, fixed): (u64, u64)) -> u64 {
    (word ^ fixed) & mask | (small_bytes(word) | word) & HIGH_BITS & !mask
}

impl Default for KnownShapes {
    fn default() -> Self {
        let known = array::from_fn(|_| Shape::default());
        KnownShapes { known, balance: 0, only_parsed: 0 }
    }
}

impl KnownShapes {
    /// [`properties::read`], with the same result.
    #[inline]
    pub fn read(&mut self, data: &[u8], start: usize, end: usize) -> Properties {
        let text = &data[start..end];
        let looks = self.only_parsed == 0;
        if looks {
            let shape = &self.known[text.len() % KNOWN];
            if shape.fixed.are_of(text) {
                self.balance = (self.balance + WORTH).min(MOST_BALANCE);
                return moved(&shape.found, |at| at + start);
            }
        } else {
            self.only_parsed -= 1;
        }
        let found = properties::read(data, start, end);
        if looks {
            self.miss(text, &found, start);
        }
        found
    }

    /// Notes properties of no known shape.
    #[cold]
    fn miss(&mut self, text: &[u8], found: &Properties, start: usize) {
        self.balance -= 1;
        if self.balance < -MOST_BALANCE {
            (self.balance, self.only_parsed) = (0, ONLY_PARSED);
        }
        self.known[text.len() % KNOWN].miss(text, found, start);
    }
}

impl Shape {
    /// Notes properties of another shape, if they are of a length that has come before.
    fn miss(&mut self, text: &[u8], found: &Properties, start: usize) {
        if !LENGTHS.contains(&text.len()) || found.malformed {
            return;
        }
        if self.pass > 0 {
            self.pass -= 1;
        } else if self.missed != text.len() {
            self.missed = text.len();
        } else {
            self.learn(text, moved(found, |at| at - start));
            self.pass = self.next_pass;
            self.next_pass = (2 * self.pass + 1).min(MOST_PASSED);
        }
    }

    fn learn(&mut self, text: &[u8], found: Properties) {
        let mut is_name = true;
        let mask = text.iter().map(|&byte| {
            let is_fixed = is_name || byte <= properties::LARGEST_MARK;
            match byte {
                NAME_VALUE_SEPARATOR => is_name = false,
                PROPERTY_SEPARATOR => is_name = true,
                _ => (),
            }
            if is_fixed { u8::MAX } else { 0 }
        });
        let mask: Vec<u8> = mask.collect();
        (self.fixed, self.found) = (Fixed::of(text, &mask), found);
    }
}

/// Places elsewhere; the place of what there is none of stays.
#[inline]
fn moved(found: &Properties, to: impl Fn(usize) -> usize) -> Properties {
    let moved = |place: Place| if place == (0, 0) { place } else { (to(place.0), to(place.1)) };
    Properties {
        tags: moved(found.tags),
        keys: moved(found.keys),
        uniq_key: moved(found.uniq_key),
        delay: moved(found.delay),
        multi_dispatch: moved(found.multi_dispatch),
        malformed: found.malformed,
    }
}

#[cfg(test)]
mod tests {
    use super::{KnownShapes, properties};

    /// Numbers below a limit, always the same ones.
    struct Lots(u64);

    impl Lots {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (self.0 >> 33) as usize % limit.max(1)
        }
    }

    #[test]
    fn shapes_change_no_result() {
        let mut lots = Lots(11);
        let (mut shapes, mut known) = (KnownShapes::default(), 0);
        for round in 0..40_000 {
            if round % 10 == 0 {
                shapes = KnownShapes::default();
            }
            let mut text = any(&mut lots);
            for change in 0..8 {
                if change > 2 && !text.is_empty() {
                    let at = lots.below(text.len());
                    text[at] = b"ab9XYZ\x01\x02\x03\0\xc3\xa9 "[lots.below(13)];
                }
                let start = lots.below(20);
                let mut data = vec![b'x'; start];
                data.extend_from_slice(&text);
                let end = data.len();
                data.extend_from_slice(b"\x01\x02");
                let shape = &shapes.known[text.len() % super::KNOWN];
                known += usize::from(shape.fixed.are_of(&text));
                assert_eq!(shapes.read(&data, start, end), properties::read(&data, start, end));
            }
        }
        assert!(known > 20_000, "{known}");
    }

    fn any(lots: &mut Lots) -> Vec<u8> {
        let mut text = Vec::new();
        for _ in 0..lots.below(6) {
            let names: [&[u8]; 6] = [b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"a", b""];
            text.extend_from_slice(names[lots.below(6)]);
            text.push(1);
            text.extend((0..lots.below(12)).map(|_| b'a' + lots.below(26) as u8));
            text.push(2);
        }
        text
    }
}
