//! Reuses cells of the line before.
//!
//! Messages that were stored together have most of their fields in common. Neighbouring cells of a line
//! that depend only on those fields are kept as one text. Then one comparison of the fields and one
//! copy make a dozen cells.

use std::ops::Range;

use crate::layouts::PREFIXES;

/// The positions of the fixed fields on which no steady cell depends, because each record has its own:
/// body CRC, queue offset and physical offset.
const OWN: [Range<usize>; 2] =
    [PREFIXES[0].body_crc..PREFIXES[0].queue_id, PREFIXES[0].queue_offset..PREFIXES[0].sys_flag];

/// The fields of the record before.
#[derive(Debug, Default, Clone)]
pub struct Fields {
    head: Vec<u8>,
    topic: Vec<u8>,
    body: Body,
}

/// What a line says of a body: whether it is a text, and whether it does not match its CRC.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Body {
    pub is_text: bool,
    pub is_damaged: bool,
}

impl Fields {
    /// Whether a record has the same fields as the one before, except for its own ones. Then it becomes
    /// the record before.
    #[inline]
    pub fn are_same(&mut self, head: &[u8], topic: &[u8], body: Body) -> bool {
        let shared = [0..OWN[0].start, OWN[0].end..OWN[1].start, OWN[1].end..head.len()];
        let is_same = self.head.len() == head.len()
            && shared.into_iter().all(|part| self.head[part.clone()] == head[part])
            && self.topic == topic
            && self.body == body;
        if !is_same {
            self.head.clear();
            self.head.extend_from_slice(head);
            self.topic.clear();
            self.topic.extend_from_slice(topic);
            self.body = body;
        }
        is_same
    }

    /// Forgets the record before.
    pub fn forget(&mut self) {
        self.head.clear();
    }
}

/// Neighbouring cells of a line that are all steady, or all not.
#[derive(Debug, Clone)]
pub struct Run {
    pub cells: Range<usize>,
    /// Whether they depend on no field that each record has for itself.
    pub is_steady: bool,
    /// Their text in the line before, if `is_known`.
    pub text: Vec<u8>,
    /// Whether `text` is valid. It is kept only when two records in a row have the same fields.
    pub is_known: bool,
}

/// Groups cells into runs, given which of them are steady.
pub fn runs(are_steady: impl IntoIterator<Item = bool>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (number, is_steady) in are_steady.into_iter().enumerate() {
        match runs.last_mut() {
            Some(run) if run.is_steady == is_steady => run.cells.end = number + 1,
            _ => {
                let cells = number..number + 1;
                runs.push(Run { cells, is_steady, text: Vec::new(), is_known: false });
            }
        }
    }
    runs
}
