//! The columns of a batch of consecutive records.

use crate::record::entry::Record;

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

/// Bytes of the whole numbers of a row.
pub const ROW_BYTES: usize = 8 * INT_COLUMNS.len();

/// The whole numbers of a batch: columns of 64-bit integers in this machine's byte order. Each column
/// has an equal part of memory that the caller provides.
pub struct Ints<'a> {
    columns: [&'a mut [u8]; INT_COLUMNS.len()],
    rows: usize,
    most: usize,
}

impl<'a> Ints<'a> {
    /// Columns without a row, for as many rows as fit into `room`.
    pub fn new(room: &'a mut [u8]) -> Self {
        let most = room.len() / ROW_BYTES;
        let mut parts = room.chunks_exact_mut((8 * most).max(1));
        let columns = std::array::from_fn(|_| parts.next().unwrap_or_default());
        Ints { columns, rows: 0, most }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn is_full(&self) -> bool {
        self.rows == self.most
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
        let at = 8 * self.rows;
        for (column, value) in self.columns.iter_mut().zip(values) {
            column[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        self.rows += 1;
    }
}

/// The other columns of `Batch` (`rmqctl/engine/scan/batch.py`), under its names.
#[derive(Default)]
pub struct Extras {
    pub crc_matches: Vec<u8>,
    pub key_row: Vec<i64>,
    pub key_hash: Vec<i32>,
    pub malformed: Vec<i64>,
    pub multi_dispatch_rows: Vec<i64>,
    /// Rows with a port that is not from 0 to 65535.
    pub odd_port_rows: Vec<i64>,
    /// Rows whose properties may end with a checksum of the record.
    pub property_crc_rows: Vec<i64>,
    /// Rows with a DELAY property, and its value.
    pub delay_levels: Vec<(i64, Vec<u8>)>,
}
