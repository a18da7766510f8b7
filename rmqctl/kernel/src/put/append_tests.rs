//! Tests of the append: lines become records that can be read, and no line causes a panic.

use crate::bytes::mapped::Room;
use crate::put::append::{Appender, Input, Taken, Times};
use crate::put::jsonline::Defaults;
use crate::put::maker::{Asked, Fixed, Place, Stop};
use crate::put::message::Origin;
use crate::record::entry::{Found, read};

const FILE: i64 = 1 << 30;
const TIMES: Times = Times { born: 1, stored: 2 };

static NOTHING: Defaults = Defaults {
    topic: None,
    queue_id: 0,
    tags: String::new(),
    keys: String::new(),
    properties: Vec::new(),
};

/// Lines that have no defaults.
fn of(bytes: &[u8]) -> Input<'_> {
    Input { lines: bytes, at: 0, defaults: &NOTHING }
}

/// An appender with IPv4 hosts, and without any queue.
pub fn empty() -> Appender {
    Appender::new(Fixed {
        usual: Origin::of_hosts(([127, 0, 0, 1], 0), ([127, 0, 0, 1], 10911)),
        shortest_properties: 0,
        largest_record: 1 << 16,
        indexes_tags: false,
    })
}

fn appender() -> Appender {
    let mut appender = empty();
    assert_eq!(appender.admit(b"t", 0, 5, 8), 0);
    appender
}

fn append(appender: &mut Appender, file: &mut [u8], position: usize, lines: &[u8]) -> Taken {
    let end = file.len();
    let place = Place { position, end, file_from_offset: FILE, most: 100, enough: end };
    let (taken, Ok(())) =
        appender.append(Room::of(file), usize::MAX, place, of(lines), TIMES, &mut ());
    taken
}

#[test]
fn lines_become_records() {
    let mut file = [0; 4096];
    let lines = b"{\"topic\":\"t\",\"body\":\"x\"}\n{\"topic\":\"t\",\"tags\":\"y\"}\n";
    let taken = append(&mut appender(), &mut file, 7, lines);
    assert_eq!((taken.stop, taken.lines, taken.at), (Stop::Lines, 2, lines.len()));
    let mut position = 7;
    for (queue_offset, body) in [(5, 1), (6, 0)] {
        let Found::Record(record) = read(&file, position, file.len(), FILE) else {
            panic!("no record at {position}");
        };
        assert_eq!((record.queue_offset, record.body_length), (queue_offset, body));
        position += record.total_size;
    }
    assert_eq!(taken.position, position);
    assert!(file[position..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_line_has_the_defaults_of_what_it_does_not_say() {
    let defaults = Defaults {
        topic: Some("t".to_owned()),
        queue_id: 4,
        tags: "usual".to_owned(),
        keys: String::new(),
        properties: vec![("a".to_owned(), "b".to_owned())],
    };
    let bytes = b"{\"tags\":\"\",\"properties\":{}}\n{\"topic\":\"u\",\"queue_id\":null}\n{}\n";
    let mut appender = empty();
    appender.admit(b"t", 4, 0, 9);
    appender.admit(b"u", 4, 0, 9);
    let mut file = [0; 1000];
    let place = Place { position: 0, end: 1000, file_from_offset: FILE, most: 9, enough: 1000 };
    let (room, lines) = (Room::of(&mut file), Input { lines: bytes, at: 0, defaults: &defaults });
    let (taken, Ok(())) = appender.append(room, usize::MAX, place, lines, TIMES, &mut ());
    assert_eq!((taken.stop, taken.lines), (Stop::Lines, 3));
    let properties = b"TAGS\x01usual\x02a\x01b".len();
    appender.taken(|rows, _, _| {
        let sizes: Vec<(u32, usize)> = rows.iter().map(|row| (row.queue, row.size)).collect();
        assert_eq!(sizes, [(0, 92), (1, 92 + properties), (0, 92 + properties)]);
    });
}

#[test]
fn it_stops_where_something_is_to_be_asked() {
    let line = b"{\"topic\":\"t\"}\n".repeat(9);
    let mut appender = appender();
    let mut file = [0; 1000];
    let taken = append(&mut appender, &mut file, 0, &line);
    assert_eq!(
        (taken.stop, taken.lines, &*appender.maker.wanted),
        (Stop::Queue, 3, &b"\0\0\0\0t"[..])
    );
    assert_eq!(appender.admit(b"t", 0, 8, 99), 0);
    let taken = append(&mut appender, &mut file, 950, &line);
    assert_eq!((taken.stop, taken.lines), (Stop::Room, 0));
    assert!(file[950..].iter().all(|byte| *byte == 0));
    // A line without a message is not counted as one.
    assert_eq!(append(&mut appender, &mut file, 0, b" \n").stop, Stop::Unsure);
    for other in [&b"{\"topic\":\"u\"}"[..], b"{\"topic\":\"t\",\"queue_id\":1}"] {
        assert_eq!(append(&mut appender, &mut file, 0, other).stop, Stop::Queue);
    }
    for odd in [&b"[]"[..], b"{", b"{\"topic\":\"t\",\"sys_flag\":1}", b"\x0b", b"[\"t\",0]"] {
        assert_eq!(append(&mut appender, &mut file, 0, odd).stop, Stop::Unsure);
    }
}

/// Grants so many units and bytes at a time, for one queue less often than for the other, until it was
/// asked often enough.
struct Granting {
    asked: Vec<(String, i32, Option<i64>)>,
    ends: Vec<(usize, usize)>,
    most: usize,
}

impl Asked for Granting {
    type Error = usize;

    fn queue(
        &mut self,
        topic: &str,
        queue_id: i32,
        next: Option<i64>,
    ) -> Result<Option<(i64, i64)>, usize> {
        self.asked.push((topic.to_owned(), queue_id, next));
        if self.asked.len() > self.most {
            return Err(self.most);
        }
        let first = next.unwrap_or(7);
        Ok(Some((first, first + 1 + i64::from(queue_id) * 10)))
    }

    fn room(&mut self, position: usize, needed: usize) -> Result<Option<usize>, usize> {
        self.ends.push((position, needed));
        Ok((needed <= 3000).then_some(needed + 100))
    }

    fn is_compressed(&mut self, body: &[u8], sys_flag: i32) -> Result<bool, usize> {
        Ok(body == b"z" && sys_flag == 3)
    }
}

#[test]
fn a_compressed_body_is_looked_at_by_somebody_else() {
    let row = |body: &str, flag: u8| {
        let fields = format!("\"type\":\"message\",\"body\":\"{body}\",\"sys_flag\":{flag}");
        format!("{{\"topic\":\"u\",{fields}}}\n")
    };
    for (body, flag, stop) in [
        ("z", 3, Stop::Lines),
        ("y", 3, Stop::Unsure),
        ("y", 2, Stop::Lines),
        ("z", 4, Stop::Unsure),
    ] {
        let (mut appender, mut file) = (empty(), [0; 1000]);
        let place = Place { position: 0, end: 1000, file_from_offset: FILE, most: 9, enough: 1000 };
        let mut granting = Granting { asked: Vec::new(), ends: Vec::new(), most: 9 };
        let (room, line) = (Room::of(&mut file), row(body, flag));
        let lines = of(line.as_bytes());
        let (taken, done) = appender.append(room, usize::MAX, place, lines, TIMES, &mut granting);
        assert_eq!((taken.stop, done), (stop, Ok(())), "{body} {flag}");
        if stop == Stop::Lines {
            let Found::Record(record) = read(&file, 0, file.len(), FILE) else { panic!() };
            assert_eq!(record.sys_flag, i32::from(flag));
        }
    }
}

#[test]
fn what_it_asks_for_is_had_without_a_stop() {
    let lines = b"{\"topic\":\"u\"}\n{\"topic\":\"u\",\"queue_id\":1}\n".repeat(50);
    for (alone, most) in [(usize::MAX, 99), (0, 99), (usize::MAX, 3), (0, 3)] {
        let (mut appender, mut file) = (empty(), vec![0; 1 << 16]);
        let place =
            Place { position: 0, end: 100, file_from_offset: FILE, most: 999, enough: 1 << 16 };
        let mut granting = Granting { asked: Vec::new(), ends: Vec::new(), most };
        let room = Room::of(&mut file);
        let (taken, done) = appender.append(room, alone, place, of(&lines), TIMES, &mut granting);
        let rows = appender.taken(|rows, _, _| rows.to_vec());
        assert_eq!((rows.len(), taken.position), (taken.lines, rows.len() * 92));
        assert!(rows.iter().all(|row| row.queue_offset == 7 + row.position as i64 / 184));
        assert_eq!(granting.asked[..2], [("u".to_owned(), 0, None), ("u".to_owned(), 1, None)]);
        assert_eq!(granting.asked[2], ("u".to_owned(), 0, Some(8)));
        if most == 3 {
            assert_eq!((done, taken.lines), (Err(3), 4));
        } else {
            // The room granted for the record before is enough for the one that ends at 3036.
            assert_eq!((done, taken.stop, taken.lines), (Ok(()), Stop::Room, 33));
            assert_eq!(granting.ends.last(), Some(&(33 * 92, 34 * 92)));
            assert!(granting.ends.len() > 10);
        }
    }
}

#[test]
fn no_line_makes_it_panic() {
    let sound =
        b"{\"topic\":\"t\",\"keys\":\"a\",\"properties\":{\"b\":\"c\"},\"body\":\"\\u00e9\"}\n";
    let mut lots = 7u64;
    let mut next = || {
        lots = lots.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (lots >> 33) as usize
    };
    for _ in 0..20_000 {
        let mut line = sound.to_vec();
        for _ in 0..next() % 4 {
            let at = next() % line.len();
            line[at] = next() as u8;
        }
        line.truncate(line.len() - next() % 3);
        append(&mut appender(), &mut [0; 300], next() % 300, &line);
    }
}
