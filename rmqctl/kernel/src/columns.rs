//! A batch: consecutive records as columns.

use crate::record::Record;

/// Columns of whole numbers, in the order of [`Columns::ints`].
pub const INT_COLUMNS: [&str; 14] = [
    "position",
    "physical_offset",
    "total_size",
    "body_crc",
    "queue_id",
    "queue_offset",
    "sys_flag",
    "store_timestamp",
    "body_position",
    "body_length",
    "topic_id",
    "properties_position",
    "properties_length",
    "tags_code",
];

/// The columns of `Batch` (`rmqctl/engine/scan/batch.py`), under its names.
#[derive(Default)]
pub struct Columns {
    rows: usize,
    ints: [Vec<i64>; INT_COLUMNS.len()],
    pub crc_matches: Vec<u8>,
    pub key_row: Vec<i64>,
    pub key_hash: Vec<i32>,
    pub malformed: Vec<i64>,
    pub multi_dispatch_rows: Vec<i64>,
    /// Rows with a port that is none, and those whose properties may end with a checksum.
    pub odd_port_rows: Vec<i64>,
    pub property_crc_rows: Vec<i64>,
    /// Rows, and the text of their DELAY property.
    pub delay_levels: Vec<(i64, Vec<u8>)>,
}

impl Columns {
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// A column of whole numbers, by its place in [`INT_COLUMNS`].
    pub fn ints(&self, number: usize) -> &[i64] {
        &self.ints[number][..self.rows]
    }

    /// Begins a new batch in the same memory.
    pub fn clear(&mut self) {
        self.rows = 0;
        self.crc_matches.clear();
        self.key_row.clear();
        self.key_hash.clear();
        self.malformed.clear();
        self.multi_dispatch_rows.clear();
        self.odd_port_rows.clear();
        self.property_crc_rows.clear();
        self.delay_levels.clear();
    }

    /// Makes room for `rows` more.
    pub fn reserve(&mut self, rows: usize) {
        let rows = self.rows.saturating_add(rows);
        for column in &mut self.ints {
            if column.len() < rows {
                column.resize(rows, 0);
            }
        }
    }

    /// Adds a row; there must be room for it.
    #[inline]
    pub fn push(
        &mut self,
        position: usize,
        file_from_offset: i64,
        topic: i64,
        tags: i64,
        r: &Record,
    ) {
        let position = position as i64;
        let values = [
            position,
            position + file_from_offset,
            r.total_size as i64,
            i64::from(r.body_crc),
            i64::from(r.queue_id),
            r.queue_offset,
            i64::from(r.sys_flag),
            r.store_timestamp,
            r.body_position as i64,
            r.body_length as i64,
            topic,
            r.properties_position as i64,
            r.properties_length as i64,
            tags,
        ];
        for (column, value) in self.ints.iter_mut().zip(values) {
            column[self.rows] = value;
        }
        self.rows += 1;
    }
}
