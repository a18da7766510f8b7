//! All that reads a store's bytes, given any: for tests and fuzzers, which want nothing but that it
//! ends, and not by a panic.

use crate::arrowmaps::maps;
use crate::columns::{Ints, ROW_BYTES};
use crate::keychain::{self, Geometry};
use crate::layouts::QUEUE_UNIT_BYTES;
use crate::parts;
use crate::plain::{self, Asked};
use crate::pull::{self, Limits, Outgoing, Part, Tags, Units, pull, records};
use crate::record::{Found, read};
use crate::rows::{COLUMNS, Cell, Form, Lines, Spelling, unit_lines};
use crate::scan::{Wanted, Window};
use crate::slots::Slots;
use crate::topics::Topics;

const FORMS: [Form; 4] = [Form::Json, Form::Csv, Form::JsonFile, Form::CsvFile];
const SPELLINGS: [Spelling; 3] = [Spelling::Base64, Spelling::Hex, Spelling::Utf8];
/// Where the file lies in its log: records of the tests say so.
const FILE: i64 = 1 << 30;
/// Rows of a batch.
const MOST: usize = 50;

/// Reads bytes in every way that there is; the first eight choose among the ways.
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
    let size = data.len() as i64;
    let pieces = (0..size).step_by(7).map(|start| (start, (start % 50).min(size - start)));
    let pieces: Vec<_> = pieces.collect();
    let rows = pieces.len();
    let made = maps(data, pieces.into_iter()).expect("they fit");
    assert!(made.rows.len() == rows + 1 && made.names.ends.len() == made.values.ends.len());
}

/// A key in what may be an index file: a search ends, and behind every item that it gives is another
/// one.
fn look_up(data: &[u8], choice: &[u8; 8]) {
    let geometry = Geometry { slots: u32::from(choice[0]) % 9, items: i32::from(choice[1]) };
    let wanted = keychain::Wanted {
        key_hash: i32::from(choice[2]),
        begin: i64::MIN,
        end: i64::MAX,
        is_growing: choice[3] & 1 != 0,
    };
    let Ok(mut reached) = keychain::start(data, geometry, wanted) else { return };
    for _ in 0..=geometry.items {
        let before = reached.index_no;
        let Ok(hits) = keychain::select(data, geometry, wanted, &mut reached, (1, 1)) else {
            return;
        };
        assert!(hits.len() <= 1 && reached.index_no < before.max(1));
    }
    assert!(reached.index_no == 0);
}

fn scan(data: &[u8], position: usize, threads: usize, parts: usize, wanted: u8) {
    let window =
        Window { position, limit: data.len(), readable: data.len(), file_from_offset: FILE };
    let wanted = Wanted { check: wanted & 1 != 0, properties: wanted & 2 != 0 };
    let mut topics: Vec<_> = (0..threads).map(|_| Topics::default()).collect();
    let starts = parts::starts(data, window, parts);
    let mut numbers = vec![0; starts.len() * MOST * ROW_BYTES];
    let rooms = numbers.chunks_exact_mut(MOST * ROW_BYTES).map(Ints::new).collect();
    parts::fill(&mut topics, data, window, &starts, wanted, rooms);
}

fn pass_plain(data: &[u8], position: usize, threads: usize, parts: usize, asked: u8) {
    let window =
        Window { position, limit: data.len(), readable: data.len(), file_from_offset: FILE };
    let asked = Asked { check: asked & 1 != 0, units: asked & 2 != 0, keys: asked & 4 != 0 };
    let mut topics: Vec<_> = (0..threads).map(|_| Topics::default()).collect();
    let starts = parts::starts(data, window, parts);
    let parts = plain::read(&mut topics, data, window, &starts, asked);
    assert!(parts.windows(2).all(|pair| pair[0].reached == pair[1].start));
    let numbers: Vec<Vec<i64>> =
        parts.iter().map(|part| (0..topics[part.thread].len() as i64).collect()).collect();
    let runs = parts.iter().zip(&numbers).map(|(part, numbers)| (&part.runs[..], &numbers[..]));
    let (_, stored) = plain::join(runs);
    let units: usize = parts.iter().map(|part| part.units).sum();
    assert_eq!(stored.len(), if asked.units { units * QUEUE_UNIT_BYTES } else { 0 });
}

/// Pulls of a queue that is the data itself, and of one that has a unit of each record.
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
