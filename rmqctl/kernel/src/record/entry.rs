//! Parses one record. It accepts what `read_entry` (`rmqctl/engine/record/record.py`) accepts.

use crate::layouts::{
    HOST_V6_MASK, HOST_V6_SHIFT, Length, MIN_RECORD_SIZE, PREFIXES, Prefix, VERSIONS, Version,
};

/// The fields of a sound record. Positions are bytes in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    pub total_size: usize,
    pub body_crc: i32,
    pub queue_id: i32,
    pub queue_offset: i64,
    pub sys_flag: i32,
    pub born_port: i32,
    pub store_port: i32,
    pub store_timestamp: i64,
    pub body_position: usize,
    pub body_length: usize,
    pub topic_position: usize,
    pub topic_length: usize,
    pub properties_position: usize,
    pub properties_length: usize,
}

/// What was found at a position.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Record(Record),
    /// No record, or a damaged one. The walk in Python says which.
    Other,
    /// A record, by its fixed fields, that ends at this position of the file. That is behind what is
    /// readable, so the rest was not checked.
    Needs(usize),
}

/// Parses the record at `position` in `data`, the bytes of a file that begins at `file_from_offset` in
/// the log. The fixed fields are read in any case, the rest only up to `readable`.
#[inline]
pub fn read(data: &[u8], position: usize, readable: usize, file_from_offset: i64) -> Found {
    let Some(room) = data.get(position..) else {
        return Found::Other;
    };
    let head = PREFIXES[0];
    if room.len() < MIN_RECORD_SIZE {
        return Found::Other;
    }
    let Some(version) = version_of(u32_at(room, head.magic_code)) else {
        return Found::Other;
    };
    let Ok(total_size) = usize::try_from(i32_at(room, head.total_size)) else {
        return Found::Other;
    };
    if total_size < MIN_RECORD_SIZE || total_size > room.len() {
        return Found::Other;
    }
    if i64_at(room, head.physical_offset).checked_sub(file_from_offset)
        != i64::try_from(position).ok()
    {
        return Found::Other;
    }
    let sys_flag = i32_at(room, head.sys_flag);
    let prefix = prefix_of(sys_flag);
    if prefix.size > total_size {
        return Found::Other;
    }
    // RocketMQ takes a negative body length for 0.
    let body_length = i32_at(room, prefix.body_length).max(0) as usize;
    let lengths = version.topic_length.size + version.properties_length.size;
    let Some(texts) = total_size.checked_sub(prefix.size + body_length + lengths) else {
        return Found::Other;
    };
    if texts > version.topic_length.limit + version.properties_length.limit {
        return Found::Other;
    }
    if position + total_size > readable {
        return Found::Needs(position + total_size);
    }
    read_texts(&room[..total_size], position, sys_flag, prefix, version, body_length)
}

/// The positions of the fixed fields. They depend on whether the hosts are IPv4 or IPv6.
#[inline]
pub fn prefix_of(sys_flag: i32) -> &'static Prefix {
    &PREFIXES[((sys_flag & HOST_V6_MASK) >> HOST_V6_SHIFT) as usize]
}

/// Parses the rest of `record`, topic and properties. The lengths so far are known to fit.
#[inline]
fn read_texts(
    record: &[u8],
    position: usize,
    sys_flag: i32,
    prefix: &Prefix,
    version: &Version,
    body_length: usize,
) -> Found {
    let mut at = prefix.size + body_length;
    let topic_length = length_at(record, at, &version.topic_length);
    at += version.topic_length.size;
    if topic_length <= 0 || topic_length as usize > version.topic_length.limit {
        return Found::Other;
    }
    let topic_position = at;
    let topic_length = topic_length as usize;
    at += topic_length;
    if at + version.properties_length.size > record.len() {
        return Found::Other;
    }
    let properties_length = length_at(record, at, &version.properties_length).max(0) as usize;
    at += version.properties_length.size;
    if at + properties_length != record.len() {
        return Found::Other;
    }
    Found::Record(Record {
        total_size: record.len(),
        body_crc: i32_at(record, prefix.body_crc),
        queue_id: i32_at(record, prefix.queue_id),
        queue_offset: i64_at(record, prefix.queue_offset),
        sys_flag,
        born_port: i32_at(record, prefix.born_port),
        store_port: i32_at(record, prefix.store_port),
        store_timestamp: i64_at(record, prefix.store_timestamp),
        body_position: position + prefix.size,
        body_length,
        topic_position: position + topic_position,
        topic_length,
        properties_position: position + at,
        properties_length,
    })
}

#[inline]
fn version_of(magic_code: u32) -> Option<&'static Version> {
    VERSIONS.iter().find(|version| version.magic_code == magic_code)
}

/// A stored length: a signed number of one, two or four bytes.
#[inline]
fn length_at(data: &[u8], at: usize, length: &Length) -> i32 {
    match length.size {
        1 => i32::from(data[at] as i8),
        2 => i32::from(i16::from_be_bytes([data[at], data[at + 1]])),
        _ => i32_at(data, at),
    }
}

#[inline]
pub fn i32_at(data: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes_at(data, at))
}

#[inline]
fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes_at(data, at))
}

#[inline]
pub fn i64_at(data: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes_at(data, at))
}

#[inline]
fn bytes_at<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&data[at..at + N]);
    bytes
}
