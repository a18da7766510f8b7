//! Pulls from a queue: the answers of a broker, one after the other, as
//! `rmqctl/engine/read/getmessage.py` gives them. Only answers without anything unusual are made here.
//! Lines are made only of answers that another answer follows.

use std::ops::Range;

use crate::bytes::fetch;
use crate::layouts::{
    PREFIXES, PROPERTY_TAGS, QUEUE_UNIT_BYTES, QUEUE_UNIT_PHYSICAL_OFFSET, QUEUE_UNIT_SIZE,
    QUEUE_UNIT_TAGS_CODE, VERSIONS,
};
use crate::lines::rows::Lines;
use crate::record::entry::{self, Found, Record, i32_at, i64_at};
use crate::record::pairs::value_of;

/// The limits of one answer (`TransferLimits`), and where the log ends.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub messages: usize,
    /// How many units are read at most.
    pub units: usize,
    /// Records that begin at most so many bytes before the log's end count as being in memory.
    pub in_memory: i64,
    /// Bytes and messages of an answer, if a record is in memory, and if it is on disk.
    pub memory: (i64, usize),
    pub disk: (i64, usize),
    pub log_end: i64,
}

/// The codes of the wanted tags, and their texts. Without texts the codes alone decide.
#[derive(Debug, Clone, Default)]
pub struct Tags {
    pub codes: Vec<i64>,
    pub texts: Option<Vec<Vec<u8>>>,
}

/// Which records may be sent as they are stored: those in the format of 4.9.3 that end before a
/// physical offset, and together have at most so many bytes.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing {
    pub before: i64,
    pub bytes: usize,
}

/// The records of an answer: their positions (consecutive records are one run), their bytes, how many
/// they are, and the queue offset of the next answer.
#[derive(Debug, Default)]
pub struct Stored {
    pub runs: Vec<Range<usize>>,
    pub bytes: usize,
    pub count: usize,
    pub next: i64,
}

/// Stored units of a queue. `first` is the queue offset of the first one. `file_end` and `queue_end`
/// are the queue offsets at which the queue's file and the queue end.
#[derive(Debug, Clone, Copy)]
pub struct Units<'a> {
    pub stored: &'a [u8],
    pub first: i64,
    pub file_end: i64,
    pub queue_end: i64,
}

/// A file of the log. Only the bytes of `places` may be used.
#[derive(Debug, Clone)]
pub struct Part<'a> {
    pub data: &'a [u8],
    pub places: Range<usize>,
    pub file_from_offset: i64,
}

/// How many bytes of one record are prefetched at most.
const MOST_TOUCHED: usize = 1 << 12;
/// How many bytes of its begin and of its end are prefetched before an answer: these are parsed first.
const HEAD: usize = 128;
const TAIL: usize = 192;
/// How many lines ahead the whole record is prefetched.
const AHEAD: usize = 6;

/// The result of pulls: lines, how many they are, and the queue offset of the next answer.
#[derive(Debug, Default)]
pub struct Pulled {
    pub out: Vec<u8>,
    pub count: usize,
    pub next: i64,
}

/// Pulls at most `most` messages, until `out`, to which the lines are added, has `room` bytes.
pub fn pull(
    lines: &mut Lines,
    out: Vec<u8>,
    units: Units<'_>,
    part: &Part<'_>,
    limits: Limits,
    tags: Option<&Tags>,
    (most, room): (usize, usize),
) -> Pulled {
    let mut pulled = Pulled { out, next: units.first, ..Pulled::default() };
    let mut records: Vec<(usize, Record)> = Vec::new();
    while pulled.out.len() < room && pulled.count + limits.messages <= most {
        let (bytes, count, next) = (pulled.out.len(), pulled.count, pulled.next);
        let mismatches = lines.mismatches;
        touch(units, part, next, limits.messages, (HEAD, TAIL));
        records.clear();
        let take = |position, record: &Record| {
            records.push((position, *record));
            true
        };
        let taken = answer(units, part, limits, tags, &mut pulled.next, take);
        pulled.count += taken.unwrap_or_default();
        let goes_on = taken.is_some()
            && push_all(lines, &mut pulled.out, part.data, &records)
            && pulled.count < most
            && next < pulled.next
            && pulled.next < units.queue_end;
        if !goes_on {
            pulled.out.truncate(bytes);
            (pulled.count, pulled.next, lines.mismatches) = (count, next, mismatches);
            break;
        }
    }
    pulled
}

/// Adds the lines of records. False if one is not plain.
fn push_all(
    lines: &mut Lines,
    out: &mut Vec<u8>,
    data: &[u8],
    records: &[(usize, Record)],
) -> bool {
    let fetch = |(start, record): &(usize, Record)| {
        fetch::range(data, *start, start + record.total_size.min(MOST_TOUCHED));
    };
    records.iter().take(AHEAD).for_each(fetch);
    records.iter().enumerate().all(|(number, (position, record))| {
        if let Some(ahead) = records.get(number + AHEAD) {
            fetch(ahead);
        }
        lines.push(out, data, *position, record)
    })
}

/// The records of one answer with their positions in the file, and the queue offset of the next
/// answer. None if anything is unusual.
pub fn records(
    units: Units<'_>,
    part: &Part<'_>,
    limits: Limits,
) -> Option<(Vec<(usize, Record)>, i64)> {
    touch(units, part, units.first, limits.messages, (MOST_TOUCHED, 0));
    let (mut records, mut next) = (Vec::new(), units.first);
    let take = |position, record: &Record| {
        records.push((position, *record));
        true
    };
    answer(units, part, limits, None, &mut next, take)?;
    Some((records, next))
}

/// The records of one answer as they are stored. None if anything is unusual, or if one of them may
/// not be sent.
pub fn stored(
    units: Units<'_>,
    part: &Part<'_>,
    limits: Limits,
    tags: Option<&Tags>,
    outgoing: Outgoing,
) -> Option<Stored> {
    let mut found = Stored { next: units.first, ..Stored::default() };
    let (runs, bytes) = (&mut found.runs, &mut found.bytes);
    let take = |position: usize, record: &Record| {
        let end = position + record.total_size;
        match runs.last_mut() {
            Some(run) if run.end == position => run.end = end,
            _ => runs.push(position..end),
        }
        *bytes += record.total_size;
        let is_known =
            i32_at(&part.data[position..], PREFIXES[0].magic_code) as u32 == VERSIONS[0].magic_code;
        let behind = part.file_from_offset.checked_add(end as i64);
        is_known
            && behind.is_some_and(|behind| behind <= outgoing.before)
            && *bytes <= outgoing.bytes
    };
    found.count = answer(units, part, limits, tags, &mut found.next, take)?;
    Some(found)
}

/// Prefetches `head` bytes at the begin and `tail` bytes at the end of the records of the next units,
/// all at once. The records are far apart: waiting for them one by one takes longer than making their
/// lines.
fn touch(units: Units<'_>, part: &Part<'_>, next: i64, most: usize, (head, tail): (usize, usize)) {
    let first = usize::try_from(next - units.first).unwrap_or(usize::MAX);
    let stored = units.stored.get(first.saturating_mul(QUEUE_UNIT_BYTES)..).unwrap_or_default();
    for unit in stored.chunks_exact(QUEUE_UNIT_BYTES).take(most) {
        let place = i64_at(unit, QUEUE_UNIT_PHYSICAL_OFFSET).checked_sub(part.file_from_offset);
        let Some(start) = place.and_then(|place| usize::try_from(place).ok()) else { continue };
        let size = i32_at(unit, QUEUE_UNIT_SIZE).max(0) as usize;
        let end = start.saturating_add(size).min(part.places.end);
        let behind = start.saturating_add(size.min(head)).min(end);
        fetch::range(part.data, start, behind);
        fetch::range(part.data, end.saturating_sub(tail).max(behind), end);
    }
}

/// Calls `take` with the records of one answer, which begins at the queue offset `next`, and advances
/// that. Returns how many they are; None if anything is unusual, or `take` returns false.
fn answer(
    units: Units<'_>,
    part: &Part<'_>,
    limits: Limits,
    tags: Option<&Tags>,
    next: &mut i64,
    mut take: impl FnMut(usize, &Record) -> bool,
) -> Option<usize> {
    let end = (*next + limits.units as i64).min(units.file_end).min(units.queue_end);
    let (mut total, mut count) = (0, 0);
    while *next < end {
        let at = usize::try_from(*next - units.first).ok()? * QUEUE_UNIT_BYTES;
        let unit = units.stored.get(at..at + QUEUE_UNIT_BYTES)?;
        let place = i64_at(unit, QUEUE_UNIT_PHYSICAL_OFFSET);
        let size = i64::from(i32_at(unit, QUEUE_UNIT_SIZE));
        if place < 0 || size <= 0 {
            return None;
        }
        let behind = limits.log_end.checked_sub(place)?;
        let (bytes, messages) = if behind > limits.in_memory { limits.disk } else { limits.memory };
        // A Java int, which overflows: a unit that fills a gap has the largest size.
        let sum = i64::from((total + size) as i32);
        if count > 0 && (count >= limits.messages || sum > bytes || count >= messages) {
            return Some(count);
        }
        *next += 1;
        if let Some(tags) = tags {
            let code = i64_at(unit, QUEUE_UNIT_TAGS_CODE);
            if i32::try_from(code).is_err() {
                return None; // The address of an extension unit, or a delivery time.
            }
            if !tags.codes.contains(&code) {
                continue;
            }
        }
        let position = usize::try_from(place.checked_sub(part.file_from_offset)?).ok()?;
        let record = record_at(part, position).filter(|one| one.total_size as i64 == size)?;
        if tags.is_some_and(|tags| !has_tag(part.data, &record, tags)) {
            continue;
        }
        if !take(position, &record) {
            return None;
        }
        (total, count) = (total + size, count + 1);
    }
    Some(count)
}

fn record_at(part: &Part<'_>, position: usize) -> Option<Record> {
    if position < part.places.start {
        return None;
    }
    let data = &part.data[..part.places.end.min(part.data.len())];
    match entry::read(data, position, data.len(), part.file_from_offset) {
        Found::Record(record) => Some(record),
        _ => None,
    }
}

fn has_tag(data: &[u8], record: &Record, tags: &Tags) -> bool {
    let start = record.properties_position;
    let properties = &data[start..start + record.properties_length];
    let Some(texts) = &tags.texts else { return true };
    value_of(properties, PROPERTY_TAGS).is_some_and(|tag| texts.iter().any(|one| one == tag))
}
