//! Plain records are passed over, and what is noted of them is whole.

use crate::layouts::{EARLIEST_STORE_TIME, END_OF_STORE_TIMES, PREFIXES, QUEUE_UNIT_BYTES};
use crate::record::topics::Topics;
use crate::scan::parts;
use crate::scan::plain::{self, Asked, Part};
use crate::scan::window::Window;

use super::{FILE, Lots, record};

const ALL: Asked = Asked { check: true, units: true, keys: true };

/// Records of one queue, of which that of number `odd` has these properties.
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
    let (position, limit) = (0, data.len());
    let window = Window { position, limit, readable: limit, file_from_offset: FILE };
    let mut topics: Vec<_> = (0..threads).map(|_| Topics::default()).collect();
    let starts = parts::starts(data, window, count);
    plain::read(&mut topics, data, window, &starts, asked)
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
        // Dispatch has nothing to ask of a time.
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
