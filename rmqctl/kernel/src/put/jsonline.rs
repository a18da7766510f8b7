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
use crate::put::append::{Host, Origin, TAKEN_FLAGS};

/// The fields of one line. A field that is there twice, or an unknown one, is an error.
///
/// The fields behind `status` belong to the old store, or follow from the others
/// (`PASSED_OVER` in `rmqctl/engine/record/fields.py`).
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

/// The message of a line; None if Python must look at it.
pub fn read(line: &[u8]) -> Option<Line<'_>> {
    // serde would also take an array, with its items for the fields.
    let first = line.iter().find(|byte| !byte.is_ascii_whitespace())?;
    if *first != b'{' {
        return None;
    }
    let line: Line<'_> = serde_json::from_slice(line).ok()?;
    let is_message = line.kind.as_ref().is_none_or(|kind| kind.0 == "message");
    let is_sound = line.status.as_ref().is_none_or(|one| one.0 == "ok" || one.0 == "unchecked");
    (is_message && is_sound && line.sys_flag() & !TAKEN_FLAGS == 0).then_some(line)
}

impl Line<'_> {
    /// The bytes of the body, which may be decoded into `room`. None if Python must look at it: it is
    /// spelled in another way, or is not the one that the line tells of.
    pub fn body<'a>(&'a self, room: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let text = |text: &'a Option<Text<'_>>| text.as_ref().map(|text| &*text.0);
        let encoding = text(&self.body_encoding).unwrap_or("utf8");
        let (body, encoding) = match (text(&self.body), text(&self.body_base64)) {
            (None, Some(body)) => (body, "base64"),
            (body, None) => (body.unwrap_or_default(), encoding),
            (Some(_), Some(_)) => return None,
        };
        let body = match encoding {
            "utf8" => body.as_bytes(),
            "base64" => {
                room.clear();
                STANDARD.decode_vec(body, room).ok()?;
                room
            }
            _ => return None,
        };
        let is_as_long = |length| usize::try_from(length) == Ok(body.len());
        let is_right = match self.body_length {
            Some(length) => is_as_long(length),
            None => true,
        };
        // The engine never checks the CRC of an empty body.
        let is_checked = !body.is_empty() || self.body_length.is_none();
        let is_same = |sum: i32| i64::from(crc32fast::hash(body) & 0x7fff_ffff) == i64::from(sum);
        (is_right && (!is_checked || self.body_crc.is_none_or(is_same))).then_some(body)
    }

    fn sys_flag(&self) -> i32 {
        self.sys_flag.unwrap_or(0)
    }

    /// The sys flag, if it says that the body is compressed.
    pub fn compression(&self) -> Option<i32> {
        Some(self.sys_flag()).filter(|flags| flags & COMPRESSED_FLAG != 0)
    }

    /// What the line says of the message's origin; the rest is as in `usual`. None if a host is no
    /// IPv4 address with a port.
    pub fn origin(&self, usual: &Origin) -> Option<Origin> {
        Some(Origin {
            flag: self.flag.unwrap_or(usual.flag),
            sys_flag: self.sys_flag(),
            born_timestamp: self.born_timestamp.unwrap_or(usual.born_timestamp),
            born_host: host(self.born_host.as_ref(), usual.born_host)?,
            store_host: host(self.store_host.as_ref(), usual.store_host)?,
            reconsume_times: self.reconsume_times.unwrap_or(usual.reconsume_times),
            prepared_transaction_offset: self
                .prepared_transaction_offset
                .unwrap_or(usual.prepared_transaction_offset),
        })
    }

    /// Whether it is a row of a stored message.
    pub fn was_stored(&self) -> bool {
        self.kind.is_some()
    }
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
