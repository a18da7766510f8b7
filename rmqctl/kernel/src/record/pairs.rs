//! Parses properties into names and values, as `formats.text.decode_properties` does.

use crate::layouts::{NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, PROPERTY_TAGS};
use crate::record::keyhash::{HIGH_BITS, hash_code, word_of};
use crate::record::text::{Short, is_odd, odd_bytes, push_part};

/// A record with more properties is left to the caller.
pub const MOST_PROPERTIES: usize = 64;

/// Names and values of properties, in order.
pub type Slices<'a> = Vec<(&'a [u8], &'a [u8])>;

/// The properties that have a name and a value. A repeated name has its first place and its last
/// value. None if there are more than `MOST_PROPERTIES`.
pub fn pairs_of(properties: &[u8]) -> Option<Slices<'_>> {
    let mut pairs: Slices<'_> = Vec::with_capacity(8);
    let mut rest = properties;
    while !rest.is_empty() {
        let end = memchr::memchr(PROPERTY_SEPARATOR, rest).unwrap_or(rest.len());
        let entry = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        let Some(at) = memchr::memchr(NAME_VALUE_SEPARATOR, entry) else { continue };
        let (name, value) = (&entry[..at], &entry[at + 1..]);
        if name.is_empty() || value.is_empty() {
            continue;
        }
        match pairs.iter().position(|(known, _)| *known == name) {
            Some(at) => pairs[at].1 = value,
            None if pairs.len() == MOST_PROPERTIES => return None,
            None => pairs.push((name, value)),
        }
    }
    Some(pairs)
}

/// The begin and end of a name, and the begin and end of its value.
type Places = [usize; 4];

/// Parses the properties of one record after the other. Those of the last one are kept as positions.
#[derive(Debug, Default, Clone)]
pub struct Pairs {
    places: Vec<Places>,
    /// Whether all bytes but the separators are printed without escapes. Then they are ASCII.
    pub is_plain: bool,
    shape: Shape,
    /// Whether the last properties have the shape. Then its positions are theirs.
    is_shaped: bool,
    /// The length of the last properties that did not have the shape.
    length: usize,
}

/// What plain properties of consecutive records often have in common: the names, and the lengths of
/// the values.
#[derive(Debug, Default, Clone)]
struct Shape {
    places: Vec<Places>,
    /// An example of the shape.
    bytes: Vec<u8>,
    /// A mask for each of its bytes: all bits set if all properties of the shape have this byte, 0 if
    /// the byte is one of a value.
    fixed: Vec<u8>,
    /// The text before each value in an object of JSON.
    heads: Vec<Short>,
    tags: Option<usize>,
}

/// How many bytes of properties are compared at once.
const BLOCK: usize = 16;

impl Shape {
    /// Becomes the shape of plain properties that have their names and values at these positions.
    fn become_of(&mut self, properties: &[u8], places: &[Places]) {
        self.places = places.to_vec();
        self.bytes = properties.to_vec();
        self.fixed = vec![u8::MAX; properties.len()];
        self.heads.clear();
        for &[name, behind, value, end] in places {
            self.fixed[value..end].fill(0);
            let before: &[u8] = if self.heads.is_empty() { b"{\"" } else { b"\",\"" };
            let head = [before, &properties[name..behind], b"\":\""].concat();
            self.heads.push(Short::new(head));
        }
        self.tags = places.iter().position(|one| properties[one[0]..one[1]] == *PROPERTY_TAGS);
    }

    /// Whether properties have this shape, and are plain.
    #[inline]
    fn is_of(&self, properties: &[u8]) -> bool {
        let length = self.bytes.len();
        if length != properties.len() || length < BLOCK || self.fixed.len() != length {
            return false;
        }
        // The last block may overlap the one before it.
        let starts = (0..length - BLOCK).step_by(BLOCK).chain([length - BLOCK]);
        starts.into_iter().all(|start| {
            let block = start..start + BLOCK;
            let (bytes, fixed) = (&self.bytes[block.clone()], &self.fixed[block.clone()]);
            let all = bytes.iter().zip(fixed).zip(&properties[block]);
            let differs = all.fold(0, |differs, ((&byte, &fixed), &other)| {
                let odd = if is_odd(other) { u8::MAX } else { 0 };
                differs | (byte ^ other) & fixed | odd & !fixed
            });
            differs == 0
        })
    }
}

impl Pairs {
    /// Parses properties. False if they are not UTF-8, or too many.
    pub fn read(&mut self, properties: &[u8]) -> bool {
        self.is_shaped = self.shape.is_of(properties);
        if self.is_shaped {
            self.is_plain = true;
            return true;
        }
        self.is_plain = self.read_plain(properties).is_some();
        // Two of the same length in a row: more of that shape may follow.
        if self.is_plain && self.length == properties.len() {
            self.shape.become_of(properties, &self.places);
        }
        self.length = properties.len();
        self.is_plain || self.read_any(properties).is_some()
    }

    fn places(&self) -> &[Places] {
        if self.is_shaped { &self.shape.places } else { &self.places }
    }

    /// The names and values of the properties that were parsed last.
    pub fn of<'a>(&self, properties: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let places = self.places().iter();
        places
            .map(|&[name, behind, value, end]| (&properties[name..behind], &properties[value..end]))
    }

    /// [`Pairs::of`] for properties that are a `str`.
    pub fn of_text<'a>(&self, properties: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let places = self.places().iter();
        places
            .map(|&[name, behind, value, end]| (&properties[name..behind], &properties[value..end]))
    }

    /// The value of TAGS among the properties that were parsed last.
    #[inline]
    pub fn tags<'a>(&self, properties: &'a [u8]) -> Option<&'a [u8]> {
        if self.is_shaped {
            let [_, _, value, end] = self.shape.places[self.shape.tags?];
            return Some(&properties[value..end]);
        }
        self.of(properties).find(|(name, _)| *name == PROPERTY_TAGS).map(|(_, tags)| tags)
    }

    /// Adds the properties that were parsed last, and are plain, as an object of JSON.
    pub fn push_plain(&self, out: &mut Vec<u8>, properties: &[u8]) {
        if self.is_shaped && !self.shape.places.is_empty() {
            for (head, &[_, _, value, end]) in self.shape.heads.iter().zip(&self.shape.places) {
                head.push_to(out);
                push_part(out, properties, value, end);
            }
            return out.extend_from_slice(b"\"}");
        }
        let mut before = b'{';
        for &[name, behind, value, end] in &self.places {
            out.extend_from_slice(&[before, b'"']);
            push_part(out, properties, name, behind);
            out.extend_from_slice(b"\":\"");
            push_part(out, properties, value, end);
            out.push(b'"');
            before = b',';
        }
        if before == b'{' {
            out.push(before);
        }
        out.push(b'}');
    }

    /// Parses plain properties, eight bytes at a time. None if a byte would need an escape. That
    /// includes a second 0x01 in an entry, which belongs to the value.
    fn read_plain(&mut self, properties: &[u8]) -> Option<()> {
        self.places.clear();
        self.places.reserve(8);
        let (mut start, mut name_end) = (0, None);
        let mut words = properties.chunks_exact(8);
        let rest = words.remainder();
        let mut last = [b' '; 8];
        last[..rest.len()].copy_from_slice(rest);
        let words = words.by_ref().map(word_of).chain([u64::from_le_bytes(last)]);
        for (number, word) in words.enumerate() {
            // Behind the first odd byte of a word, other bytes may be marked wrongly.
            let mut marks = odd_bytes(word) & HIGH_BITS;
            while marks != 0 {
                let at = 8 * number + marks.trailing_zeros() as usize / 8;
                marks &= marks - 1;
                match properties.get(at) {
                    Some(&NAME_VALUE_SEPARATOR) if name_end.is_none() => name_end = Some(at),
                    Some(&PROPERTY_SEPARATOR) => {
                        self.add(properties, start, name_end.take(), at)?;
                        start = at + 1;
                    }
                    Some(&byte) if is_odd(byte) => return None,
                    _ => {}
                }
            }
        }
        self.add(properties, start, name_end, properties.len())
    }

    /// Adds the entry `start..end`; None if there are too many.
    fn add(
        &mut self,
        properties: &[u8],
        start: usize,
        name_end: Option<usize>,
        end: usize,
    ) -> Option<()> {
        let Some(name_end) = name_end.filter(|at| *at > start && *at + 1 < end) else {
            return Some(());
        };
        let name = &properties[start..name_end];
        let is_it = |one: &Places| &properties[one[0]..one[1]] == name;
        match self.places.iter().position(is_it) {
            Some(at) => (self.places[at][2], self.places[at][3]) = (name_end + 1, end),
            None if self.places.len() == MOST_PROPERTIES => return None,
            None => self.places.push([start, name_end, name_end + 1, end]),
        }
        Some(())
    }

    fn read_any(&mut self, properties: &[u8]) -> Option<()> {
        self.places.clear();
        std::str::from_utf8(properties).ok()?;
        let place = |part: &[u8]| part.as_ptr() as usize - properties.as_ptr() as usize;
        for (name, value) in pairs_of(properties)? {
            let (start, from) = (place(name), place(value));
            self.places.push([start, start + name.len(), from, from + value.len()]);
        }
        Some(())
    }
}

/// The value that `pairs_of` would give for a name.
pub fn value_of<'a>(properties: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let entries = properties.rsplit(|&byte| byte == PROPERTY_SEPARATOR);
    let values =
        entries.filter_map(|entry| entry.strip_prefix(name)?.strip_prefix(&[NAME_VALUE_SEPARATOR]));
    values.into_iter().find(|value| !value.is_empty())
}

pub fn tags_code<'a>(mut pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> i64 {
    code_of(pairs.find(|(name, _)| *name == PROPERTY_TAGS).map(|(_, tags)| tags))
}

pub fn code_of(tags: Option<&[u8]>) -> i64 {
    tags.map_or(0, |tags| i64::from(hash_code(tags, 0, tags.len(), 0) as i32))
}

#[cfg(test)]
mod tests {
    use super::{MOST_PROPERTIES, Pairs, pairs_of};

    /// Both parsers give the same result.
    #[test]
    fn plain_properties_are_read_as_any() {
        let (mut pairs, mut number) = (Pairs::default(), 0x2545_f491_4f6c_dd1d_u64);
        for round in 0..200_000 {
            let letters: &[u8] =
                if round % 2 == 0 { b"ab\x01\x02" } else { b"ab\x01\x02c\"\xc3\xa9\x7f" };
            let mut text = Vec::new();
            for _ in 0..round % 41 {
                number ^= number << 13;
                number ^= number >> 7;
                number ^= number << 17;
                text.push(letters[(number >> 32) as usize % letters.len()]);
            }
            let is_read = pairs.read(&text);
            assert_eq!(is_read, std::str::from_utf8(&text).is_ok());
            if is_read {
                assert_eq!(pairs.of(&text).collect::<Vec<_>>(), pairs_of(&text).unwrap());
            }
        }
    }

    /// Properties that are read with the help of those before them are what they are alone.
    #[test]
    fn properties_of_one_shape_are_read_as_any() {
        let mut number = 0x2545_f491_4f6c_dd1d_u64;
        let mut below = |most: usize| {
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            (number >> 32) as usize % most
        };
        let letters = b"abcdefgh\x01\x02\"\xc3\xa9\x7f";
        for base in
            ["TAGS\x01aaaa\x02KEYS\x01bb\x02TAGS\x01cc", "TAGS\x01\x02ab\x02KEYS\x01ccccccccc\x02"]
        {
            let (mut pairs, mut shaped) = (Pairs::default(), 0);
            let mut text = base.as_bytes().to_vec();
            for round in 0..100_000 {
                match below(8) {
                    0 => text = base.as_bytes().to_vec(),
                    1 => text[below(base.len())] = letters[below(letters.len())],
                    _ => {
                        let at = below(base.len());
                        if text[at].is_ascii_lowercase() {
                            text[at] = letters[below(8)];
                        }
                    }
                }
                let length = if round % 50 == 0 { below(text.len()) } else { text.len() };
                let text = &text[..length];
                let mut alone = Pairs::default();
                let is_read = alone.read(text);
                assert_eq!((pairs.read(text), pairs.is_plain), (is_read, alone.is_plain));
                if is_read {
                    assert_eq!(pairs.of(text).collect::<Vec<_>>(), pairs_of(text).unwrap());
                    assert_eq!(pairs.tags(text), alone.tags(text));
                }
                if alone.is_plain {
                    let (mut out, mut other) = (Vec::new(), Vec::new());
                    pairs.push_plain(&mut out, text);
                    alone.push_plain(&mut other, text);
                    assert_eq!(out, other);
                }
                shaped += usize::from(pairs.is_shaped);
            }
            assert!(shaped > 10_000, "{shaped}");
        }
    }

    #[test]
    fn what_is_printed_as_it_is_is_plain() {
        let mut pairs = Pairs::default();
        for (text, is_plain) in [
            (&b"KEYS\x01a b\x02TAGS\x01c\x02"[..], true),
            (b"", true),
            (b"a\x01b\x01c\x02", false),
            (b"a\x01b\"c\x02", false),
            (b"a\x01b\\\x02", false),
            (b"a\x01\x7f\x02", false),
            (b"a\x01\x03\x02", false),
            ("a\u{1}\u{e9}\u{2}".as_bytes(), false),
        ] {
            assert!(pairs.read(text));
            assert_eq!(pairs.is_plain, is_plain, "{text:?}");
        }
    }

    #[test]
    fn too_many_are_not_read() {
        let mut pairs = Pairs::default();
        for (count, is_read) in [(MOST_PROPERTIES, true), (MOST_PROPERTIES + 1, false)] {
            let text: String = (0..count).map(|n| format!("{n}\u{1}v\u{2}")).collect();
            assert_eq!(pairs.read(text.as_bytes()), is_read);
        }
    }
}
