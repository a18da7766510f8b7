//! Records as lines of NDJSON or CSV: the rows of messages (`rmqctl/operations/look/rows.py`), as
//! the commands print them.
//!
//! Of a record that is not plain (a text that is no UTF-8, a compressed body that is to be
//! decompressed, more properties than anybody has) no line is made: the caller makes it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::arrow::hosts::push_msg_id;
use crate::bytes::memory::take;
use crate::layouts::{
    NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, PROPERTY_TAGS, Prefix, QUEUE_UNIT_BYTES,
    QUEUE_UNIT_PHYSICAL_OFFSET, QUEUE_UNIT_SIZE, QUEUE_UNIT_TAGS_CODE,
};
use crate::lines::steady::{Body, Fields, Run, runs};
use crate::record::entry::{Record, i32_at, i64_at, prefix_of};
use crate::record::keyhash::hash_code;
use crate::record::pairs::Pairs;
use crate::record::text::{self, Escapes, Short, host_text, push_int, push_quoted, push_text};

/// Columns that a record has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    PhysicalOffset,
    TotalSize,
    Topic,
    QueueId,
    QueueOffset,
    Flag,
    SysFlag,
    BodyCrc,
    BornTimestamp,
    BornHost,
    BornTime,
    StoreTimestamp,
    StoreHost,
    StoreTime,
    ReconsumeTimes,
    PreparedTransactionOffset,
    BodyLength,
    TagsCode,
    MsgId,
    Properties,
    Body,
    BodyEncoding,
    Status,
}

impl Column {
    /// Whether a cell is made of nothing but fields that records often have in common.
    fn is_steady(self) -> bool {
        match self {
            Column::TotalSize
            | Column::Topic
            | Column::QueueId
            | Column::Flag
            | Column::SysFlag
            | Column::BornTimestamp
            | Column::BornHost
            | Column::BornTime
            | Column::StoreTimestamp
            | Column::StoreHost
            | Column::StoreTime
            | Column::ReconsumeTimes
            | Column::PreparedTransactionOffset
            | Column::BodyLength
            | Column::BodyEncoding
            | Column::Status => true,
            Column::PhysicalOffset
            | Column::QueueOffset
            | Column::BodyCrc
            | Column::TagsCode
            | Column::MsgId
            | Column::Properties
            | Column::Body => false,
        }
    }
}

/// By their names in rows.
pub const COLUMNS: [(&str, Column); 24] = [
    ("physical_offset", Column::PhysicalOffset),
    ("total_size", Column::TotalSize),
    ("topic", Column::Topic),
    ("queue_id", Column::QueueId),
    ("queue_offset", Column::QueueOffset),
    ("flag", Column::Flag),
    ("sys_flag", Column::SysFlag),
    ("body_crc", Column::BodyCrc),
    ("born_timestamp", Column::BornTimestamp),
    ("born_host", Column::BornHost),
    ("born_time", Column::BornTime),
    ("store_timestamp", Column::StoreTimestamp),
    ("store_host", Column::StoreHost),
    ("store_time", Column::StoreTime),
    ("reconsume_times", Column::ReconsumeTimes),
    ("prepared_transaction_offset", Column::PreparedTransactionOffset),
    ("body_length", Column::BodyLength),
    ("tags_code", Column::TagsCode),
    ("msg_id", Column::MsgId),
    ("properties", Column::Properties),
    ("body", Column::Body),
    ("body_base64", Column::Body),
    ("body_encoding", Column::BodyEncoding),
    ("status", Column::Status),
];

/// What a line has at a place: of the record, or always the same: a text, or a number.
#[derive(Debug, Clone)]
pub enum Cell {
    Of(Column),
    Text(Vec<u8>),
}

/// What lines look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// What `--format ndjson` prints, or `csv`.
    Json,
    Csv,
    /// What `export` writes.
    JsonFile,
    CsvFile,
}

/// How a body is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    Base64,
    Hex,
    Utf8,
}

const BODY_CRC_MISMATCH: &[u8] = b"body-crc-mismatch";
const COMPRESSED_FLAG: i32 = 1;

/// Whose lines are wanted.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    pub topic: Option<Vec<u8>>,
    pub queue_id: Option<i64>,
    /// Store times, both included.
    pub since: Option<i64>,
    pub until: Option<i64>,
}

impl Choice {
    #[inline]
    pub fn takes(&self, data: &[u8], record: &Record) -> bool {
        let topic = record.topic_position..record.topic_position + record.topic_length;
        self.queue_id.is_none_or(|queue_id| queue_id == i64::from(record.queue_id))
            && self.topic.as_deref().is_none_or(|wanted| *wanted == data[topic])
            && self.since.is_none_or(|since| record.store_timestamp >= since)
            && self.until.is_none_or(|until| record.store_timestamp <= until)
    }
}

/// A cell's place in a line.
#[derive(Debug, Clone)]
struct Place {
    /// What stands before the cell.
    head: Short,
    /// None: what stands before it is all.
    column: Option<Column>,
    /// Whether a record often has the number, or time, of the one before: the last one, and what was
    /// made of it, with the head.
    is_often_same: bool,
    last: Option<i64>,
    text: Short,
}

/// What was made of the last host or topic: most follow one that is the same.
#[derive(Debug, Default, Clone)]
struct Last {
    bytes: Vec<u8>,
    text: Short,
}

/// Makes lines of records.
#[derive(Debug, Clone)]
pub struct Lines {
    cells: Vec<Place>,
    runs: Vec<Run>,
    fields: Fields,
    /// Room for the properties of a record.
    pairs: Pairs,
    end: &'static [u8],
    bodies: Bodies,
    spelled: Spelled,
    /// How many bodies were told to be not what was stored.
    pub mismatches: usize,
}

/// What becomes of bodies.
#[derive(Debug, Clone, Copy)]
struct Bodies {
    are_utf8: bool,
    /// Whether one that is compressed is left to the caller.
    decompresses: bool,
    checks: bool,
}

/// How cells are spelled.
#[derive(Debug, Clone)]
struct Spelled {
    form: Form,
    spelling: Spelling,
    topic: Last,
    hosts: [Last; 2],
    scratch: Vec<u8>,
}

/// The parts of a record that several columns are made of.
struct Parts<'a> {
    record: &'a Record,
    /// From the record's first byte on.
    bytes: &'a [u8],
    topic: &'a [u8],
    body: &'a [u8],
    properties: &'a [u8],
    pairs: &'a Pairs,
    told: Body,
    /// Whether the body is a text that is printed as it is.
    is_plain: bool,
}

impl Lines {
    /// Lines of these cells, by their names. A `checks` compares bodies with their checksums.
    pub fn new(
        cells: Vec<(String, Cell)>,
        form: Form,
        spelling: Spelling,
        decompresses: bool,
        checks: bool,
    ) -> Self {
        let is_csv = matches!(form, Form::Csv | Form::CsvFile);
        let before = |(number, (name, cell)): (usize, (String, Cell))| {
            let mut head = if number > 0 { b",".to_vec() } else { Vec::new() };
            if !is_csv {
                head = if number > 0 { b",".to_vec() } else { b"{".to_vec() };
                push_quoted(&mut head, name.as_bytes(), Escapes::Json);
                head.push(b':');
            }
            (head, cell)
        };
        let mut merged: Vec<(Vec<u8>, Option<Column>)> = Vec::new();
        let mut pending = Vec::new();
        for (head, cell) in cells.into_iter().enumerate().map(before) {
            pending.extend(head);
            match cell {
                Cell::Text(text) => pending.extend(text),
                Cell::Of(column) => merged.push((std::mem::take(&mut pending), Some(column))),
            }
        }
        merged.push((pending, None));
        let place = |(head, column)| Place {
            head: Short::new(head),
            column,
            is_often_same: !matches!(
                column,
                Some(Column::PhysicalOffset | Column::QueueOffset | Column::BodyCrc)
            ),
            last: None,
            text: Short::default(),
        };
        let cells: Vec<Place> = merged.into_iter().map(place).collect();
        let runs = runs(cells.iter().map(|one| one.column.is_none_or(Column::is_steady)));
        Lines {
            cells,
            runs,
            fields: Fields::default(),
            pairs: Pairs::default(),
            end: if is_csv { b"\n" } else { b"}\n" },
            bodies: Bodies { are_utf8: spelling == Spelling::Utf8, decompresses, checks },
            spelled: Spelled {
                form,
                spelling,
                topic: Last::default(),
                hosts: [Last::default(), Last::default()],
                scratch: Vec::new(),
            },
            mismatches: 0,
        }
    }

    /// Adds the line of the record at `position` of `data`; false, and nothing, where it is not
    /// plain.
    pub fn push(
        &mut self,
        out: &mut Vec<u8>,
        data: &[u8],
        position: usize,
        record: &Record,
    ) -> bool {
        let start = record.properties_position;
        let properties = &data[start..start + record.properties_length];
        if !self.pairs.read(properties) {
            return false;
        }
        let Some(parts) = Parts::of(data, position, record, (properties, &self.pairs), self.bodies)
        else {
            return false;
        };
        let is_damaged = parts.told.is_damaged;
        let before = out.len();
        let is_same =
            self.fields.are_same(&parts.bytes[..parts.prefix().size], parts.topic, parts.told);
        let (spelled, cells) = (&mut self.spelled, &mut self.cells);
        let is_plain = self
            .runs
            .iter_mut()
            .all(|run| spelled.push_run(out, run, &mut cells[run.cells.clone()], is_same, &parts));
        if !is_plain {
            self.fields.forget();
            out.truncate(before);
            return false;
        }
        out.extend_from_slice(self.end);
        self.mismatches += usize::from(is_damaged);
        true
    }
}

impl Spelled {
    /// Adds cells that stand beside each other; false where what the record has there is not plain.
    #[inline]
    fn push_run(
        &mut self,
        out: &mut Vec<u8>,
        run: &mut Run,
        cells: &mut [Place],
        is_same: bool,
        parts: &Parts<'_>,
    ) -> bool {
        if is_same && run.is_known {
            out.extend_from_slice(&run.text);
            return true;
        }
        run.is_known = false;
        let start = out.len();
        if !cells.iter_mut().all(|place| self.push_place(out, place, parts)) {
            return false;
        }
        if is_same && run.is_steady {
            run.text.clear();
            run.text.extend_from_slice(&out[start..]);
            run.is_known = true;
        }
        true
    }

    /// Adds a cell and what stands before it; false where what the record has there is not plain.
    #[inline]
    fn push_place(&mut self, out: &mut Vec<u8>, place: &mut Place, parts: &Parts<'_>) -> bool {
        let Some(column) = place.column else {
            place.head.push_to(out);
            return true;
        };
        let Some(number) = parts.number(column) else {
            place.head.push_to(out);
            return self.push_cell(out, column, parts);
        };
        if !place.is_often_same {
            place.head.push_to(out);
            return self.push_number(out, column, number);
        }
        if place.last != Some(number) {
            let (head, mut is_plain) = (&place.head, true);
            place.text.renew(|text| {
                head.push_to(text);
                is_plain = self.push_number(text, column, number);
            });
            place.last = is_plain.then_some(number);
            if !is_plain {
                return false;
            }
        }
        place.text.push_to(out);
        true
    }

    /// Adds what a column has of a number: that, or a time; false where no calendar has it.
    #[inline]
    fn push_number(&self, out: &mut Vec<u8>, column: Column, number: i64) -> bool {
        let mut is_plain = true;
        match column {
            Column::BornTime | Column::StoreTime => {
                self.in_quotes(out, |out| is_plain = text::push_time(out, number));
            }
            _ => push_int(out, number),
        }
        is_plain
    }

    /// Adds what is made of no number; false where what the record has there is not plain.
    fn push_cell(&mut self, out: &mut Vec<u8>, column: Column, parts: &Parts<'_>) -> bool {
        let (bytes, prefix) = (parts.bytes, parts.prefix());
        match column {
            Column::Topic => return self.push_topic(out, parts),
            Column::BornHost => {
                return self.push_host(out, 0, &bytes[prefix.born_address..prefix.born_port + 4]);
            }
            Column::StoreHost => {
                let host = &bytes[prefix.store_address..prefix.store_port + 4];
                return self.push_host(out, 1, host);
            }
            Column::MsgId => self.in_quotes(out, |out| {
                let host = &bytes[prefix.store_address..prefix.store_port + 4];
                push_msg_id(out, host, i64_at(bytes, prefix.physical_offset).to_be_bytes());
            }),
            Column::Properties => self.push_properties(out, parts),
            Column::Body => self.push_body(out, parts),
            Column::BodyEncoding => self.in_quotes(out, |out| {
                out.extend_from_slice(match parts.spelling(self.spelling) {
                    Spelling::Base64 => b"base64",
                    Spelling::Hex => b"hex",
                    Spelling::Utf8 => b"utf8",
                });
            }),
            Column::Status => self.in_quotes(out, |out| {
                out.extend_from_slice(if parts.told.is_damaged {
                    BODY_CRC_MISMATCH
                } else {
                    b"ok"
                });
            }),
            _ => unreachable!("{column:?} is a number"),
        }
        true
    }

    fn is_csv(&self) -> bool {
        matches!(self.form, Form::Csv | Form::CsvFile)
    }

    /// How texts are escaped that are cells, and those that are parts of JSON.
    fn escapes(&self) -> Escapes {
        match self.form {
            Form::Json => Escapes::SafeJson,
            Form::JsonFile => Escapes::Json,
            Form::Csv => Escapes::Visible,
            Form::CsvFile => Escapes::Raw,
        }
    }

    /// Adds what needs no escapes: JSON has it in quotes.
    #[inline]
    fn in_quotes(&self, out: &mut Vec<u8>, push: impl FnOnce(&mut Vec<u8>)) {
        if self.is_csv() {
            return push(out);
        }
        out.push(b'"');
        push(out);
        out.push(b'"');
    }

    /// Adds any text as a cell.
    fn push_text_cell(&mut self, out: &mut Vec<u8>, text: &[u8]) {
        if !self.is_csv() {
            return push_quoted(out, text, self.escapes());
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        push_text(&mut scratch, text, self.escapes());
        push_field(out, &scratch, self.form == Form::CsvFile);
        self.scratch = scratch;
    }

    fn push_topic(&mut self, out: &mut Vec<u8>, parts: &Parts<'_>) -> bool {
        let topic = parts.topic;
        if *self.topic.bytes != *topic {
            if std::str::from_utf8(topic).is_err() {
                return false;
            }
            let mut text = Vec::new();
            self.push_text_cell(&mut text, topic);
            self.topic = Last { bytes: topic.to_vec(), text: Short::new(text) };
        }
        self.topic.text.push_to(out);
        true
    }

    /// Adds `address:port` of a host as it is stored, port behind address.
    fn push_host(&mut self, out: &mut Vec<u8>, which: usize, host: &[u8]) -> bool {
        if *self.hosts[which].bytes != *host {
            let Some(told) = host_text(host) else { return false };
            let mut text = Vec::new();
            self.push_text_cell(&mut text, told.as_bytes());
            self.hosts[which] = Last { bytes: host.to_vec(), text: Short::new(text) };
        }
        self.hosts[which].text.push_to(out);
        true
    }

    fn push_properties(&mut self, out: &mut Vec<u8>, parts: &Parts<'_>) {
        if !self.is_csv() {
            return push_object(out, parts, self.escapes());
        }
        let escapes = if self.form == Form::Csv { Escapes::SafeJson } else { Escapes::Json };
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        push_object(&mut scratch, parts, escapes);
        push_field(out, &scratch, self.form == Form::CsvFile);
        self.scratch = scratch;
    }

    fn push_body(&mut self, out: &mut Vec<u8>, parts: &Parts<'_>) {
        match parts.spelling(self.spelling) {
            Spelling::Utf8 if parts.is_plain && !self.is_csv() => {
                self.in_quotes(out, |out| out.extend_from_slice(parts.body));
            }
            Spelling::Utf8 => self.push_text_cell(out, parts.body),
            Spelling::Hex if parts.body.is_empty() => self.push_text_cell(out, b""),
            Spelling::Base64 if parts.body.is_empty() => self.push_text_cell(out, b""),
            Spelling::Hex => self.in_quotes(out, |out| text::push_lower_hex(out, parts.body)),
            Spelling::Base64 => self.in_quotes(out, |out| push_base64(out, parts.body)),
        }
    }
}

impl<'a> Parts<'a> {
    /// None where the body is not plain.
    #[inline]
    fn of(
        data: &'a [u8],
        position: usize,
        record: &'a Record,
        (properties, pairs): (&'a [u8], &'a Pairs),
        bodies: Bodies,
    ) -> Option<Self> {
        let body = &data[record.body_position..record.body_position + record.body_length];
        if bodies.decompresses && record.sys_flag & COMPRESSED_FLAG != 0 && !body.is_empty() {
            return None;
        }
        // It is looked at for this once, and then copied: long bodies are most of a line.
        let is_plain = bodies.are_utf8 && text::is_plain(body);
        let is_text = is_plain || bodies.are_utf8 && std::str::from_utf8(body).is_ok();
        let is_damaged = bodies.checks
            && !body.is_empty()
            && (crc32fast::hash(body) & 0x7fff_ffff) as i32 != record.body_crc;
        let bytes = &data[position..position + record.total_size];
        let topic = &data[record.topic_position..record.topic_position + record.topic_length];
        let told = Body { is_text, is_damaged };
        Some(Parts { record, bytes, topic, body, properties, pairs, told, is_plain })
    }

    #[inline]
    fn prefix(&self) -> &'static Prefix {
        prefix_of(self.record.sys_flag)
    }

    /// What a cell is made of that is a number or a time (ms).
    #[inline]
    fn number(&self, column: Column) -> Option<i64> {
        let (record, bytes, prefix) = (self.record, self.bytes, self.prefix());
        Some(match column {
            Column::PhysicalOffset => i64_at(bytes, prefix.physical_offset),
            Column::TotalSize => record.total_size as i64,
            Column::QueueId => i64::from(record.queue_id),
            Column::QueueOffset => record.queue_offset,
            Column::Flag => i64::from(i32_at(bytes, prefix.flag)),
            Column::SysFlag => i64::from(record.sys_flag),
            Column::BodyCrc => i64::from(record.body_crc),
            Column::BornTimestamp | Column::BornTime => i64_at(bytes, prefix.born_timestamp),
            Column::StoreTimestamp | Column::StoreTime => record.store_timestamp,
            Column::ReconsumeTimes => i64::from(i32_at(bytes, prefix.reconsume_times)),
            Column::PreparedTransactionOffset => i64_at(bytes, prefix.prepared_transaction_offset),
            Column::BodyLength => record.body_length as i64,
            Column::TagsCode => self.tags_code(),
            _ => return None,
        })
    }

    fn tags_code(&self) -> i64 {
        code_of(self.pairs.tags(self.properties))
    }

    fn spelling(&self, wanted: Spelling) -> Spelling {
        if wanted == Spelling::Utf8 && !self.told.is_text { Spelling::Base64 } else { wanted }
    }
}

/// Lines of the units that point to `places` (the end excluded), `most` at most, up to the first that was never
/// written; how many, and how many units were looked at.
pub fn unit_lines(
    units: &[u8],
    queue_offset: i64,
    parts: &[Vec<u8>; 5],
    most: usize,
    places: (Option<i64>, Option<i64>),
) -> (Vec<u8>, usize, usize) {
    let length = parts.iter().map(Vec::len).sum::<usize>() + 48;
    let mut out = take((units.len() / QUEUE_UNIT_BYTES).min(most) * length);
    let (mut count, mut seen) = (0, 0);
    for (unit, number) in units.chunks_exact(QUEUE_UNIT_BYTES).zip(queue_offset..) {
        if count == most || unit.iter().all(|&byte| byte == 0) {
            break;
        }
        seen += 1;
        let place = i64_at(unit, QUEUE_UNIT_PHYSICAL_OFFSET);
        if places.0.is_some_and(|from| place < from) || places.1.is_some_and(|to| place >= to) {
            continue;
        }
        let size = i64::from(i32_at(unit, QUEUE_UNIT_SIZE));
        let numbers = [number, place, size, i64_at(unit, QUEUE_UNIT_TAGS_CODE)];
        for (part, number) in parts.iter().zip(numbers) {
            out.extend_from_slice(part);
            push_int(&mut out, number);
        }
        out.extend_from_slice(&parts[4]);
        count += 1;
    }
    (out, count, seen)
}

/// The value of a property, as `pairs_of` has it.
pub fn value_of<'a>(properties: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let entries = properties.rsplit(|&byte| byte == PROPERTY_SEPARATOR);
    let values =
        entries.filter_map(|entry| entry.strip_prefix(name)?.strip_prefix(&[NAME_VALUE_SEPARATOR]));
    values.into_iter().find(|value| !value.is_empty())
}

pub fn tags_code<'a>(mut pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> i64 {
    code_of(pairs.find(|(name, _)| *name == PROPERTY_TAGS).map(|(_, tags)| tags))
}

fn code_of(tags: Option<&[u8]>) -> i64 {
    tags.map_or(0, |tags| i64::from(hash_code(tags, 0, tags.len(), 0) as i32))
}

/// Adds the properties as an object.
fn push_object(out: &mut Vec<u8>, parts: &Parts<'_>, escapes: Escapes) {
    if parts.pairs.is_plain {
        return parts.pairs.push_plain(out, parts.properties);
    }
    out.push(b'{');
    for (number, (name, value)) in parts.pairs.of(parts.properties).enumerate() {
        if number > 0 {
            out.push(b',');
        }
        push_quoted(out, name, escapes);
        out.push(b':');
        push_quoted(out, value, escapes);
    }
    out.push(b'}');
}

fn push_base64(out: &mut Vec<u8>, body: &[u8]) {
    let start = out.len();
    out.resize(start + body.len().div_ceil(3) * 4, 0);
    let done = STANDARD.encode_slice(body, &mut out[start..]);
    out.truncate(start + done.expect("there is room"));
}

/// Adds a field of CSV, in quotes where it must be. One that Spark reads must be, too, where it is
/// empty, or has a blank at an end.
fn push_field(out: &mut Vec<u8>, field: &[u8], is_for_spark: bool) {
    let is_edge = |byte: Option<&u8>| byte.is_none_or(|&byte| byte == b' ');
    let needs = field.iter().any(|byte| matches!(byte, b',' | b'"' | b'\r' | b'\n'));
    if !needs && !(is_for_spark && (is_edge(field.first()) || is_edge(field.last()))) {
        return out.extend_from_slice(field);
    }
    out.push(b'"');
    for &byte in field {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}
