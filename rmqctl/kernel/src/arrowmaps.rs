//! Stored properties of many records as the buffers of an Arrow map, and the tags codes in them:
//! what `rmqctl/arrow/properties.py` does with numpy.

use memchr::memchr2_iter;

use crate::fetch;
use crate::keyhash::hash_code;
use crate::layouts::{NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, PROPERTY_TAGS};
use crate::rows::{MOST_PROPERTIES, pairs_of};

/// Rows whose properties are fetched ahead: the bodies between them are long.
const AHEAD: usize = 8;

/// Texts one behind the other, and where each ends; a 0 before them all.
#[derive(Debug)]
pub struct Texts {
    pub ends: Vec<i32>,
    pub bytes: Vec<u8>,
}

impl Default for Texts {
    fn default() -> Self {
        Texts { ends: vec![0], bytes: Vec::new() }
    }
}

impl Texts {
    pub fn push(&mut self, text: &[u8]) -> Option<()> {
        self.bytes.extend_from_slice(text);
        self.end()
    }

    /// Ends a text; None where an Arrow array holds no more.
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

/// Maps, a row each, and the hashes of their TAGS (0 without). Of the `odd` rows, which are no UTF-8
/// or have more entries than anybody, the map is empty: the caller makes it.
#[derive(Debug)]
pub struct Maps {
    /// How many entries there are up to the end of each row; a 0 before them all.
    pub rows: Vec<i32>,
    pub names: Texts,
    pub values: Texts,
    pub tags_codes: Vec<i64>,
    pub odd: Vec<i64>,
}

/// The maps of the properties at these places and of these lengths, in their order; None where one
/// Arrow array does not hold them.
pub fn maps(
    data: &[u8],
    places: impl ExactSizeIterator<Item = (i64, i64)> + Clone,
) -> Option<Maps> {
    let mut maps = Maps {
        rows: Vec::with_capacity(places.len() + 1),
        names: Texts::default(),
        values: Texts::default(),
        tags_codes: Vec::with_capacity(places.len()),
        odd: Vec::new(),
    };
    let size = places.clone().fold(0i64, |sum, (_, length)| sum.saturating_add(length));
    let room = usize::try_from(size).unwrap_or_default().min(data.len());
    maps.names.bytes.reserve(room / 2);
    maps.values.bytes.reserve(room);
    maps.rows.push(0);
    let mut ahead = places.clone().skip(AHEAD);
    for (row, (start, length)) in places.enumerate() {
        fetch_next(data, ahead.next());
        let start = usize::try_from(start).ok()?;
        let properties = data.get(start..start.checked_add(usize::try_from(length).ok()?)?)?;
        if std::str::from_utf8(properties).is_err() {
            maps.odd.push(row as i64);
            maps.tags_codes.push(0);
        } else {
            maps.push(row, properties)?;
        }
        maps.rows.push(i32::try_from(maps.names.count()).ok()?);
    }
    Some(maps)
}

/// Has the processor fetch the properties at a place, which nobody has looked at for long.
#[inline]
fn fetch_next(data: &[u8], place: Option<(i64, i64)>) {
    let Some((start, length)) = place else { return };
    if let (Ok(start), Ok(length)) = (usize::try_from(start), usize::try_from(length)) {
        fetch::range(data, start, start.saturating_add(length).min(data.len()));
    }
}

impl Maps {
    /// Adds the entries of a row, and its tags code.
    fn push(&mut self, row: usize, properties: &[u8]) -> Option<()> {
        let before = self.names.count();
        let mut code = Some(0);
        for_each_entry(properties, |name, value| {
            let count = self.names.count();
            let is_known = (before..count).any(|number| self.names.text(number) == name);
            if is_known || count - before == MOST_PROPERTIES || code.is_none() {
                code = None;
                return Some(());
            }
            if name == PROPERTY_TAGS {
                code = Some(i64::from(hash_code(value, 0, value.len(), 0) as i32));
            }
            self.names.push(name)?;
            self.values.push(value)
        })?;
        let code = match code {
            Some(code) => code,
            None => self.push_repeated(row, properties, before)?,
        };
        self.tags_codes.push(code);
        Some(())
    }

    /// Makes a row anew in which names repeat, of which the last value counts; its tags code.
    fn push_repeated(&mut self, row: usize, properties: &[u8], before: usize) -> Option<i64> {
        self.names.truncate(before);
        self.values.truncate(before);
        let Some(pairs) = pairs_of(properties) else {
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

/// Calls for each name with a value, in order; None where a call says so.
fn for_each_entry<'a>(
    properties: &'a [u8],
    mut call: impl FnMut(&'a [u8], &'a [u8]) -> Option<()>,
) -> Option<()> {
    let (mut entry, mut name_end) = (0, None);
    let ends = memchr2_iter(NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, properties);
    for at in ends.chain([properties.len()]) {
        if properties.get(at) == Some(&NAME_VALUE_SEPARATOR) {
            name_end.get_or_insert(at);
            continue;
        }
        match name_end.take() {
            Some(end) if entry < end && end + 1 < at => {
                call(&properties[entry..end], &properties[end + 1..at])?;
            }
            _ => (),
        }
        entry = at + 1;
    }
    Some(())
}
