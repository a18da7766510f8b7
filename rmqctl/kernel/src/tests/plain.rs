//! Tests of the scan of plain records: it counts all of them, with complete units and keys.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::bytes::pieces::{PIECE, Source};
use crate::layouts::{EARLIEST_STORE_TIME, END_OF_STORE_TIMES, PREFIXES, QUEUE_UNIT_BYTES};
use crate::record::topics::Topics;
use crate::scan::parts;
use crate::scan::plain::{self, Asked, Part};
use crate::scan::window::Window;

use super::{FILE, Lots, record};

const ALL: Asked = Asked { check: true, units: true, keys: true };

/// Records of one queue. The one with the number `odd` has these properties.
fn log(count: usize, odd: usize, other: &[u8]) -> Vec<u8> {
    let (mut data, mut lots) = (Vec::new(), Lots(7));
    for number in 0..count {
        let body = [b"b", &lots.bytes(number % 90)[..]].concat();
        let properties: &[u8] = if number == odd { other } else { b"UNIQ_KEY\x01A\x02KEYS\x01a b" };
        let mut one = record(data.len(), 0, 0, [&body, b"Topic", properties]);
        one[20..28].copy_from_slice(&(number as i64).to_be_bytes());
        data.extend(one);
    }
    data
}

fn read(data: &[u8], threads: usize, count: usize, asked: Asked) -> Vec<Part> {
    read_up_to(data.len(), data, threads, count, asked)
}

/// The parts of the records that begin before `limit`, as found in the map, and in the file.
fn read_up_to(limit: usize, data: &[u8], threads: usize, count: usize, asked: Asked) -> Vec<Part> {
    let readable = data.len();
    let window = Window { position: 0, limit, readable, file_from_offset: FILE };
    let starts = parts::starts(data, window, count);
    let read = |map: &[u8], file: Option<&File>| {
        let mut topics: Vec<_> = (0..threads).map(|_| Topics::new(false)).collect();
        plain::read(&mut topics, Source { map, file, readable }, window, &starts, asked).unwrap()
    };
    let file = file_of(data);
    let (mapped, pieces) = (read(data, None), read(data, Some(&file)));
    let all = |parts: &[Part]| {
        let places = |part: &Part| (part.start, part.reached, part.last_offset);
        let counts = |part: &Part| (part.records, part.units, part.newest_timestamp);
        let noted = |part: &Part| format!("{:?} {:?}", part.runs, part.keys);
        let all = parts.iter().map(|part| (places(part), counts(part), noted(part)));
        all.collect::<Vec<_>>()
    };
    assert!(all(&mapped) == all(&pieces));
    pieces
}

/// A file without a name that holds `data`.
fn file_of(data: &[u8]) -> File {
    let (process, thread) = (std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(format!("plain-{process}-{thread:?}"));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.write_all_at(data, 0).unwrap();
    file
}

/// Consecutive records with bodies of these sizes.
fn log_of(sizes: &[usize]) -> Vec<u8> {
    let mut data = Vec::new();
    for &size in sizes {
        let body = vec![b'b'; size];
        data.extend(record(data.len(), 0, 0, [&body, b"Topic", b"UNIQ_KEY\x01A\x02"]));
    }
    data
}

#[test]
fn records_on_two_pieces_are_found() {
    let smallest = log_of(&[1]).len() - 1;
    // Some end a few bytes before the end of a piece, at it, or behind it, by head or tail alone.
    for cut in [0, 1, 7, 8, 90, smallest - 1, smallest, smallest + 1] {
        let first = PIECE - smallest - cut;
        let data = log_of(&[first.max(1), 200, 1, 5000, PIECE / 2, PIECE / 2, 1, 9]);
        let parts = read(&data, 1, 1, ALL);
        assert_eq!((parts[0].records, parts[0].reached), (8, data.len()));
    }
}

#[test]
fn records_larger_than_a_piece_are_found() {
    let data = log_of(&[1, PIECE, 1, 2 * PIECE, 3 * PIECE, 1, 1]);
    for (threads, count) in [(1, 1), (2, 3)] {
        let parts = read(&data, threads, count, ALL);
        assert_eq!(parts.iter().map(|part| part.records).sum::<usize>(), 7);
    }
    // The last one begins before the window's end.
    let limit = data.len() - 2 * log_of(&[1]).len() - 1;
    for limit in [limit, limit - PIECE, limit + 2] {
        read_up_to(limit, &data, 1, 1, ALL);
    }
}

#[test]
fn a_file_that_has_become_shorter_ends_there() {
    let data = log_of(&[100; 50]);
    let one = data.len() / 50;
    let window =
        Window { position: 0, limit: 50 * one, readable: 50 * one, file_from_offset: FILE };
    for (left, records) in [(0, 0), (one - 1, 0), (7 * one, 7), (7 * one + 9, 7)] {
        let file = file_of(&data[..left]);
        let source = Source { map: &data[..left], file: Some(&file), readable: 50 * one };
        let parts = plain::read(&mut [Topics::new(false)], source, window, &[0], ALL).unwrap();
        assert_eq!((parts[0].records, parts[0].reached), (records, records * one));
    }
}

#[test]
fn units_and_keys_are_noted() {
    let data = log(400, usize::MAX, b"");
    for (threads, count) in [(1, 1), (3, 5)] {
        let parts = read(&data, threads, count, ALL);
        assert_eq!(parts.iter().map(|part| part.records).sum::<usize>(), 400);
        assert_eq!(parts.iter().map(|part| part.keys.key_hash.len()).sum::<usize>(), 1200);
        let sorted = plain::sorted(parts.iter().map(|part| (&part.runs[..], &[5][..])));
        let mut stored = Vec::new();
        let queues = sorted.join(&mut stored);
        assert_eq!((queues.len(), queues[0].topic, queues[0].queue_offset), (1, 5, 0));
        assert_eq!(stored.len(), 400 * QUEUE_UNIT_BYTES);
        assert_eq!(stored[..8], FILE.to_be_bytes());
    }
}

#[test]
fn a_check_alone_counts() {
    let parts = read(&log(400, usize::MAX, b""), 1, 5, Asked { check: true, ..Asked::default() });
    assert_eq!((parts.len(), parts[0].records), (1, 400));
    assert!(parts[0].runs.is_empty() && parts[0].keys.key_hash.is_empty());
}

#[test]
fn one_that_is_not_plain_ends_it() {
    for other in [b"DELAY\x013".as_slice(), b"INNER_MULTI_DISPATCH\x01a"] {
        let parts = read(&log(100, 60, other), 1, 1, Asked { check: false, ..ALL });
        assert_eq!(parts[0].records, 60);
    }
    for other in [b"".as_slice(), b"a\0\x01b", b"no separator", b"a\x01\xff"] {
        assert_eq!(read(&log(100, 60, other), 1, 1, ALL)[0].records, 60);
        let unchecked = Asked { check: false, ..ALL };
        assert_eq!(read(&log(100, 60, other), 1, 1, unchecked)[0].records, 100);
    }
}

#[test]
fn a_time_that_no_clock_shows_ends_it() {
    for (time, is_plain) in [
        (EARLIEST_STORE_TIME, true),
        (END_OF_STORE_TIMES - 1, true),
        (EARLIEST_STORE_TIME - 1, false),
        (END_OF_STORE_TIMES, false),
        (-1, false),
    ] {
        let mut data = log(100, usize::MAX, b"");
        data[PREFIXES[0].store_timestamp..][..8].copy_from_slice(&time.to_be_bytes());
        assert_eq!(read(&data, 1, 1, ALL)[0].records, if is_plain { 100 } else { 0 });
        // Times do not matter for dispatch.
        assert_eq!(read(&data, 1, 1, Asked { check: false, ..ALL })[0].records, 100);
    }
}

#[test]
fn a_wrong_checksum_ends_it() {
    let mut data = log(100, usize::MAX, b"");
    let last = data.len() - 40;
    data[last] ^= 1;
    let parts = read(&data, 2, 4, ALL);
    assert!(parts.iter().map(|part| part.records).sum::<usize>() >= 99);
    data[88] ^= 1;
    assert_eq!(read(&data, 2, 4, ALL)[0].records, 0);
}

#[test]
fn a_file_that_cannot_be_read_is_told() {
    let data = log_of(&[100; 5]);
    let window =
        Window { position: 0, limit: data.len(), readable: data.len(), file_from_offset: FILE };
    let directory = File::open(std::env::temp_dir()).unwrap();
    let source = Source { map: &data, file: Some(&directory), readable: data.len() };
    assert!(plain::read(&mut [Topics::new(false)], source, window, &[0], ALL).is_err());
}

#[test]
fn a_file_behind_all_offsets_ends_it() {
    // As much of it as has an offset, and a piece that begins behind that.
    let data = vec![0; 2 * PIECE];
    let from = i64::MAX - PIECE as i64;
    let (position, readable) = (PIECE + 1, data.len());
    let window = Window { position, limit: readable, readable, file_from_offset: from };
    let file = file_of(&data);
    let source = Source { map: &data, file: Some(&file), readable };
    let parts = plain::read(&mut [Topics::new(false)], source, window, &[position], ALL).unwrap();
    assert_eq!((parts[0].records, parts[0].reached), (0, position));
}
