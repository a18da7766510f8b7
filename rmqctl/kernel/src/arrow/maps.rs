//! Makes the buffers of an Arrow map from the stored properties of many records, and their tags codes.
//! `rmqctl/arrow/properties.py` does the same with numpy.

use crate::arrow::shapes::{Entry, Shape, Shapes};
use crate::bytes::memory::take;
use crate::layouts::{NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, PROPERTY_TAGS};
use crate::record::keyhash::{HIGH_BITS, hash_code, word_of};
use crate::record::pairs::{MOST_PROPERTIES, pairs_of};
use crate::record::properties::small_bytes;

/// Texts up to this length are copied with one or two instructions, including bytes behind them, which
/// are then cut off.
pub const SHORT: usize = 32;

/// Texts one behind the other. `ends` has a 0, and then the end of each.
#[derive(Debug)]
pub struct Texts {
    pub ends: Vec<i32>,
    pub bytes: Vec<u8>,
}

impl Texts {
    /// No texts, with initial capacities for so many texts and bytes.
    pub fn new(count: usize, bytes: usize) -> Self {
        let mut ends = take(count + 1);
        ends.push(0);
        Texts { ends, bytes: take(bytes) }
    }

    #[inline]
    pub fn push(&mut self, text: &[u8]) -> Option<()> {
        self.bytes.extend_from_slice(text);
        self.end()
    }

    /// Adds `data[start..end]`.
    #[inline]
    fn push_of(&mut self, data: &[u8], start: usize, end: usize) -> Option<()> {
        match data.get(start..).and_then(|rest| rest.first_chunk()) {
            Some(more) if end - start <= SHORT => self.push_short(more, end - start),
            _ => self.push(&data[start..end]),
        }
    }

    /// Adds the first `length` of some bytes.
    #[inline]
    pub fn push_short(&mut self, bytes: &[u8; SHORT], length: usize) -> Option<()> {
        let size = self.bytes.len() + length.min(SHORT);
        self.bytes.extend_from_slice(bytes);
        self.bytes.truncate(size);
        self.end()
    }

    /// Adds some texts, given as all of their bytes, and the end of each in these.
    #[inline]
    fn push_all(&mut self, bytes: &[u8], ends: &[i32]) -> Option<()> {
        let before = i32::try_from(self.bytes.len()).ok()?;
        before.checked_add(i32::try_from(bytes.len()).ok()?)?;
        self.bytes.extend_from_slice(bytes);
        self.ends.extend(ends.iter().map(|end| before + end));
        Some(())
    }

    /// Ends a text. None if an Arrow array cannot hold more bytes (its offsets have 32 bits).
    #[inline]
    pub fn end(&mut self) -> Option<()> {
        self.ends.push(i32::try_from(self.bytes.len()).ok()?);
        Some(())
    }

    fn count(&self) -> usize {
        self.ends.len() - 1
    }

    fn truncate(&mut self, count: usize) {
        self.ends.truncate(count + 1);
        self.bytes.truncate(self.ends[count] as usize);
    }

    fn text(&self, number: usize) -> &[u8] {
        &self.bytes[self.ends[number] as usize..self.ends[number + 1] as usize]
    }
}

/// A map for each row, and the hash of its TAGS (0 without). `odd` are rows whose properties are not
/// UTF-8, or too many. Their maps are empty here: Python must make them.
#[derive(Debug)]
pub struct Maps {
    /// A 0, and then the number of entries up to the end of each row.
    pub rows: Vec<i32>,
    pub names: Texts,
    pub values: Texts,
    pub tags_codes: Vec<i64>,
    pub odd: Vec<i64>,
    shapes: Shapes,
}

impl Maps {
    /// No maps, with initial capacities for so many maps and bytes.
    pub fn new(count: usize, bytes: usize) -> Self {
        let mut rows = take(count + 1);
        rows.push(0);
        Maps {
            rows,
            names: Texts::new(4 * count, bytes / 2),
            values: Texts::new(4 * count, bytes),
            tags_codes: take(count),
            odd: Vec::new(),
            shapes: Shapes::new(),
        }
    }

    /// Adds the map of the properties at `data[start..end]`. None if one Arrow array cannot hold it.
    pub fn push(&mut self, data: &[u8], start: usize, end: usize) -> Option<()> {
        if let Some(shape) = self.shapes.find(&data[start..end]) {
            self.names.push_all(&shape.names, &shape.name_ends)?;
            let code = push_values(&mut self.values, shape, data, start)?;
            return self.end(code);
        }
        let row = self.tags_codes.len();
        let before = self.names.count();
        let Some(code) = self.push_entries(data, start, end, before)? else {
            self.names.truncate(before);
            self.values.truncate(before);
            let code = self.push_repeated(row, &data[start..end])?;
            return self.end(code);
        };
        if data[start..end].is_ascii() {
            self.shapes.missed(&data[start..end], || entries_of(data, start, end));
        }
        self.end(code)
    }

    #[inline]
    fn end(&mut self, code: i64) -> Option<()> {
        self.tags_codes.push(code);
        self.rows.push(i32::try_from(self.names.count()).ok()?);
        Some(())
    }

    /// Adds entries in their order. Returns their tags code; `Some(None)` if they are not plain: a name
    /// repeats, they are too many, or not UTF-8. None if one Arrow array cannot hold them.
    #[inline]
    fn push_entries(
        &mut self,
        data: &[u8],
        start: usize,
        end: usize,
        before: usize,
    ) -> Option<Option<i64>> {
        let mut code = 0;
        let mut seen = Seen::default();
        let mut is_plain = true;
        let is_ascii = for_each_entry(data, start, end, |entry, name_end, value_end| {
            let name = &data[entry..name_end];
            let count = self.names.count();
            if seen.may_have(name) && (before..count).any(|number| self.names.text(number) == name)
                || count - before == MOST_PROPERTIES
            {
                is_plain = false;
            }
            if !is_plain {
                return Some(());
            }
            if name == PROPERTY_TAGS {
                code = i64::from(hash_code(data, name_end + 1, value_end, 0) as i32);
            }
            self.names.push_of(data, entry, name_end)?;
            self.values.push_of(data, name_end + 1, value_end)
        })?;
        is_plain = is_plain && (is_ascii || std::str::from_utf8(&data[start..end]).is_ok());
        Some(is_plain.then_some(code))
    }

    /// Adds a row that is not plain. Of a repeated name the last value counts. Returns its tags code.
    #[cold]
    fn push_repeated(&mut self, row: usize, properties: &[u8]) -> Option<i64> {
        let is_text = std::str::from_utf8(properties).is_ok();
        let Some(pairs) = pairs_of(properties).filter(|_| is_text) else {
            self.odd.push(row as i64);
            return Some(0);
        };
        let mut code = 0;
        for (name, value) in pairs {
            if name == PROPERTY_TAGS {
                code = i64::from(hash_code(value, 0, value.len(), 0) as i32);
            }
            self.names.push(name)?;
            self.values.push(value)?;
        }
        Some(code)
    }
}

/// Adds the values of properties at `start` that have a known shape. Returns their tags code.
#[inline]
fn push_values(values: &mut Texts, shape: &Shape, data: &[u8], start: usize) -> Option<i64> {
    for entry in &shape.entries {
        values.push_of(data, start + entry.name_end + 1, start + entry.end)?;
    }
    let Some(tags) = shape.tags else { return Some(0) };
    Some(i64::from(hash_code(data, start + tags.name_end + 1, start + tags.end, 0) as i32))
}

/// The entries of `data[start..end]`, with positions relative to `start`.
#[cold]
fn entries_of(data: &[u8], start: usize, end: usize) -> Vec<Entry> {
    let mut entries = Vec::new();
    for_each_entry(data, start, end, |entry, name_end, end| {
        entries.push(Entry { start: entry - start, name_end: name_end - start, end: end - start });
        Some(())
    });
    entries
}

/// A small Bloom filter of the names of a row. It may take a new name for a known one, but never the
/// other way round.
#[derive(Default)]
struct Seen(u64);

impl Seen {
    #[inline]
    fn may_have(&mut self, name: &[u8]) -> bool {
        let (first, last) = (name[0], name[name.len() - 1]);
        let mixed = usize::from(first) * 5 + usize::from(last) * 3 + name.len() * 7;
        let bit = 1 << (mixed % 64);
        let is_known = self.0 & bit != 0;
        self.0 |= bit;
        is_known
    }
}

/// Calls `call` for each entry of `data[start..end]` that has a name and a value, in order, with the
/// positions where the entry begins, where its name ends, and where it ends. Returns whether all bytes
/// are ASCII; None as soon as a call returns None.
#[inline]
fn for_each_entry(
    data: &[u8],
    start: usize,
    end: usize,
    mut call: impl FnMut(usize, usize, usize) -> Option<()>,
) -> Option<bool> {
    let (mut entry, mut name_end, mut high) = (start, None, 0u64);
    let mut take = |byte: u8, at: usize| {
        if byte == NAME_VALUE_SEPARATOR {
            name_end.get_or_insert(at);
        } else if byte == PROPERTY_SEPARATOR {
            if let Some(name_end) = name_end.take() {
                if entry < name_end && name_end + 1 < at {
                    call(entry, name_end, at)?;
                }
            }
            entry = at + 1;
        }
        Some(())
    };
    let words = data[start..end].chunks_exact(8);
    let rest = words.remainder();
    for (number, bytes) in words.enumerate() {
        let word = word_of(bytes);
        high |= word;
        let mut marks = small_bytes(word);
        while marks != 0 {
            let place = (marks.trailing_zeros() / 8) as usize;
            take(bytes[place], start + 8 * number + place)?;
            marks &= marks - 1;
        }
    }
    for (number, &byte) in rest.iter().enumerate() {
        high |= u64::from(byte);
        take(byte, end - rest.len() + number)?;
    }
    take(PROPERTY_SEPARATOR, end)?;
    Some(high & HIGH_BITS == 0)
}

#[cfg(test)]
mod tests {
    use super::Maps;

    type Entries = Vec<(Vec<u8>, Vec<u8>)>;

    /// Entries and the tags code of a row.
    fn told(maps: &Maps, row: usize) -> (Entries, i64) {
        let entries = maps.rows[row] as usize..maps.rows[row + 1] as usize;
        let texts = |number| (maps.names.text(number).to_vec(), maps.values.text(number).to_vec());
        (entries.map(texts).collect(), maps.tags_codes[row])
    }

    #[test]
    fn a_row_is_the_same_whatever_stands_before_it() {
        const ROWS: [&[u8]; 4] = [
            b"KEYS\x01order17\x02TAGS\x01new\x02WAIT\x01true\x02",
            b"TAGS\x01a\x02TAGS\x01b\x02UNIQ_KEY\x010123456789ABCDEF0123456789ABCDEF",
            b"K\x01\x02no entry\x02\x02TAGS\x01x\x01y\x02last\x01\xc3\xa9",
            b"a\x01b\x02c\x01d",
        ];
        const BYTES: &[u8] = b"\x00\x01\x02\x03KT09\x7f\xc3\xa9";
        let mut seed = 7u64;
        let mut lot = |below: usize| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        let mut many = Maps::new(0, 0);
        for row in 0..20_000 {
            let mut data = ROWS[lot(ROWS.len())].to_vec();
            for _ in 0..lot(3) {
                let at = lot(data.len());
                data[at] = BYTES[lot(BYTES.len())];
            }
            let end = data.len() - if lot(8) == 0 { lot(data.len()) } else { 0 };
            data.resize(data.len() + lot(40), b'\x02');
            let mut alone = Maps::new(0, 0);
            alone.push(&data, 0, end).unwrap();
            many.push(&data, 0, end).unwrap();
            assert_eq!(told(&many, row), told(&alone, 0), "{:?}", &data[..end]);
            assert_eq!(many.odd.last() == Some(&(row as i64)), !alone.odd.is_empty());
        }
        assert!(!many.odd.is_empty());
    }
}
