//! The hot loop: goes from record to record, and adds each to all columns.

use crate::bytes::fetch;
use crate::record::entry::{self, Found, Record};
use crate::record::indexkeys::{KeyPrefix, each_key};
use crate::record::keyhash::hash_code;
use crate::record::properties::{self, Properties};
use crate::record::shapes::KnownShapes;
use crate::record::topics::{Topic, Topics};
use crate::scan::columns::{Extras, Ints};

/// The records that are scanned: those that begin in `position..limit` of a file.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub position: usize,
    pub limit: usize,
    /// Only the fixed fields of a record may be read behind this position.
    pub readable: usize,
    pub file_from_offset: i64,
}

/// Why a scan stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It is at the window's limit, or at something that is not a sound record, or the batch is full.
    Done,
    /// It is at a record that ends at this position, behind what is readable.
    Needs(usize),
}

#[derive(Debug, Default, Clone, Copy)]
pub struct Wanted {
    /// CRCs of bodies, and malformed properties.
    pub check: bool,
    /// Tags codes, keys and what else dispatch needs of properties.
    pub properties: bool,
}

/// A batch in the making.
pub struct Batch<'a, 'b> {
    pub topics: &'a mut Topics,
    pub extras: &'a mut Extras,
    pub ints: &'a mut Ints<'b>,
    pub wanted: Wanted,
    pub shapes: KnownShapes,
}

impl Batch<'_, '_> {
    /// Adds the records of a window, as many as there is room for. Returns where it stopped, and why.
    pub fn fill(&mut self, data: &[u8], window: Window) -> (usize, Stop) {
        let mut position = window.position;
        while position < window.limit && !self.ints.is_full() {
            match entry::read(data, position, window.readable, window.file_from_offset) {
                Found::Other => break,
                Found::Needs(end) => return (position, Stop::Needs(end)),
                Found::Record(record) => {
                    let end = position + record.total_size;
                    fetch::behind(data, end, record.total_size, window.readable);
                    let at = record.topic_position;
                    let topic = self.topics.get(&data[at..at + record.topic_length]);
                    let tags_code = self.add(data, self.ints.rows() as i64, &record, topic);
                    let from = window.file_from_offset;
                    self.ints.push(position, from, topic.number, tags_code, &record);
                    position = end;
                }
            }
        }
        (position, Stop::Done)
    }

    /// Adds a record to the other columns. Returns the code of its tags.
    #[inline]
    fn add(&mut self, data: &[u8], row: i64, record: &Record, topic: Topic) -> i64 {
        let mut tags_code = 0;
        if self.wanted.properties && record.properties_length > 0 {
            let start = record.properties_position;
            let found = self.shapes.read(data, start, start + record.properties_length);
            if found.tags != (0, 0) {
                tags_code = i64::from(hash_code(data, found.tags.0, found.tags.1, 0) as i32);
            }
            self.add_properties(data, row, &found, topic.key_prefix);
        }
        if self.wanted.check {
            self.extras.crc_matches.push(u8::from(body_matches(data, record)));
            self.look_again(data, row, record);
        }
        tags_code
    }

    /// Notes whether a check must look at a row more closely.
    #[inline]
    fn look_again(&mut self, data: &[u8], row: i64, record: &Record) {
        let ports = 0..=i32::from(u16::MAX);
        if !ports.contains(&record.born_port) || !ports.contains(&record.store_port) {
            self.extras.odd_port_rows.push(row);
        }
        let start = record.properties_position;
        if properties::may_end_with_crc(&data[start..start + record.properties_length]) {
            self.extras.property_crc_rows.push(row);
        }
    }

    #[inline]
    fn add_properties(&mut self, data: &[u8], row: i64, found: &Properties, prefix: KeyPrefix) {
        let extras = &mut *self.extras;
        each_key(data, found, prefix, |key| {
            extras.key_row.push(row);
            extras.key_hash.push(key.marked());
        });
        if found.delay != (0, 0) {
            let level = data[found.delay.0..found.delay.1].to_vec();
            self.extras.delay_levels.push((row, level));
        }
        if found.multi_dispatch != (0, 0) {
            self.extras.multi_dispatch_rows.push(row);
        }
        if found.malformed && self.wanted.check {
            self.extras.malformed.push(row);
        }
    }
}

/// Whether the body matches its CRC. As in RocketMQ an empty body is not checked.
#[inline]
pub fn body_matches(data: &[u8], record: &Record) -> bool {
    let start = record.body_position;
    record.body_length == 0 || {
        let code = crc32fast::hash(&data[start..start + record.body_length]);
        (code & 0x7fff_ffff) as i32 == record.body_crc
    }
}
