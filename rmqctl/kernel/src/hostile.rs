//! Runs all code that reads a store's bytes, or lines to be put, on arbitrary bytes, for tests and
//! fuzzers. Each function must end without a panic. Where two ways give the same result, it compares
//! them.

use crate::arrow::maps::Maps;
use crate::arrow::rows::{self, Made, Names, Numbers};
use crate::bytes::mapped::Room;
use crate::bytes::pieces::Source;
use crate::index::items::{self, Places};
use crate::index::keychain::{self, Geometry};
use crate::index::links::link_items;
use crate::index::slots::{Items, Slots};
use crate::layouts::{INDEX_HEADER_BYTES, INDEX_ITEM_BYTES, INDEX_SLOT_BYTES, QUEUE_UNIT_BYTES};
use crate::lines::columns::{COLUMNS, Cell, Form, Spelling};
use crate::lines::pull::{self, Limits, Outgoing, Part, Tags, Units, pull, records};
use crate::lines::rows::Lines;
use crate::lines::units::unit_lines;
use crate::put::append::{Appender, Input, Times};
use crate::put::jsonline::Defaults;
use crate::put::maker::{Fixed, Place, Stop};
use crate::put::message::Origin;
use crate::queue::newunits;
use crate::queue::units::{Unit, by_queue};
use crate::record::entry::{Found, read};
use crate::record::topics::Topics;
use crate::scan::columns::{Ints, ROW_BYTES};
use crate::scan::parts;
use crate::scan::plain::{self, Asked};
use crate::scan::window::{Wanted, Window};

const FORMS: [Form; 4] = [Form::Json, Form::Csv, Form::JsonFile, Form::CsvFile];
const SPELLINGS: [Spelling; 3] = [Spelling::Base64, Spelling::Hex, Spelling::Utf8];
/// Where the file begins in its log. The records of the tests have matching physical offsets.
const FILE: i64 = 1 << 30;
/// The rows of a batch.
const MOST: usize = 50;

/// Reads bytes in every way. The first eight bytes choose the parameters.
pub fn read_all(given: &[u8]) {
    let Some((choice, data)) = given.split_first_chunk::<8>() else { return };
    let number = |at: usize| usize::from(choice[at]);
    scan(data, number(0), 1 + number(1) % 3, 1 + number(2) % 6, choice[3]);
    pass_plain(data, number(0), 1 + number(1) % 3, 1 + number(2) % 6, choice[3]);
    let form = FORMS[number(4) % FORMS.len()];
    let spelling = SPELLINGS[number(5) % SPELLINGS.len()];
    let cells = COLUMNS.map(|(name, column)| (name.to_owned(), Cell::Of(column)));
    let mut lines = Lines::new(cells.to_vec(), form, spelling, choice[6] & 1 != 0, true);
    let (mut out, mut at, mut places) = (Vec::new(), number(0) % 64, Vec::new());
    while at < data.len() {
        match read(data, at, data.len(), FILE) {
            Found::Record(record) => {
                lines.push(&mut out, data, at, &record);
                places.push((at, record.total_size));
                at += record.total_size;
            }
            _ => at += 1,
        }
    }
    assert!(std::str::from_utf8(&out).is_ok());
    pull_all(data, &places, &mut lines, choice);
    Slots::new(1 + number(7)).wrong_links(data, 1);
    look_up(data, choice);
    append(data, choice);
    sort_units(data);
    hang_items(data, choice);
    let size = data.len() as i64;
    let pieces = (0..size).step_by(7).map(|start| (start, (start % 50).min(size - start)));
    let (mut made, mut rows) = (Maps::new(0, 0), 0);
    for (start, length) in pieces {
        made.push(data, start as usize, (start + length) as usize).expect("it fits");
        rows += 1;
    }
    assert!(made.rows.len() == rows + 1 && made.names.ends.len() == made.values.ends.len());
    assert!([&made.names.bytes, &made.values.bytes].iter().all(|texts| is_text(texts)));
    make_columns(data, &places, choice);
}

fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

/// Makes columns of records, also after one byte of a batch's numbers has changed. All texts must be
/// UTF-8, and each column that is made must have all rows.
fn make_columns(data: &[u8], places: &[(usize, usize)], choice: &[u8; 8]) {
    let wanted = rows::COLUMNS.map(|(_, column)| column);
    let topics = Names { ends: &[0i32, 2, 3].map(i32::to_ne_bytes).concat(), bytes: b"abc" };
    let mut room = vec![0; places.len() * ROW_BYTES];
    let mut numbers = Ints::new(&mut room);
    for &(at, _) in places {
        let Found::Record(record) = read(data, at, data.len(), FILE) else {
            panic!("what was a record is none");
        };
        numbers.push(at, FILE, i64::from(choice[0] % 3), 0, &record);
    }
    let size = 8 * places.len();
    for is_wrong in [false, true] {
        if is_wrong && size > 0 {
            let at = usize::from(choice[1]) * 7 % room.len();
            room[at] ^= choice[2];
        }
        let column = |number: usize| &room[number * size..(number + 1) * size];
        let made = rows::columns(data, Numbers(std::array::from_fn(column)), topics, &wanted);
        assert!(is_wrong || made.is_some());
        for (made, column) in made.into_iter().flatten().zip(wanted) {
            let rows = match &made {
                Made::Ints(ints) => ints.len(),
                Made::Longs(longs) => longs.len(),
                Made::Texts(texts) => {
                    assert!(column == rows::Column::Body || is_text(&texts.bytes));
                    texts.ends.len() - 1
                }
                Made::Maps(maps) => maps.rows.len() - 1,
                Made::TagsCodes | Made::Odd => continue,
            };
            assert_eq!(rows, places.len());
        }
    }
}

/// Searches a key in what may be an index file. The search must end, and yield ever smaller numbers.
fn look_up(data: &[u8], choice: &[u8; 8]) {
    let geometry = Geometry { slots: u32::from(choice[0]) % 9, items: i32::from(choice[1]) };
    let wanted = keychain::Wanted {
        key_hash: i32::from(choice[2]),
        begin: i64::MIN,
        end: i64::MAX,
        is_growing: choice[3] & 1 != 0,
    };
    let Ok(mut reached) = keychain::start(data, geometry, wanted, &mut None) else { return };
    for _ in 0..=geometry.items {
        let before = reached.index_no;
        let Ok(hits) = keychain::select(data, geometry, wanted, &mut reached, (1, &mut 1)) else {
            return;
        };
        assert!(hits.len() <= 1 && reached.index_no < before.max(1));
    }
    assert!(reached.index_no == 0);
}

/// A line that is taken, with a place for arbitrary bytes.
const LINE: [&[u8]; 2] = [
    b"{\"type\":\"message\",\"topic\":\"Topic\",\"keys\":\"a b\",\"properties\":{\"c\":\"d\"},\"flag\":0,\
    \"born_host\":\"1.2.3.4:5\",\"body_encoding\":\"utf8\",\"msg_id\":\"7F\",\"body\":\"",
    b"\"}\n",
];

/// Appends lines that may be messages. Each one that is taken must be a record that can be read, with a
/// unit.
fn append(data: &[u8], choice: &[u8; 8]) {
    let mut appender = Appender::new(Fixed {
        usual: Origin::of_hosts(([127, 0, 0, 1], 0), ([127, 0, 0, 1], 10911)),
        shortest_properties: 0,
        largest_record: 1 << 10,
        indexes_tags: choice[7] & 1 != 0,
    });
    appender.admit(b"Topic", 0, i64::from(choice[0]), i64::from(choice[1]));
    let text = &data[..data.len().min(100)];
    let mut line = [LINE[0], text, LINE[1]].concat();
    let at = usize::from(choice[2]) % line.len();
    line[at] = choice[3];
    let lines = [LINE[0], LINE[1], &line, data].concat();
    let mut file = [0; 1 << 11];
    let start = usize::from(choice[4]);
    let end = file.len() - usize::from(choice[5]) * 4;
    let most = usize::from(choice[6]) % 8;
    let place = Place { position: start, end, file_from_offset: FILE, most, enough: end };
    let times = Times { born: 1, stored: 2 };
    let room = Room::of(&mut file);
    let topic = (choice[7] & 1 == 1).then(|| "Topic".to_owned());
    let tags = String::from_utf8_lossy(&text[..text.len().min(choice[7].into())]).into_owned();
    let defaults = Defaults { topic, tags, ..Defaults::default() };
    let input = Input { lines: &lines, at: 0, defaults: &defaults };
    let (taken, Ok(())) = appender.append(room, usize::MAX, place, input, times, &mut ());
    assert!(taken.position <= end && taken.at <= lines.len() + 1);
    assert!(taken.stop != Stop::Lines || taken.at >= lines.len());
    appender.taken(|rows, totals, keys| {
        let mut position = start;
        for row in rows {
            let Found::Record(record) = read(&file, position, file.len(), FILE) else {
                panic!("what was stored is no record");
            };
            assert!((row.position, row.size) == (position, record.total_size));
            position += row.size;
        }
        assert!(position == taken.position && file[position..].iter().all(|&byte| byte == 0));
        assert_eq!(
            rows.len() as i64,
            totals.iter().map(|(_, total)| total.messages()).sum::<i64>()
        );
        assert!(keys.hashes.len() == keys.offsets.len() && keys.hashes.len() == keys.stamps.len());
    });
}

/// Groups units of some queues, in any order. Each must be in the result once, and also in a queue's
/// file when they are stored.
fn sort_units(data: &[u8]) {
    let units: Vec<Unit> = data
        .chunks_exact(14)
        .map(|piece| Unit {
            topic: i64::from(piece[0] % 3),
            queue: i64::from(piece[1] % 3),
            queue_offset: i64::from(piece[2]),
            physical_offset: i64::from_be_bytes(array(&piece[3..11])),
            size: i64::from(piece[11]),
            tags_code: i64::from(piece[12]) - i64::from(piece[13]),
        })
        .collect();
    let found = by_queue(units.iter().copied(), units.len());
    let mut rows = found.rows.clone();
    rows.sort_unstable();
    assert!(rows.into_iter().eq(0..units.len() as i64));
    assert!(found.queues.windows(2).all(|two| two[0].start < two[1].start));
    let mut file = vec![0; found.stored.len()];
    newunits::store_all(&mut Room::of(&mut file), 0, &found.stored);
    assert_eq!(file, found.stored);
}

/// Makes items of any keys in every way. The results must be equal, and pass the check.
fn hang_items(data: &[u8], choice: &[u8; 8]) {
    let keys: Vec<(i32, i64, i64)> = data
        .chunks_exact(20)
        .map(|piece| {
            let hash = i32::from_be_bytes(array(&piece[..4]));
            let offset = i64::from_be_bytes(array(&piece[4..12]));
            (hash, offset, i64::from_be_bytes(array(&piece[12..])))
        })
        .collect();
    let slot_count = 1 + usize::from(choice[7]) % 9;
    let begin_timestamp = i64::from(choice[0]) - 100;
    let common = Items { first: 1, begin_timestamp, first_diff: None };
    let (mut slots, mut stored) = (Slots::new(slot_count), vec![0; keys.len() * INDEX_ITEM_BYTES]);
    slots.pack(keys.iter().copied(), common, &mut stored);
    let mut again = Slots::new(slot_count);
    assert_eq!(again.wrong_links(&stored, 1), (vec![], vec![]));
    let mut proven = Slots::new(slot_count);
    assert_eq!(proven.prove(&stored, keys.iter().copied(), common), keys.len());
    // Item 0 is never used.
    let items = INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * slot_count;
    let mut file = vec![0; items + INDEX_ITEM_BYTES * (keys.len() + 1)];
    let places =
        Places { slots: INDEX_HEADER_BYTES, slot_count: slot_count as u32, items, next: 1 };
    let first = keys.first().map_or(0, |key| items::time_diff_seconds(key.2, begin_timestamp));
    let mut room = Room::of(&mut file);
    let count = keys.len() as i32 + 1;
    let header = (begin_timestamp, 0, 0, 0, 0, count);
    let (.., fresh, counted) = items::store_run(&mut room, places, &keys, first, header);
    assert!(fresh as usize == slots.used && counted == count);
    assert!(file[items + INDEX_ITEM_BYTES..] == stored);
    let newest = slots.stored(0..slot_count);
    let newest = newest.map_or(vec![0; 4 * slot_count], |slots| slots.bytes().to_vec());
    assert!(file[INDEX_HEADER_BYTES..items] == newest);
    let same =
        proven.stored(0..slot_count).map_or(vec![0; 4 * slot_count], |own| own.bytes().to_vec());
    assert!(same == newest);
    let at = keys.iter().map(|key| i64::from(key.0.max(0)) % slot_count as i64);
    let links = link_items(at.collect::<Vec<_>>().into_iter(), 1.., |_| 0, 0);
    let previous = stored.chunks_exact(INDEX_ITEM_BYTES).map(|item| &item[INDEX_ITEM_BYTES - 4..]);
    assert!(previous.map(|four| i32::from_be_bytes(array(four))).eq(links.previous));
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("so many bytes")
}

fn scan(data: &[u8], position: usize, threads: usize, parts: usize, wanted: u8) {
    let window =
        Window { position, limit: data.len(), readable: data.len(), file_from_offset: FILE };
    let mut topics: Vec<_> = (0..threads).map(|_| Topics::new(wanted & 4 != 0)).collect();
    let wanted = Wanted { check: wanted & 1 != 0, properties: wanted & 2 != 0 };
    let starts = parts::starts(data, window, parts);
    let mut numbers = vec![0; starts.len() * MOST * ROW_BYTES];
    let rooms = numbers.chunks_exact_mut(MOST * ROW_BYTES).map(Ints::new).collect();
    parts::fill(&mut topics, data, window, &starts, wanted, rooms);
}

fn pass_plain(data: &[u8], position: usize, threads: usize, parts: usize, asked: u8) {
    let window =
        Window { position, limit: data.len(), readable: data.len(), file_from_offset: FILE };
    let mut topics: Vec<_> = (0..threads).map(|_| Topics::new(asked & 8 != 0)).collect();
    let asked = Asked { check: asked & 1 != 0, units: asked & 2 != 0, keys: asked & 4 != 0 };
    let starts = parts::starts(data, window, parts);
    let source = Source { map: data, file: None, readable: data.len() };
    let parts = plain::read(&mut topics, source, window, &starts, asked).expect("a map is read");
    assert!(parts.windows(2).all(|pair| pair[0].reached == pair[1].start));
    let numbers: Vec<Vec<i64>> =
        parts.iter().map(|part| (0..topics[part.thread].len() as i64).collect()).collect();
    let runs = parts.iter().zip(&numbers).map(|(part, numbers)| (&part.runs[..], &numbers[..]));
    let sorted = plain::sorted(runs);
    let units: usize = parts.iter().map(|part| part.units).sum();
    assert_eq!(sorted.bytes, if asked.units { units * QUEUE_UNIT_BYTES } else { 0 });
    let mut stored = Vec::new();
    sorted.join(&mut stored);
    assert_eq!(stored.len(), sorted.bytes);
}

/// Pulls from a queue whose units are the data itself, and from one with a unit for each record.
fn pull_all(data: &[u8], places: &[(usize, usize)], lines: &mut Lines, choice: &[u8; 8]) {
    let sound: Vec<u8> = places
        .iter()
        .flat_map(|&(place, size)| {
            let (place, size) = (FILE + place as i64, size as i32);
            [&place.to_be_bytes()[..], &size.to_be_bytes(), &[0; 8]].concat()
        })
        .collect();
    let limits = Limits {
        messages: 1 + usize::from(choice[2]) % 4,
        units: 7,
        in_memory: i64::from(choice[3]) << (choice[4] % 56),
        memory: (1 << 12, 4),
        disk: (100, 2),
        log_end: FILE + data.len() as i64,
    };
    let tags = Tags { codes: vec![0], texts: Some(vec![b"A".to_vec()]) };
    for (stored, tags) in [(data, None), (&sound[..], None), (&sound[..], Some(&tags))] {
        let first = i64::from(choice[5]);
        let end = first + (stored.len() / QUEUE_UNIT_BYTES) as i64 + i64::from(choice[6] & 1);
        let units = Units { stored, first, file_end: first + 10, queue_end: end };
        let part =
            Part { data, places: usize::from(choice[7])..data.len(), file_from_offset: FILE };
        let pulled = pull(lines, Vec::new(), units, &part, limits, tags, (20, 1 << 12));
        if let Some((records, next)) = records(units, &part, limits) {
            assert!(next >= first && records.len() <= limits.messages);
        }
        let outgoing = Outgoing { before: FILE + i64::from(choice[1]) * 9, bytes: 1 << 10 };
        let codes = tags.map(|tags| Tags { texts: None, ..tags.clone() });
        if let Some(found) = pull::stored(units, &part, limits, codes.as_ref(), outgoing) {
            assert!(found.next >= first && found.count <= limits.messages);
            assert!(found.bytes <= outgoing.bytes);
            assert_eq!(found.runs.iter().map(|run| run.len()).sum::<usize>(), found.bytes);
            let last = found.runs.iter().map(|run| FILE + run.end as i64).max();
            assert!(last.is_none_or(|last| last <= outgoing.before));
        }
        assert!(pulled.next >= first && pulled.count <= 20);
        let parts = ["[", ",", ",", ",", "]"].map(|part| part.as_bytes().to_vec());
        let (_, count, seen) = unit_lines(stored, first, &parts, 9, (Some(0), None));
        assert!(count <= seen && count <= 9);
    }
}
