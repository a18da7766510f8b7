//! Parses a line of NDJSON as a message, if it has only the most common fields, each of the right type:
//! those of a new message, or those of a row that commands print of a stored one.
//!
//! Every other line, right or wrong, is left to `MessageMaker.make`
//! (`rmqctl/operations/change/messagemaker.py`), which knows all fields and all error messages.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv4Addr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use crate::layouts::COMPRESSED_FLAG;
use crate::put::message::{Host, Origin, TAKEN_FLAGS};

/// What messages have of whose fields a line says nothing. Without a topic each line must have one.
#[derive(Debug, Default)]
pub struct Defaults {
    pub topic: Option<String>,
    pub queue_id: u32,
    pub tags: String,
    pub keys: String,
    pub properties: Vec<(String, String)>,
}

/// The fields that most new messages have. A field that is there twice, or an unknown one, is an error.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line<'a> {
    #[serde(borrow)]
    topic: Option<Text<'a>>,
    queue_id: Option<u32>,
    #[serde(borrow)]
    tags: Option<Text<'a>>,
    #[serde(borrow)]
    keys: Option<Text<'a>>,
    #[serde(borrow)]
    properties: Option<Pairs<'a>>,
    #[serde(borrow)]
    body: Option<Text<'a>>,
}

/// Those and the further fields of rows. They are read apart: a struct of so many fields takes a sixth
/// longer to make.
///
/// The fields behind `status` belong to the old store, or follow from the others (`PASSED_OVER` in
/// `rmqctl/engine/record/fields.py`).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row<'a> {
    #[serde(borrow)]
    topic: Option<Text<'a>>,
    queue_id: Option<u32>,
    #[serde(borrow)]
    tags: Option<Text<'a>>,
    #[serde(borrow)]
    keys: Option<Text<'a>>,
    #[serde(borrow)]
    properties: Option<Pairs<'a>>,
    #[serde(borrow)]
    body: Option<Text<'a>>,
    #[serde(borrow)]
    body_base64: Option<Text<'a>>,
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    body_encoding: Option<Text<'a>>,
    flag: Option<i32>,
    sys_flag: Option<i32>,
    born_timestamp: Option<i64>,
    #[serde(borrow)]
    born_host: Option<Text<'a>>,
    #[serde(borrow)]
    store_host: Option<Text<'a>>,
    reconsume_times: Option<i32>,
    prepared_transaction_offset: Option<i64>,
    body_crc: Option<i32>,
    body_length: Option<i32>,
    #[serde(borrow)]
    status: Option<Text<'a>>,
    #[serde(default, rename = "physical_offset")]
    _physical_offset: PassedOver,
    #[serde(default, rename = "total_size")]
    _total_size: PassedOver,
    #[serde(default, rename = "queue_offset")]
    _queue_offset: PassedOver,
    #[serde(default, rename = "store_timestamp")]
    _store_timestamp: PassedOver,
    #[serde(default, rename = "tags_code")]
    _tags_code: PassedOver,
    #[serde(default, rename = "msg_id")]
    _msg_id: PassedOver,
    #[serde(default, rename = "born_time")]
    _born_time: PassedOver,
    #[serde(default, rename = "store_time")]
    _store_time: PassedOver,
    #[serde(default, rename = "store")]
    _store: PassedOver,
    #[serde(default, rename = "broker")]
    _broker: PassedOver,
    #[serde(default, rename = "day")]
    _day: PassedOver,
}

/// Names and values in the order of the line, with repeated names.
#[derive(Debug)]
struct Pairs<'a>(Vec<(Text<'a>, Text<'a>)>);

/// A string. It borrows from the line if it has no escapes.
#[derive(Debug, Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

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

/// A value that is not used. It is read all the same: `IgnoredAny` would accept strings that are not
/// valid, which Python refuses.
#[derive(Debug, Default)]
struct PassedOver;

impl<'de> Deserialize<'de> for PassedOver {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = PassedOver;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a number, a string or null")
            }

            fn visit_i64<E: Error>(self, _: i64) -> Result<PassedOver, E> {
                Ok(PassedOver)
            }

            fn visit_u64<E: Error>(self, _: u64) -> Result<PassedOver, E> {
                Ok(PassedOver)
            }

            fn visit_str<E: Error>(self, _: &str) -> Result<PassedOver, E> {
                Ok(PassedOver)
            }

            fn visit_unit<E: Error>(self) -> Result<PassedOver, E> {
                Ok(PassedOver)
            }
        }
        from.deserialize_any(Any)
    }
}

/// A message.
pub struct Read<'a> {
    line: Line<'a>,
    defaults: &'a Defaults,
    /// The body, if `line` does not have it as it is stored.
    body: Option<Vec<u8>>,
    /// The fields that come from producer and broker.
    pub origin: Option<Origin>,
    /// Whether it is a row of a stored message.
    pub was_stored: bool,
}

/// The message of a line; None if Python must look at it. `usual` is the origin of messages that say
/// nothing else.
pub fn read<'a>(line: &'a [u8], defaults: &'a Defaults, usual: &Origin) -> Option<Read<'a>> {
    // serde would also take an array, with its items for the fields.
    let first = line.iter().find(|byte| !byte.is_ascii_whitespace())?;
    if *first != b'{' {
        return None;
    }
    if let Ok(line) = serde_json::from_slice(line) {
        return Some(Read { line, defaults, body: None, origin: None, was_stored: false });
    }
    serde_json::from_slice::<Row<'_>>(line).ok()?.read(defaults, usual)
}

impl Read<'_> {
    /// The topic; None if neither the line nor the defaults have one.
    pub fn topic(&self) -> Option<&str> {
        text(&self.line.topic).or(self.defaults.topic.as_deref())
    }

    /// The queue; None if it is no number of a queue.
    pub fn queue_id(&self) -> Option<i32> {
        i32::try_from(self.line.queue_id.unwrap_or(self.defaults.queue_id)).ok()
    }

    pub fn tags(&self) -> &str {
        text(&self.line.tags).unwrap_or(&self.defaults.tags)
    }

    pub fn keys(&self) -> &str {
        text(&self.line.keys).unwrap_or(&self.defaults.keys)
    }

    /// Names and values of the properties, in the order in which they are given.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        let usual = if self.line.properties.is_none() { &*self.defaults.properties } else { &[] };
        let own = self.line.properties.iter().flat_map(|pairs| &pairs.0);
        own.map(|(name, value)| (&*name.0, &*value.0))
            .chain(usual.iter().map(|(name, value)| (&**name, &**value)))
    }

    /// The bytes of the body.
    pub fn body(&self) -> &[u8] {
        match &self.body {
            Some(body) => body,
            None => text(&self.line.body).unwrap_or("").as_bytes(),
        }
    }

    /// The sys flag, if it says that the body is compressed.
    pub fn compression(&self) -> Option<i32> {
        let sys_flag = self.origin.as_ref()?.sys_flag;
        Some(sys_flag).filter(|flags| flags & COMPRESSED_FLAG != 0)
    }
}

impl<'a> Row<'a> {
    fn read(self, defaults: &'a Defaults, usual: &Origin) -> Option<Read<'a>> {
        let is = |given: &Option<Text<'_>>, known: &[&str]| {
            text(given).is_none_or(|text| known.contains(&text))
        };
        let origin = self.origin(usual)?;
        let is_usual = is(&self.kind, &["message"]) && is(&self.status, &["ok", "unchecked"]);
        if !is_usual || origin.sys_flag & !TAKEN_FLAGS != 0 {
            return None;
        }
        let Row { topic, queue_id, tags, keys, properties, .. } = self;
        let encoding = text(&self.body_encoding).unwrap_or("utf8");
        let (given, encoding) = match (self.body, self.body_base64) {
            (None, Some(body)) => (Some(body), "base64"),
            (body, None) => (body, encoding),
            (Some(_), Some(_)) => return None,
        };
        let plain = text(&given).unwrap_or("");
        let body = match encoding {
            "utf8" => None,
            "base64" => Some(STANDARD.decode(plain).ok()?),
            _ => return None,
        };
        if !is_told(body.as_deref().unwrap_or(plain.as_bytes()), self.body_length, self.body_crc) {
            return None;
        }
        let line = Line { topic, queue_id, tags, keys, properties, body: given };
        let was_stored = self.kind.is_some();
        Some(Read { line, defaults, body, origin: Some(origin), was_stored })
    }

    /// What the row says of the message's origin; the rest is as in `usual`. None if a host is no
    /// IPv4 address with a port.
    fn origin(&self, usual: &Origin) -> Option<Origin> {
        Some(Origin {
            flag: self.flag.unwrap_or(usual.flag),
            sys_flag: self.sys_flag.unwrap_or(usual.sys_flag),
            born_timestamp: self.born_timestamp.unwrap_or(usual.born_timestamp),
            born_host: host(self.born_host.as_ref(), usual.born_host)?,
            store_host: host(self.store_host.as_ref(), usual.store_host)?,
            reconsume_times: self.reconsume_times.unwrap_or(usual.reconsume_times),
            prepared_transaction_offset: self
                .prepared_transaction_offset
                .unwrap_or(usual.prepared_transaction_offset),
        })
    }
}

fn text<'s>(given: &'s Option<Text<'_>>) -> Option<&'s str> {
    given.as_ref().map(|text| &*text.0)
}

/// Whether a body is the one that its row tells of. The engine never checks the CRC of an empty one.
fn is_told(body: &[u8], length: Option<i32>, crc: Option<i32>) -> bool {
    let is_as_long = length.is_none_or(|length| usize::try_from(length) == Ok(body.len()));
    let is_checked = !body.is_empty() || length.is_none();
    let sum = || i64::from(crc32fast::hash(body) & 0x7fff_ffff);
    is_as_long && (!is_checked || crc.is_none_or(|crc| i64::from(crc) == sum()))
}

/// A host of the form `1.2.3.4:5`; without a text the usual one.
fn host(text: Option<&Text<'_>>, usual: Host) -> Option<Host> {
    let Some(text) = text else { return Some(usual) };
    let (address, port) = text.0.rsplit_once(':')?;
    // Rust would take a sign.
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let address: Ipv4Addr = address.parse().ok()?;
    Some((address.octets(), port.parse().ok().filter(|_| is_number)?))
}
