//! A message that is to be stored, and the fields, properties and checksum of its record. The bytes
//! are those of `MessageExtEncoder#encode` and `MessageDecoder#messageProperties2String`.

use crate::layouts::{
    COMPRESSED_FLAG, COMPRESSION_TYPE_MASK, MULTI_TAGS_FLAG, NAME_VALUE_SEPARATOR, PREFIXES,
    PROPERTY_DELAY_TIME_LEVEL, PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_SEPARATOR, Prefix,
};
use crate::record::hashmap;

/// The most properties of a message that is taken: sorting them takes the square of their number.
const MOST_PROPERTIES: usize = 64;
pub const PREFIX: Prefix = PREFIXES[0];
/// Bits of the sys flag that change nothing but the record's field. Others make a message of a
/// transaction, or say of which kind its hosts are.
pub const TAKEN_FLAGS: i32 = COMPRESSED_FLAG | MULTI_TAGS_FLAG | COMPRESSION_TYPE_MASK;

/// An IPv4 address and a port.
pub type Host = ([u8; 4], u16);

/// A message to be stored. Without an origin it has the usual one.
pub struct Message<'a> {
    pub topic: &'a str,
    pub queue_id: i32,
    pub body: &'a [u8],
    pub properties: Texts<'a>,
    pub origin: Option<Origin>,
}

/// Properties: in the order in which they were set, or as they are stored.
pub enum Texts<'a> {
    Entries(Vec<Entry<'a>>),
    Stored(&'a [u8]),
}

/// The fields of a message that come from its producer and its broker.
#[derive(Debug, Clone, Copy, Default)]
pub struct Origin {
    pub flag: i32,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub born_host: Host,
    pub store_host: Host,
    pub reconsume_times: i32,
    pub prepared_transaction_offset: i64,
}

impl Origin {
    /// That of a message of which only the hosts are known.
    pub fn of_hosts(born_host: Host, store_host: Host) -> Self {
        Origin { born_host, store_host, ..Default::default() }
    }

    /// Writes the fields into a record.
    pub fn put(&self, record: &mut [u8]) {
        let ((born, born_port), (store, store_port)) = (self.born_host, self.store_host);
        put(record, PREFIX.flag, self.flag.to_be_bytes());
        put(record, PREFIX.sys_flag, self.sys_flag.to_be_bytes());
        put(record, PREFIX.born_timestamp, self.born_timestamp.to_be_bytes());
        put(record, PREFIX.born_address, born);
        put(record, PREFIX.born_port, i32::from(born_port).to_be_bytes());
        put(record, PREFIX.store_address, store);
        put(record, PREFIX.store_port, i32::from(store_port).to_be_bytes());
        put(record, PREFIX.reconsume_times, self.reconsume_times.to_be_bytes());
        let offset = self.prepared_transaction_offset;
        put(record, PREFIX.prepared_transaction_offset, offset.to_be_bytes());
    }
}

/// A property, with room for the hash of its name, by which entries are sorted.
pub type Entry<'a> = (u32, (&'a str, &'a str));

/// Adds to a record what is known last: its store time (ms) and the CRC of its body.
#[inline]
pub fn seal(record: &mut [u8], timestamp: i64) {
    let mut length = [0; 4];
    length.copy_from_slice(&record[PREFIX.body_length..][..4]);
    let body = &record[PREFIX.size..][..i32::from_be_bytes(length) as usize];
    let sum = crc32fast::hash(body) & 0x7fff_ffff;
    put(record, PREFIX.body_crc, sum.to_be_bytes());
    put(record, PREFIX.store_timestamp, timestamp.to_be_bytes());
}

/// Whether one of the properties has this name.
pub fn has(entries: &[Entry<'_>], name: &[u8]) -> bool {
    entries.iter().any(|(_, (own, _))| own.as_bytes() == name)
}

/// Adds properties as they are stored (`PropertyEncoder`). None if Python must look at them: one has an
/// effect (a delay, further queues), there are too many, a name is there twice, or they could not be
/// read back.
pub fn extend_properties(record: &mut Vec<u8>, entries: &mut [Entry<'_>]) -> Option<()> {
    if has(entries, PROPERTY_DELAY_TIME_LEVEL) || has(entries, PROPERTY_INNER_MULTI_DISPATCH) {
        return None;
    }
    let many = entries.len() > MOST_PROPERTIES;
    if many || !hashmap::sort(entries, |(name, _)| name.as_bytes()) {
        return None;
    }
    for (number, (_, (name, value))) in entries.iter().enumerate() {
        if name.is_empty() || is_marked(name) || is_marked(value) {
            return None;
        }
        if number > 0 {
            record.push(PROPERTY_SEPARATOR);
        }
        record.extend_from_slice(name.as_bytes());
        record.push(NAME_VALUE_SEPARATOR);
        record.extend_from_slice(value.as_bytes());
    }
    Some(())
}

/// Whether a text holds a separator or a NUL.
fn is_marked(text: &str) -> bool {
    text.bytes().any(|byte| byte <= PROPERTY_SEPARATOR)
}

/// Writes `bytes` into a record, at the position `at`.
#[inline]
pub fn put<const N: usize>(record: &mut [u8], at: usize, bytes: [u8; N]) {
    record[at..at + N].copy_from_slice(&bytes);
}
