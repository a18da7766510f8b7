//! Makes the buffers of Arrow arrays from the records of a batch. `rmqctl/arrow/arrays.py` does the
//! same with numpy.
//!
//! Rows are taken in small blocks, and of each block all columns are made, so that the records stay in
//! the processor's cache meanwhile.

use crate::arrow::hosts::{Hosts, push_msg_id};
use crate::arrow::maps::{Maps, Texts};
use crate::bytes::fetch;
use crate::bytes::memory::take;
use crate::layouts::{HOST_V6_MASK, HOST_V6_SHIFT, PREFIXES, Prefix};
use crate::record::entry::{i32_at, i64_at};
use crate::scan::columns::INT_COLUMNS;

/// Rows of a block.
const BLOCK: usize = 32;
/// The first and the last millisecond of the calendar, years 1 to 9999.
const CALENDAR: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;

/// A column that is made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Whole numbers of the batch ([`INT_COLUMNS`]), as 32 bits.
    Narrow(usize),
    Flag,
    BornTimestamp,
    ReconsumeTimes,
    PreparedTransactionOffset,
    BornTime,
    StoreTime,
    Topic,
    BornHost,
    StoreHost,
    MsgId,
    TagsCode,
    Properties,
    Body,
}

/// By their names.
pub const COLUMNS: [(&str, Column); 18] = [
    ("total_size", Column::Narrow(TOTAL_SIZE)),
    ("queue_id", Column::Narrow(QUEUE_ID)),
    ("sys_flag", Column::Narrow(SYS_FLAG)),
    ("body_crc", Column::Narrow(BODY_CRC)),
    ("body_length", Column::Narrow(BODY_LENGTH)),
    ("flag", Column::Flag),
    ("born_timestamp", Column::BornTimestamp),
    ("reconsume_times", Column::ReconsumeTimes),
    ("prepared_transaction_offset", Column::PreparedTransactionOffset),
    ("born_time", Column::BornTime),
    ("store_time", Column::StoreTime),
    ("topic", Column::Topic),
    ("born_host", Column::BornHost),
    ("store_host", Column::StoreHost),
    ("msg_id", Column::MsgId),
    ("tags_code", Column::TagsCode),
    ("properties", Column::Properties),
    ("body", Column::Body),
];

const POSITION: usize = number_of("position");
const PHYSICAL_OFFSET: usize = number_of("physical_offset");
const TOTAL_SIZE: usize = number_of("total_size");
const BODY_CRC: usize = number_of("body_crc");
const QUEUE_ID: usize = number_of("queue_id");
const SYS_FLAG: usize = number_of("sys_flag");
const STORE_TIMESTAMP: usize = number_of("store_timestamp");
const BODY_POSITION: usize = number_of("body_position");
const BODY_LENGTH: usize = number_of("body_length");
const TOPIC_ID: usize = number_of("topic_id");
const PROPERTIES_POSITION: usize = number_of("properties_position");
const PROPERTIES_LENGTH: usize = number_of("properties_length");

/// The number of a column of the batch. An unknown name does not compile.
const fn number_of(name: &str) -> usize {
    let mut number = 0;
    while !is_same(INT_COLUMNS[number].as_bytes(), name.as_bytes()) {
        number += 1;
    }
    number
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The whole numbers of a batch: columns of 64-bit integers in this machine's byte order.
#[derive(Debug, Clone, Copy)]
pub struct Numbers<'a>(pub [&'a [u8]; INT_COLUMNS.len()]);

impl Numbers<'_> {
    fn rows(&self) -> usize {
        self.0.iter().map(|column| column.len() / 8).min().unwrap_or_default()
    }

    #[inline]
    fn at(&self, column: usize, row: usize) -> i64 {
        let mut number = [0; 8];
        number.copy_from_slice(&self.0[column][8 * row..8 * row + 8]);
        i64::from_ne_bytes(number)
    }

    /// The range of bytes that a column of positions and one of lengths give for a row. None if it is
    /// not in the file, which has `end` bytes.
    #[inline]
    fn range(&self, place: usize, length: usize, row: usize, end: usize) -> Option<(usize, usize)> {
        let start = usize::try_from(self.at(place, row)).ok()?;
        let stop = start.checked_add(usize::try_from(self.at(length, row)).ok()?)?;
        (stop <= end).then_some((start, stop))
    }

    /// The sum of a column of lengths, at most `most`.
    fn sum(&self, length: usize, most: usize) -> usize {
        let sizes = (0..self.rows()).map(|row| self.at(length, row));
        let size = sizes.fold(0i64, |sum, size| sum.saturating_add(size));
        usize::try_from(size).unwrap_or_default().min(most)
    }
}

/// Topics by their numbers: their bytes one behind the other, and a 0 and the end of each.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    pub ends: &'a [u8],
    pub bytes: &'a [u8],
}

impl<'a> Names<'a> {
    #[inline]
    fn get(&self, number: i64) -> Option<&'a [u8]> {
        let at = usize::try_from(number).ok()?.checked_mul(4)?;
        let place = |at: usize| {
            let bytes = self.ends.get(at..at.checked_add(4)?)?.first_chunk()?;
            Some(u32::from_ne_bytes(*bytes) as usize)
        };
        self.bytes.get(place(at)?..place(at.checked_add(4)?)?)
    }
}

/// The buffers of a column. `Odd`: Python must make the column, because of a value that is not plain,
/// or because it is larger than one array.
#[derive(Debug)]
pub enum Made {
    Ints(Vec<i32>),
    Longs(Vec<i64>),
    Texts(Texts),
    Maps(Box<Maps>),
    /// The column is in the `Maps`, which have both properties and tags codes.
    TagsCodes,
    Odd,
}

/// The wanted columns of a batch, whose records are in `data`. None if one of them is not in it.
pub fn columns(
    data: &[u8],
    numbers: Numbers<'_>,
    names: Names<'_>,
    wanted: &[Column],
) -> Option<Vec<Made>> {
    let mut making = Making::new(data, numbers, names, wanted);
    let rows = numbers.rows();
    for start in (0..rows).step_by(BLOCK) {
        making.take_block(start, (start + BLOCK).min(rows), rows)?;
    }
    Some(making.made)
}

/// A row of the block: the bytes of the record's fixed fields, and the positions of the fields.
type Row<'a> = (&'a [u8], &'static Prefix);

struct Making<'a> {
    data: &'a [u8],
    numbers: Numbers<'a>,
    names: Names<'a>,
    wanted: Vec<Column>,
    made: Vec<Made>,
    block: Vec<Row<'a>>,
    hosts: [Hosts; 2],
}

impl<'a> Making<'a> {
    fn new(data: &'a [u8], numbers: Numbers<'a>, names: Names<'a>, wanted: &[Column]) -> Self {
        let rows = numbers.rows();
        let sum = |length| numbers.sum(length, data.len());
        let mut has_maps = false;
        let first = |column: &Column| match column {
            Column::BornTimestamp
            | Column::PreparedTransactionOffset
            | Column::BornTime
            | Column::StoreTime => Made::Longs(take(rows)),
            Column::Topic | Column::BornHost | Column::StoreHost => {
                Made::Texts(Texts::new(rows, 16 * rows))
            }
            Column::MsgId => Made::Texts(Texts::new(rows, 32 * rows)),
            Column::Body if sum(BODY_LENGTH) > i32::MAX as usize => Made::Odd,
            Column::Body => Made::Texts(Texts::new(rows, sum(BODY_LENGTH))),
            Column::TagsCode | Column::Properties if has_maps => Made::TagsCodes,
            Column::TagsCode | Column::Properties => {
                has_maps = true;
                Made::Maps(Box::new(Maps::new(rows, sum(PROPERTIES_LENGTH))))
            }
            _ => Made::Ints(take(rows)),
        };
        let made = wanted.iter().map(first).collect();
        let block = Vec::with_capacity(BLOCK);
        Making { data, numbers, names, wanted: wanted.to_vec(), made, block, hosts: Hosts::two() }
    }

    /// Adds the rows `start..end` to each column. None if a record is not in the file.
    fn take_block(&mut self, start: usize, end: usize, rows: usize) -> Option<()> {
        self.block.clear();
        for row in start..end {
            let flags = self.numbers.at(SYS_FLAG, row) as i32 & HOST_V6_MASK;
            let prefix = &PREFIXES[(flags >> HOST_V6_SHIFT) as usize];
            let head = self.data.get(usize::try_from(self.numbers.at(POSITION, row)).ok()?..)?;
            self.block.push((head.get(..prefix.size)?, prefix));
        }
        self.fetch(end, (end + BLOCK).min(rows));
        for number in 0..self.wanted.len() {
            let (column, mut made) =
                (self.wanted[number], std::mem::replace(&mut self.made[number], Made::Odd));
            let is_whole = match &mut made {
                Made::Ints(ints) => self.add_ints(column, ints, start, end),
                Made::Longs(longs) => self.add_longs(column, longs, start, end),
                Made::Texts(texts) => self.add_texts(column, texts, start, end),
                Made::Maps(maps) => self.add_maps(maps, start, end)?,
                Made::TagsCodes => Some(()),
                Made::Odd => None,
            };
            if is_whole.is_some() {
                self.made[number] = made;
            }
        }
        Some(())
    }

    /// Prefetches the fixed fields and the properties of the next rows. The bodies are between them.
    fn fetch(&self, start: usize, end: usize) {
        let place = |column, row| usize::try_from(self.numbers.at(column, row)).unwrap_or_default();
        for row in start..end {
            let head = place(POSITION, row);
            fetch::range(self.data, head, head.saturating_add(PREFIXES[0].size));
            let properties = place(PROPERTIES_POSITION, row);
            let length = place(PROPERTIES_LENGTH, row);
            fetch::range(self.data, properties, properties.saturating_add(length));
        }
    }

    #[inline(always)]
    fn fields<T>(&self, of: impl Fn(&Row<'a>) -> T) -> impl Iterator<Item = T> {
        self.block.iter().map(of)
    }

    fn add_ints(
        &self,
        column: Column,
        ints: &mut Vec<i32>,
        start: usize,
        end: usize,
    ) -> Option<()> {
        match column {
            Column::Narrow(of) => {
                ints.extend((start..end).map(|row| self.numbers.at(of, row) as i32))
            }
            Column::Flag => ints.extend(self.fields(|(head, prefix)| i32_at(head, prefix.flag))),
            Column::ReconsumeTimes => {
                ints.extend(self.fields(|(head, prefix)| i32_at(head, prefix.reconsume_times)));
            }
            _ => return None,
        }
        Some(())
    }

    fn add_longs(
        &self,
        column: Column,
        longs: &mut Vec<i64>,
        start: usize,
        end: usize,
    ) -> Option<()> {
        let born = |(head, prefix): &Row<'a>| i64_at(head, prefix.born_timestamp);
        match column {
            Column::BornTimestamp => longs.extend(self.fields(born)),
            Column::PreparedTransactionOffset => {
                let place =
                    |(head, prefix): &Row<'a>| i64_at(head, prefix.prepared_transaction_offset);
                longs.extend(self.fields(place));
            }
            Column::BornTime => return push_times(longs, self.fields(born)),
            Column::StoreTime => {
                let stored = (start..end).map(|row| self.numbers.at(STORE_TIMESTAMP, row));
                return push_times(longs, stored);
            }
            _ => return None,
        }
        Some(())
    }

    /// None if a text is not plain, or one array cannot hold them.
    fn add_texts(
        &mut self,
        column: Column,
        texts: &mut Texts,
        start: usize,
        end: usize,
    ) -> Option<()> {
        match column {
            Column::Topic => {
                for row in start..end {
                    texts.push(self.names.get(self.numbers.at(TOPIC_ID, row))?)?;
                }
            }
            Column::BornHost => {
                for (head, prefix) in &self.block {
                    let host = &head[prefix.born_address..prefix.born_port + 4];
                    self.hosts[0].push(texts, host)?;
                }
            }
            Column::StoreHost => {
                for (head, prefix) in &self.block {
                    let host = &head[prefix.store_address..prefix.store_port + 4];
                    self.hosts[1].push(texts, host)?;
                }
            }
            Column::MsgId => {
                for ((head, prefix), row) in self.block.iter().zip(start..) {
                    let host = &head[prefix.store_address..prefix.store_port + 4];
                    let place = self.numbers.at(PHYSICAL_OFFSET, row).to_be_bytes();
                    push_msg_id(&mut texts.bytes, host, place);
                    texts.end()?;
                }
            }
            _ => {
                for row in start..end {
                    let (low, high) =
                        self.numbers.range(BODY_POSITION, BODY_LENGTH, row, self.data.len())?;
                    texts.push(&self.data[low..high])?;
                }
            }
        }
        Some(())
    }

    /// None if properties are not in the file; `Some(None)` if one array cannot hold more.
    fn add_maps(&self, maps: &mut Maps, start: usize, end: usize) -> Option<Option<()>> {
        let (place, length) = (PROPERTIES_POSITION, PROPERTIES_LENGTH);
        for row in start..end {
            let (low, high) = self.numbers.range(place, length, row, self.data.len())?;
            if maps.push(self.data, low, high).is_none() {
                return Some(None);
            }
        }
        Some(Some(()))
    }
}

/// Adds times in microseconds. None if one is outside the years 1 to 9999.
fn push_times(longs: &mut Vec<i64>, times: impl Iterator<Item = i64>) -> Option<()> {
    let mut is_odd = false;
    longs.extend(times.map(|time| {
        is_odd |= !CALENDAR.contains(&time);
        time.wrapping_mul(1000)
    }));
    (!is_odd).then_some(())
}
