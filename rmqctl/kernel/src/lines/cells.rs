//! Writes the cells of a line.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::arrow::hosts::push_msg_id;
use crate::layouts::{COMPRESSED_FLAG, Prefix};
use crate::lines::columns::{Column, Form, Spelling};
use crate::lines::steady::{Body, Run};
use crate::record::entry::{Record, i32_at, i64_at, prefix_of};
use crate::record::pairs::{Pairs, code_of};
use crate::record::text::{self, Escapes, Short, host_text, push_int, push_quoted, push_text};

const BODY_CRC_MISMATCH: &[u8] = b"body-crc-mismatch";

/// A cell, and the fixed text before it.
#[derive(Debug, Clone)]
pub struct Place {
    /// The text before the cell.
    head: Short,
    /// None: there is only the text.
    pub column: Option<Column>,
    /// Whether consecutive records often have the same number, or time, here.
    is_often_same: bool,
    /// Then: the last number, and `head` followed by the cell that was made of it.
    last: Option<i64>,
    text: Short,
}

impl Place {
    pub fn new(head: Vec<u8>, column: Option<Column>) -> Self {
        let is_own =
            matches!(column, Some(Column::PhysicalOffset | Column::QueueOffset | Column::BodyCrc));
        let (head, text) = (Short::new(head), Short::default());
        Place { head, column, is_often_same: !is_own, last: None, text }
    }
}

/// The text that was made of the last host or topic. The next one is mostly the same.
#[derive(Debug, Default, Clone)]
struct Last {
    bytes: Vec<u8>,
    text: Short,
}

/// How bodies are written.
#[derive(Debug, Clone, Copy)]
pub struct Bodies {
    pub are_utf8: bool,
    /// Whether compressed bodies must be decompressed, which Python must do.
    pub decompresses: bool,
    /// Whether bodies are compared with their CRCs.
    pub checks: bool,
}

/// Writes cells in one form and spelling.
#[derive(Debug, Clone)]
pub struct Spelled {
    form: Form,
    spelling: Spelling,
    topic: Last,
    hosts: [Last; 2],
    scratch: Vec<u8>,
}

/// The parts of a record from which columns are made.
pub struct Parts<'a> {
    record: &'a Record,
    /// The bytes of the whole record.
    pub bytes: &'a [u8],
    pub topic: &'a [u8],
    body: &'a [u8],
    properties: &'a [u8],
    pairs: &'a Pairs,
    pub told: Body,
    /// Whether the body is a text that needs no escapes.
    is_plain: bool,
}

impl Spelled {
    pub fn new(form: Form, spelling: Spelling) -> Self {
        let (topic, hosts) = (Last::default(), [Last::default(), Last::default()]);
        Spelled { form, spelling, topic, hosts, scratch: Vec::new() }
    }

    /// Adds a run of neighbouring cells. `is_same`: the record has the steady fields of the one before.
    /// False if a value is not plain.
    #[inline]
    pub fn push_run(
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

    /// Adds a cell and the text before it. False if the value is not plain.
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

    /// Adds the cell of a number: the number, or a time. False if the time is outside the calendar.
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

    /// Adds a cell that is not made of a number. False if the value is not plain.
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

    /// How texts are escaped.
    fn escapes(&self) -> Escapes {
        match self.form {
            Form::Json => Escapes::SafeJson,
            Form::JsonFile => Escapes::Json,
            Form::Csv => Escapes::Visible,
            Form::CsvFile => Escapes::Raw,
        }
    }

    /// Adds a text that needs no escapes: in JSON it is in quotes.
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

    /// Adds `address:port` of a host, given as it is stored: the port behind the address.
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
    /// None if the body is not plain.
    #[inline]
    pub fn of(
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
        // Bodies are the longest part of a line: one pass finds out that a plain one can be copied.
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
    pub fn prefix(&self) -> &'static Prefix {
        prefix_of(self.record.sys_flag)
    }

    /// The number, or the time (ms), of a column; None if the column is neither.
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

/// Adds a field of CSV, in quotes if it needs them. For Spark, a field also needs them if it is empty,
/// or begins or ends with a blank.
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
