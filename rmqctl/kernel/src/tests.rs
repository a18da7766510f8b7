//! Tests of the scan on sound records, on damaged ones and on arbitrary bytes. Here it must not panic.
//! `tests/test_engine` compares its results with those of the pure engine.

use crate::index::items::time_diff_seconds;
use crate::index::links::Places;
use crate::index::slots::{Items, Slots};
use crate::layouts::{EARLIEST_STORE_TIME, PREFIXES, VERSIONS};
use crate::queue::units::{Queue, Unit, by_queue};
use crate::record::entry::{Found, read};
use crate::record::keyhash::{hash_code, index_hash};
use crate::record::properties;
use crate::record::topics::Topics;
use crate::scan::columns::{INT_COLUMNS, Ints, ROW_BYTES};
use crate::scan::parts::{self, Part};
use crate::scan::window::{Stop, Wanted, Window};

mod hostile;
mod lines;
mod plain;

/// Where a file of these tests begins in its log.
const FILE: i64 = 1 << 30;

/// Numbers that look random and are always the same (xorshift64*).
struct Lots(u64);

impl Lots {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
    record[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A sound record that stands at `position`.
fn record(position: usize, flags: usize, version: usize, texts: [&[u8]; 3]) -> Vec<u8> {
    let ([body, topic, properties], prefix) = (texts, PREFIXES[flags]);
    let version = VERSIONS[version];
    let number = |size: usize, length: usize| (length as u32).to_be_bytes()[4 - size..].to_vec();
    let mut record = vec![0; prefix.size];
    record.extend_from_slice(body);
    record.extend(number(version.topic_length.size, topic.len()));
    record.extend_from_slice(topic);
    record.extend(number(version.properties_length.size, properties.len()));
    record.extend_from_slice(properties);
    let size = record.len() as i32;
    put(&mut record, prefix.total_size, &size.to_be_bytes());
    put(&mut record, prefix.magic_code, &version.magic_code.to_be_bytes());
    let crc = crc32fast::hash(body) & 0x7fff_ffff;
    put(&mut record, prefix.body_crc, &crc.to_be_bytes());
    put(&mut record, prefix.physical_offset, &(FILE + position as i64).to_be_bytes());
    put(&mut record, prefix.store_timestamp, &EARLIEST_STORE_TIME.to_be_bytes());
    put(&mut record, prefix.sys_flag, &((flags as i32) << 4).to_be_bytes());
    put(&mut record, prefix.body_length, &(body.len() as i32).to_be_bytes());
    record
}

fn log(lots: &mut Lots, records: usize) -> Vec<u8> {
    let mut data = Vec::new();
    for _ in 0..records {
        let (length, flags, version) = (lots.below(200), lots.below(4), lots.below(2));
        let (body, topic) = (lots.bytes(length), b"Topic".as_slice());
        let properties = b"UNIQ_KEY\x01AC1E\x02KEYS\x01a  b\x02TAGS\x01\xc3\xa9\x02DELAY\x013";
        data.extend(record(data.len(), flags, version, [&body, topic, properties]));
    }
    data
}

/// The result of scanning bytes with so many threads, in so many parts, and the numbers of all rows.
fn fill(
    data: &[u8],
    position: usize,
    readable: usize,
    threads: usize,
    count: usize,
) -> (parts::Filled, Vec<[i64; INT_COLUMNS.len()]>) {
    let (most, limit) = (1000, data.len());
    let window = Window { position, limit, readable, file_from_offset: FILE };
    let wanted = Wanted { check: true, properties: true };
    let mut topics: Vec<_> = (0..threads).map(|_| Topics::new(false)).collect();
    let starts = parts::starts(data, window, count);
    let mut numbers = vec![0; starts.len() * most * ROW_BYTES];
    let rooms = numbers.chunks_exact_mut(most * ROW_BYTES).map(Ints::new).collect();
    let filled = parts::fill(&mut topics, data, window, &starts, wanted, rooms);
    let number = |place: usize| {
        i64::from_ne_bytes(numbers[8 * place..8 * place + 8].try_into().expect("eight bytes"))
    };
    let mut rows = Vec::new();
    for (part, read) in filled.parts.iter().enumerate() {
        for row in 0..read.rows {
            let column = |column: usize| (part * INT_COLUMNS.len() + column) * most + row;
            rows.push(std::array::from_fn(|at| number(column(at))));
        }
    }
    (filled, rows)
}

#[test]
fn sound_records_become_rows() {
    let data = log(&mut Lots(1), 300);
    let (filled, rows) = fill(&data, 0, data.len(), 1, 1);
    assert_eq!((filled.reached, filled.stop, rows.len()), (data.len(), Stop::Done, 300));
    let [Part { extras, .. }] = &filled.parts[..] else { panic!("one part") };
    assert!(extras.crc_matches.iter().all(|&matches| matches == 1));
    assert_eq!(extras.key_row.len(), 900);
    assert_eq!(extras.delay_levels.len(), 300);
    let tags = INT_COLUMNS.iter().position(|name| *name == "tags_code").expect("a column");
    assert!(rows.iter().all(|row| row[tags] == 0xe9));
}

#[test]
fn a_record_beyond_what_is_readable_is_asked_for() {
    let data = record(0, 0, 0, [&[1; 5000], b"t", b""]);
    let (filled, rows) = fill(&data, 0, 200, 1, 1);
    assert_eq!((filled.reached, filled.stop, rows.len()), (0, Stop::Needs(data.len()), 0));
    let (filled, rows) = fill(&data, 0, data.len(), 1, 1);
    assert_eq!((filled.reached, filled.stop, rows.len()), (data.len(), Stop::Done, 1));
}

fn damaged(lots: &mut Lots, records: usize, times: usize) -> Vec<u8> {
    let mut data = log(lots, records);
    for _ in 0..times {
        let (at, kind) = (lots.below(data.len()), lots.below(4));
        match kind {
            0 => data[at] ^= 1 << lots.below(8),
            1 => data[at] = [0, 1, 0x7f, 0x80, 0xff][lots.below(5)],
            2 => data.truncate(at),
            _ => {
                let end = (at + 4).min(data.len());
                data[at..end].fill(0xff);
            }
        }
        data.resize(data.len().max(1), 0);
    }
    data
}

#[test]
fn no_bytes_make_it_panic() {
    let mut lots = Lots(2);
    for round in 0..3000 {
        let data = damaged(&mut lots, 4, 1 + round % 4);
        let (start, readable) = (lots.below(data.len() + 1), lots.below(2 * data.len()));
        fill(&data, start, readable, 1, 1);
        fill(&data, 0, data.len(), 1, 1);
    }
}

#[test]
fn threads_and_parts_change_nothing() {
    let mut lots = Lots(5);
    for round in 0..200 {
        let mut data = damaged(&mut lots, 40, round % 5);
        if round % 3 == 0 {
            // A body that contains a record with the right physical offset.
            let at = data.len();
            let inner = record(at + PREFIXES[0].size, 0, 0, [b"", b"t", b""]);
            data.extend(record(at, 0, 0, [&inner, b"t", b""]));
        }
        let (expected, rows) = fill(&data, 0, data.len(), 1, 1);
        for (threads, parts) in [(1, 5), (2, 5), (4, 30)] {
            let (found, found_rows) = fill(&data, 0, data.len(), threads, parts);
            // Each thread numbers topics for itself. Here all have one topic, except in damaged records.
            let known = |rows: &[[i64; 14]]| {
                rows.iter().map(|row| [&row[..10], &row[11..]].concat()).collect::<Vec<_>>()
            };
            assert_eq!(known(&found_rows), known(&rows[..found_rows.len()]));
            let is_whole = (found.reached, found.stop) == (expected.reached, expected.stop);
            assert!(is_whole || found.goes_on && found.reached > 0);
        }
    }
}

#[test]
fn every_length_at_its_limits() {
    let sound = record(0, 0, 0, [b"body", b"topic", b"a\x01b"]);
    let topic = PREFIXES[0].size + 4;
    for (at, size) in [(0, 4), (36, 4), (84, 4), (topic, 1), (topic + 6, 2)] {
        for value in
            [0u32, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, i32::MAX as u32, !0, 1 << 31]
        {
            let mut data = sound.clone();
            put(&mut data, at, &value.to_be_bytes()[4 - size..]);
            for readable in [0, 91, data.len(), usize::MAX] {
                read(&data, 0, readable, FILE);
            }
        }
    }
    for position in [0, 1, sound.len() - 1, sound.len(), usize::MAX] {
        assert!(matches!(read(&sound, position, 0, i64::MIN), Found::Other));
    }
}

#[test]
fn any_properties_are_read() {
    let mut lots = Lots(3);
    for _ in 0..5000 {
        let length = lots.below(60);
        let mut data: Vec<u8> = (0..length)
            .map(|_| b"\0\x01\x02\x03 TAGSKEY_UNIQ\xc3\xa9\xff"[lots.below(20)])
            .collect();
        data.extend_from_slice(b"\x02KEYS\x01k l\x02\x02");
        let found = properties::read(&data, 0, data.len());
        assert_eq!(&data[found.keys.0..found.keys.1], b"k l");
        assert_eq!(hash_code(&data, found.keys.0, found.keys.1, 0), 107 * 961 + 32 * 31 + 108);
        hash_code(&data, 0, data.len(), 9);
    }
}

#[test]
fn hashes_are_those_of_java() {
    let words: [(&[u8], u32); 5] = [
        (b"", 0),
        (b"a", 97),
        (b"TagA", 2_598_919),
        (b"polygenelubricants", 0x8000_0000),
        ("\u{1f600}".as_bytes(), 0xd83d * 31 + 0xde00),
    ];
    for (text, code) in words {
        assert_eq!(hash_code(text, 0, text.len(), 0), code);
    }
    assert_eq!([index_hash(5), index_hash(!4), index_hash(1 << 31)], [5, 5, 0]);
}

#[test]
fn a_table_of_places_grows() {
    let mut places = Places::new(1);
    let key = |number: i64| (number % 7, -number);
    for round in 0..2 {
        for number in 0..1000 {
            assert_eq!(places.place_of(key(number)), (number as usize, round == 0));
        }
    }
    assert!(places.into_keys().into_iter().eq((0..1000).map(key)));
}

#[test]
fn items_hang_on_their_slots() {
    let items = Items { first: 1, begin_timestamp: 1000, first_diff: Some(7) };
    let keys = [(5, 10, 1000), (15, 20, 3999), (6, 30, 0), (i32::MAX, i64::MIN, i64::MAX)];
    let (mut slots, mut stored) = (Slots::new(10), [0; 80]);
    slots.pack(keys.into_iter(), items, &mut stored);
    let ints = |at: usize| -> Vec<i32> {
        let fields = stored.chunks_exact(20).map(|item| &item[at..at + 4]);
        fields.map(|field| i32::from_be_bytes(field.try_into().expect("four bytes"))).collect()
    };
    assert_eq!(ints(0), [5, 15, 6, i32::MAX]);
    assert_eq!(ints(12), [7, 2, 0, i32::MAX]);
    assert_eq!(ints(16), [0, 1, 0, 0]);
    assert_eq!(slots.used, 3);
    let mut again = Slots::new(10);
    assert_eq!(again.wrong_links(&stored, 1), (vec![], vec![]));
    let newest = |slots: &Slots| slots.stored(0..10).map(|slots| slots.bytes().to_vec());
    assert_eq!(newest(&again), newest(&slots));
    let mut proven = Slots::new(10);
    let later = Items { first_diff: None, ..items };
    assert_eq!(proven.prove(&stored, keys.into_iter(), later), 0);
    stored[12..16].fill(0);
    assert_eq!(proven.prove(&stored, keys.into_iter(), later), 4);
    assert!(newest(&proven) == newest(&slots) && proven.stored(0..5).is_none());
    let lent = proven.stored(5..6);
    assert_eq!(lent.as_ref().map(|slot| slot.bytes()), Some(&[0, 0, 0, 2][..]));
    assert!(proven.is_lent());
    drop(lent);
    assert!(!proven.is_lent());
    stored[39] = 9;
    assert_eq!(Slots::new(10).wrong_links(&stored, 1), (vec![1], vec![1]));
}

#[test]
fn slots_whose_memory_was_used_before_are_empty() {
    const COUNT: usize = 1 << 18;
    let item = |number: u8| [&[0, 0, 0, number][..], &[0; 16]].concat();
    for number in 1..4 {
        let mut slots = Slots::new(COUNT);
        assert!(slots.stored(0..COUNT).is_none());
        assert_eq!(slots.wrong_links(&item(number), i32::from(number)), (vec![], vec![]));
        assert_eq!(slots.used, 1);
        let lent = slots.stored(0..COUNT);
        drop(slots);
        // Memory that is still lent is not reused.
        Slots::new(COUNT).wrong_links(&item(9), 9);
        let bytes =
            lent.as_ref().map(|lent| lent.bytes().iter().map(|&byte| usize::from(byte)).sum());
        assert_eq!(bytes, Some(usize::from(number)));
    }
}

#[test]
fn the_time_of_an_item_is_that_of_java() {
    for (stamp, begin, seconds) in [
        (5999, 1000, 4),
        (0, 1000, 0),
        (5, 0, 0),
        (i64::MIN, -1, 0),
        (i64::MAX, 1, i32::MAX),
        (i64::MIN, 1, i32::MAX),
    ] {
        assert_eq!(time_diff_seconds(stamp, begin), seconds);
    }
}

#[test]
fn any_items_are_looked_at() {
    let mut lots = Lots(4);
    for round in 1..500 {
        let length = lots.below(400);
        let stored = lots.bytes(length);
        let (rows, previous) = Slots::new(round).wrong_links(&stored, 1);
        assert!(rows.len() == previous.len() && rows.len() <= length / 20);
    }
}

#[test]
fn units_are_sorted_by_queue() {
    let unit = |topic, queue, queue_offset, physical_offset| Unit {
        topic,
        queue,
        queue_offset,
        physical_offset,
        size: 91,
        tags_code: -1,
    };
    let units = [unit(1, 0, 4, 0), unit(0, 9, 0, 91), unit(1, 0, 5, 182), unit(0, 9, 2, 273)];
    let found = by_queue(units.into_iter(), units.len());
    let queue = |topic, queue, start, is_run| Queue { topic, queue, start, is_run };
    assert_eq!(found.queues, [queue(0, 9, 0, false), queue(1, 0, 2, true)]);
    assert_eq!(found.rows, [1, 3, 0, 2]);
    assert_eq!(found.stored[60..80], [&[0; 7][..], &[182, 0, 0, 0, 91], &[255; 8]].concat());
}
