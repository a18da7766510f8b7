//! Parses a line of NDJSON as a message, if it has only the most common fields, each of the right type.
//!
//! Every other line, right or wrong, is left to `MessageMaker.make`
//! (`rmqctl/operations/change/messagemaker.py`), which knows all fields and all error messages.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

/// The fields of one line. A field that is there twice, or an unknown one, is an error.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line<'a> {
    #[serde(borrow)]
    pub topic: Cow<'a, str>,
    #[serde(default)]
    pub queue_id: u32,
    #[serde(borrow, default)]
    pub tags: Cow<'a, str>,
    #[serde(borrow, default)]
    pub keys: Cow<'a, str>,
    #[serde(borrow, default)]
    pub properties: Pairs<'a>,
    #[serde(borrow, default)]
    pub body: Cow<'a, str>,
}

/// Names and values in the order of the line, with repeated names.
#[derive(Debug, Default)]
pub struct Pairs<'a>(pub Vec<(Text<'a>, Text<'a>)>);

/// A string. It borrows from the line if it has no escapes.
#[derive(Debug, Deserialize)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Pairs<'de>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object of strings")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut pairs = Vec::with_capacity(4);
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        from.deserialize_map(Names)
    }
}

/// The message of a line; None if Python must look at it.
pub fn read(line: &[u8]) -> Option<Line<'_>> {
    // serde would also take an array, with its items for the fields.
    let first = line.iter().find(|byte| !byte.is_ascii_whitespace())?;
    if *first != b'{' {
        return None;
    }
    serde_json::from_slice(line).ok()
}
