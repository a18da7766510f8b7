//! Pulls of a queue, one answer of a broker after the other (`rmqctl/engine/read/getmessage.py`), as
//! lines: those answers in which nothing is odd, and after which a pull goes on.

use std::ops::Range;

use crate::bytes::fetch;
use crate::layouts::{
    PREFIXES, PROPERTY_TAGS, QUEUE_UNIT_BYTES, QUEUE_UNIT_PHYSICAL_OFFSET, QUEUE_UNIT_SIZE,
    QUEUE_UNIT_TAGS_CODE, VERSIONS,
};
use crate::lines::rows::Lines;
use crate::record::entry::{self, Found, Record, i32_at, i64_at};
use crate::record::pairs::value_of;

/// What one answer holds at most (`TransferLimits`), and where the log ends.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub messages: usize,
    /// Units that are looked at.
    pub units: usize,
    /// Bytes behind the log's end that count as in memory, and what may be taken from there.
    pub in_memory: i64,
    pub memory: (i64, usize),
    pub disk: (i64, usize),
    pub log_end: i64,
}

/// Tags that are wanted, and their codes; without texts the code alone decides.
#[derive(Debug, Clone, Default)]
pub struct Tags {
    pub codes: Vec<i64>,
    pub texts: Option<Vec<Vec<u8>>>,
}

/// What records may go out as they are stored: those of the version of 4.9.3, before a physical
/// offset, and at most so many bytes.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing {
    pub before: i64,
    pub bytes: usize,
}

/// Where the records of an answer stand, neighbours together, their bytes, how many they are, and
/// the queue offset of the next answer.
#[derive(Debug, Default)]
pub struct Stored {
    pub runs: Vec<Range<usize>>,
    pub bytes: usize,
    pub count: usize,
    pub next: i64,
}

/// Units of a queue as they are stored, the first of which has this queue offset, and where the
/// queue's file, or the queue, ends.
#[derive(Debug, Clone, Copy)]
pub struct Units<'a> {
    pub stored: &'a [u8],
    pub first: i64,
    pub file_end: i64,
    pub queue_end: i64,
}

/// A part of a file of the log that may be looked at.
#[derive(Debug, Clone)]
pub struct Part<'a> {
    pub data: &'a [u8],
    pub places: Range<usize>,
    pub file_from_offset: i64,
}

/// Bytes of one record that are fetched ahead.
const MOST_TOUCHED: usize = 1 << 12;
/// Those of its two ends, which are looked at before its line is made.
const HEAD: usize = 128;
const TAIL: usize = 192;
/// Lines before its own at which the rest is fetched.
const AHEAD: usize = 6;

/// How far pulls have come: lines, how many, and the queue offset of the next answer.
#[derive(Debug, Default)]
pub struct Pulled {
    pub out: Vec<u8>,
    pub count: usize,
    pub next: i64,
}

/// Pulls `most` messages at most, until there are lines of `room` bytes, which are added to `out`.
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

/// Adds the lines of records; false where one is not plain.
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

/// The records of one answer, at their places in the file, and the queue offset of the next answer;
/// None where something is odd.
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

/// The records of one answer as they are stored; None where something is odd, also where one of them
/// may not go out.
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

/// Has the processor fetch so many bytes at the beginning and at the end of the records of some
/// units, all of them at once: they lie far from each other, and to wait for one after the other
/// takes longer than to make their lines.
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

/// Takes the records of one answer, which begins at the queue offset `next`, and moves that on; how
/// many they are, None where something is odd, or `take` says so.
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
        // A Java int: with a unit that fills a gap, of the largest size, the sum turns negative.
        let sum = i64::from((total + size) as i32);
        if count > 0 && (count >= limits.messages || sum > bytes || count >= messages) {
            return Some(count);
        }
        *next += 1;
        if let Some(tags) = tags {
            let code = i64_at(unit, QUEUE_UNIT_TAGS_CODE);
            if i32::try_from(code).is_err() {
                return None; // The address of an extension unit, or a time.
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
