//! Tests of lines: those of sound records are right, and arbitrary bytes cause no panic.

use super::{FILE, Lots, damaged, log, put, record};
use crate::layouts::PREFIXES;
use crate::lines::columns::{COLUMNS, Cell, Form, Spelling};
use crate::lines::rows::Lines;
use crate::record::entry::{Found, read};
use crate::record::text::{Escapes, is_plain, push_text, push_time};

const FORMS: [Form; 4] = [Form::Json, Form::Csv, Form::JsonFile, Form::CsvFile];
const SPELLINGS: [Spelling; 3] = [Spelling::Base64, Spelling::Hex, Spelling::Utf8];

fn all_columns(form: Form, spelling: Spelling) -> Lines {
    let cells = COLUMNS.map(|(name, column)| (name.to_owned(), Cell::Of(column)));
    Lines::new(cells.to_vec(), form, spelling, true, true)
}

/// The lines of the records at the front of some bytes.
fn lines_of(data: &[u8], lines: &mut Lines) -> (Vec<u8>, usize) {
    let (mut out, mut at, mut count) = (Vec::new(), 0, 0);
    while let Found::Record(record) = read(data, at, data.len(), FILE) {
        if !lines.push(&mut out, data, at, &record) {
            break;
        }
        at += record.total_size;
        count += 1;
    }
    (out, count)
}

#[test]
fn a_record_becomes_a_line() {
    let mut data =
        record(0, 0, 0, [b"a\"b", b"t", b"TAGS\x01x\x02a\x01\xc2\x85\x02\x01no\x02TAGS\x01A"]);
    put(&mut data, PREFIXES[0].born_address, &[10, 0, 0, 1, 0, 0, 0, 7]);
    let names = ["topic", "born_host", "tags_code", "properties", "body", "status"];
    let cells = names.map(|name| {
        let (_, column) = COLUMNS.iter().find(|(known, _)| *known == name).expect("a column");
        (name.to_owned(), Cell::Of(*column))
    });
    let cells = [vec![("type".to_owned(), Cell::Text(b"\"m\"".to_vec()))], cells.to_vec()].concat();
    let mut lines = Lines::new(cells, Form::Json, Spelling::Utf8, false, true);
    let (out, count) = lines_of(&data, &mut lines);
    let expected = concat!(
        r#"{"type":"m","topic":"t","born_host":"10.0.0.1:7","tags_code":65,"#,
        r#""properties":{"TAGS":"A","a":"\u0085"},"body":"a\"b","status":"ok"}"#,
        "\n"
    );
    assert_eq!((String::from_utf8(out).expect("text").as_str(), count), (expected, 1));
    data[88] = b'b';
    let (out, _) = lines_of(&data, &mut lines);
    assert!(out.ends_with(b"\"status\":\"body-crc-mismatch\"}\n"));
    assert_eq!(lines.mismatches, 1);
}

/// Cells that are reused from the line before must be what they would be if made again.
#[test]
fn a_line_is_the_same_whatever_was_before() {
    let bodies: [&[u8]; 4] = [b"a body of text", b"another one !!", b"\xff no text", b""];
    let topics: [&[u8]; 4] = [b"t", b"u", b"longer", b"\xff"];
    let properties: [&[u8]; 12] = [
        b"KEYS\x01order1\x02TAGS\x01tag1\x02",
        b"KEYS\x01order2\x02TAGS\x01tag1\x02",
        b"KEYS\x01order2\x02TAGS\x01tag2\x02",
        b"KEYS\x01order22\x02TAGS\x01tag\x02",
        b"KEYS\x01order\"\x02TAGS\x01tag1\x02",
        b"KEYS\x01orde\x012\x02TAGS\x01tag1\x02",
        b"KEYS\x01or\x02T\x012\x02TAGS\x01tag1\x02",
        b"TAGS\x01order3\x02KEYS\x01tag1\x02",
        b"KEYS\x01order4\x02KEYS\x01tag4\x02",
        b"KEYS\x01order\xff\x02TAGS\x01tag1\x02",
        b"",
        b"A\x01b",
    ];
    for form in FORMS {
        let (mut lots, mut lines) = (Lots(9), all_columns(form, Spelling::Utf8));
        let (mut chosen, mut changed, mut made) = ([0; 4], Vec::new(), 0);
        for _ in 0..5000 {
            for (choice, most) in chosen.iter_mut().zip([4, 4, 12, 2]) {
                if lots.below(6) == 0 {
                    *choice = lots.below(most);
                }
            }
            let [body, topic, pairs, flags] = chosen;
            let texts = [bodies[body], topics[topic], properties[pairs]];
            let mut data = record(0, flags, 0, texts);
            match lots.below(8) {
                0 => changed.clear(),
                // All but the size, the magic code and the body's length.
                1 => changed.push((8 + lots.below(70), lots.bytes(1)[0])),
                _ => {}
            }
            for &(at, byte) in &changed {
                if !(28..40).contains(&at) {
                    data[at] = byte;
                }
            }
            let alone = lines_of(&data, &mut all_columns(form, Spelling::Utf8));
            assert_eq!(lines_of(&data, &mut lines), alone);
            made += alone.1;
        }
        assert!(made > 1000, "{made}");
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let mut lots = Lots(7);
    for round in 0..2000 {
        let mut data = match round % 2 {
            0 => log(&mut lots, 4),
            _ => damaged(&mut lots, 4, 1 + round % 4),
        };
        for _ in 0..8 {
            // Hosts, times and flags may be anything.
            let at = 40 + lots.below(44);
            if let Some(byte) = data.get_mut(at) {
                *byte = lots.bytes(1)[0];
            }
        }
        for form in FORMS {
            let (out, count) = lines_of(&data, &mut all_columns(form, SPELLINGS[round % 3]));
            assert!(std::str::from_utf8(&out).is_ok());
            let newlines = out.iter().filter(|&&byte| byte == b'\n').count();
            assert!(newlines == count || form == Form::CsvFile);
        }
    }
}

#[test]
fn any_text_is_escaped() {
    let mut lots = Lots(8);
    for _ in 0..5000 {
        let length = lots.below(40);
        let text = lots.bytes(length);
        for escapes in [Escapes::SafeJson, Escapes::Json, Escapes::Visible] {
            let mut out = Vec::new();
            push_text(&mut out, &text, escapes);
            assert!(out.iter().all(|&byte| byte >= 0x20));
        }
    }
}

/// Texts are checked many bytes at a time: a byte that needs an escape must be found at any position.
#[test]
fn what_stands_out_does_at_every_place() {
    for odd in [&b"\""[..], b"\\", b"\x1f", b"\0", b"\x7f", "\u{e4}".as_bytes(), b" ", b"~"] {
        for place in 0..150 {
            let text = [&b"x".repeat(place)[..], odd, &b"y".repeat(149 - place)].concat();
            let characters = std::str::from_utf8(&text).expect("it is one").chars();
            for escapes in [Escapes::SafeJson, Escapes::Json, Escapes::Visible] {
                let (mut out, mut one_by_one) = (Vec::new(), Vec::new());
                push_text(&mut out, &text, escapes);
                for one in characters.clone() {
                    push_text(&mut one_by_one, one.encode_utf8(&mut [0; 4]).as_bytes(), escapes);
                }
                assert_eq!(out, one_by_one);
                assert!(out == text || !is_plain(&text));
            }
        }
    }
}

#[test]
fn times_are_those_of_the_calendar() {
    let times = [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_400_123, "2000-02-29T00:00:00.123Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
    ];
    for (time, told) in times {
        let mut out = Vec::new();
        assert!(push_time(&mut out, time));
        assert_eq!(out, told.as_bytes());
    }
    for time in [-62_135_596_800_001, 253_402_300_800_000, i64::MIN, i64::MAX] {
        assert!(!push_time(&mut Vec::new(), time));
    }
}
