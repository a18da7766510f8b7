//! Stored properties of many records as the buffers of an Arrow map, and the tags codes in them: what
//! `rmqctl/arrow/properties.py` does with numpy.

use crate::keyhash::hash_code;
use crate::layouts::PROPERTY_TAGS;
use crate::rows::pairs_of;

/// Texts one behind the other, and where each ends; a 0 before them all.
#[derive(Debug)]
pub struct Texts {
    pub ends: Vec<i32>,
    pub bytes: Vec<u8>,
}

impl Texts {
    fn new() -> Self {
        Texts { ends: vec![0], bytes: Vec::new() }
    }

    fn push(&mut self, text: &[u8]) -> Option<()> {
        self.bytes.extend_from_slice(text);
        self.ends.push(i32::try_from(self.bytes.len()).ok()?);
        Some(())
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
pub fn maps(data: &[u8], places: impl ExactSizeIterator<Item = (i64, i64)>) -> Option<Maps> {
    let mut maps = Maps {
        rows: Vec::with_capacity(places.len() + 1),
        names: Texts::new(),
        values: Texts::new(),
        tags_codes: Vec::with_capacity(places.len()),
        odd: Vec::new(),
    };
    maps.rows.push(0);
    for (row, (start, length)) in places.enumerate() {
        let start = usize::try_from(start).ok()?;
        let properties = data.get(start..start.checked_add(usize::try_from(length).ok()?)?)?;
        let mut tags_code = 0;
        match std::str::from_utf8(properties).ok().and_then(|_| pairs_of(properties)) {
            None => maps.odd.push(row as i64),
            Some(pairs) => {
                for (name, value) in pairs {
                    maps.names.push(name)?;
                    maps.values.push(value)?;
                    if name == PROPERTY_TAGS {
                        tags_code = i64::from(hash_code(value, 0, value.len(), 0) as i32);
                    }
                }
            }
        }
        maps.tags_codes.push(tags_code);
        maps.rows.push(i32::try_from(maps.names.ends.len() - 1).ok()?);
    }
    Some(maps)
}
