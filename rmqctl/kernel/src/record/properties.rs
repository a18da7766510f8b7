//! Finds those properties of a record that dispatch needs, and whether the properties are well-formed.
//!
//! The rules are those of `formats.text.decode_properties`: an entry ends with 0x02, and its name with
//! the first 0x01. An entry without a value does not count. Of a repeated name the last value counts.

use crate::layouts::{
    NAME_VALUE_SEPARATOR, PROPERTY_CRC32, PROPERTY_DELAY_TIME_LEVEL, PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_KEYS, PROPERTY_SEPARATOR, PROPERTY_TAGS, PROPERTY_UNIQ_KEY,
};
use crate::record::keyhash::{HIGH_BITS, word_of};

/// The begin and end of a value; `(0, 0)` if there is none.
pub type Place = (usize, usize);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Properties {
    pub tags: Place,
    pub keys: Place,
    pub uniq_key: Place,
    pub delay: Place,
    pub multi_dispatch: Place,
    /// Whether there is a NUL, an entry without 0x01, or a byte that is not UTF-8.
    pub malformed: bool,
}

/// No byte of a separator, and no NUL, is larger; 0x03 has no meaning.
pub const LARGEST_MARK: u8 = 3;
/// In each byte the bits that are 0 in all bytes of at most [`LARGEST_MARK`].
const SMALL: u64 = u64::from_ne_bytes([!LARGEST_MARK; 8]);
const LOW_BITS: u64 = !HIGH_BITS;

/// Parses the properties at `start..end` of `data`.
#[inline]
pub fn read(data: &[u8], start: usize, end: usize) -> Properties {
    let mut entries = Entries::new(data, start);
    let text = &data[start..end];
    let words = text.chunks_exact(8);
    let rest = words.remainder();
    let mut high = 0;
    let mut at = start;
    for word in words {
        let word = word_of(word);
        high |= word;
        entries.take_marks(small_bytes(word), at);
        at += 8;
    }
    for (number, &byte) in rest.iter().enumerate() {
        high |= u64::from(byte);
        if byte <= PROPERTY_SEPARATOR {
            entries.take(byte, at + number);
        }
    }
    entries.finish(end);
    if high & HIGH_BITS != 0 && std::str::from_utf8(text).is_err() {
        entries.found.malformed = true;
    }
    entries.found
}

/// A word with the high bit set in each byte that is at most 3 in `word`.
#[inline]
pub fn small_bytes(word: u64) -> u64 {
    let high = word & SMALL;
    !(((high & LOW_BITS) + LOW_BITS) | high) & HIGH_BITS
}

struct Entries<'a> {
    data: &'a [u8],
    entry: usize,
    /// Where the name of the entry ends; None before its first 0x01.
    name_end: Option<usize>,
    found: Properties,
}

impl<'a> Entries<'a> {
    fn new(data: &'a [u8], start: usize) -> Self {
        Entries { data, entry: start, name_end: None, found: Properties::default() }
    }

    #[inline]
    fn take_marks(&mut self, mut marks: u64, at: usize) {
        while marks != 0 {
            let place = at + (marks.trailing_zeros() / 8) as usize;
            self.take(self.data[place], place);
            marks &= marks - 1;
        }
    }

    #[inline]
    fn take(&mut self, byte: u8, place: usize) {
        match byte {
            PROPERTY_SEPARATOR => self.finish(place),
            NAME_VALUE_SEPARATOR => {
                self.name_end.get_or_insert(place);
            }
            0 => self.found.malformed = true,
            _ => (),
        }
    }

    /// Ends the entry at `place`, and begins the next one behind it.
    #[inline]
    fn finish(&mut self, place: usize) {
        match self.name_end.take() {
            None => self.found.malformed |= place > self.entry,
            Some(name_end) if name_end + 1 < place => {
                let value = (name_end + 1, place);
                match &self.data[self.entry..name_end] {
                    PROPERTY_TAGS => self.found.tags = value,
                    PROPERTY_KEYS => self.found.keys = value,
                    PROPERTY_UNIQ_KEY => self.found.uniq_key = value,
                    PROPERTY_DELAY_TIME_LEVEL => self.found.delay = value,
                    PROPERTY_INNER_MULTI_DISPATCH => self.found.multi_dispatch = value,
                    _ => (),
                }
            }
            Some(_) => (),
        }
        self.entry = place + 1;
    }
}

/// The length of the checksum of a whole record, which is its last property: its name, 0x01, ten
/// digits and 0x02.
const CRC32_RESERVED_LENGTH: usize = PROPERTY_CRC32.len() + 1 + 10 + 1;

/// Whether properties may end with a checksum. Half of its name is enough, because the other half may
/// be damaged.
#[inline]
pub fn may_end_with_crc(properties: &[u8]) -> bool {
    let Some(start) = properties.len().checked_sub(CRC32_RESERVED_LENGTH) else {
        return false;
    };
    let half = PROPERTY_CRC32.len() / 2;
    let name = &properties[start..start + PROPERTY_CRC32.len()];
    name[..half] == PROPERTY_CRC32[..half] || name[half..] == PROPERTY_CRC32[half..]
}
