//! Writes records as lines of NDJSON or CSV: the rows of messages (`rmqctl/operations/look/rows.py`),
//! as the commands print them.
//!
//! No line is made of a record that is not plain: it has a text that is not UTF-8, a compressed body
//! that must be decompressed, or too many properties. Python makes such lines.

use crate::lines::cells::{Bodies, Parts, Place, Spelled};
use crate::lines::columns::{Cell, Column, Form, Spelling};
use crate::lines::steady::{Fields, Run, runs};
use crate::record::entry::Record;
use crate::record::pairs::Pairs;
use crate::record::text::{Escapes, push_quoted};

/// Which records are wanted.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    pub topic: Option<Vec<u8>>,
    pub queue_id: Option<i64>,
    /// The range of store times (ms), both inclusive.
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

/// Makes lines of records.
#[derive(Debug, Clone)]
pub struct Lines {
    cells: Vec<Place>,
    runs: Vec<Run>,
    fields: Fields,
    /// The parser of properties, which is reused.
    pairs: Pairs,
    end: &'static [u8],
    bodies: Bodies,
    spelled: Spelled,
    /// How many lines say that the body does not match its CRC.
    pub mismatches: usize,
}

impl Lines {
    /// Lines of these cells, each with its name. With `checks`, bodies are compared with their CRCs.
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
        let cells: Vec<Place> =
            merged.into_iter().map(|(head, column)| Place::new(head, column)).collect();
        let runs = runs(cells.iter().map(|one| one.column.is_none_or(Column::is_steady)));
        Lines {
            cells,
            runs,
            fields: Fields::default(),
            pairs: Pairs::default(),
            end: if is_csv { b"\n" } else { b"}\n" },
            bodies: Bodies { are_utf8: spelling == Spelling::Utf8, decompresses, checks },
            spelled: Spelled::new(form, spelling),
            mismatches: 0,
        }
    }

    /// Adds the line of the record at `position` of `data`. Adds nothing and returns false if it is
    /// not plain.
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
