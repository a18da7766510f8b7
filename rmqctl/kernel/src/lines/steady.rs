//! Cells that a line often has of the line before.
//!
//! Messages that came together have most of their fields in common. The cells of a line that are
//! made of those fields alone, and stand beside each other, are kept as one text: one comparison of
//! the fields and one copy then do for a dozen cells.

use std::ops::Range;

use crate::layouts::PREFIXES;

/// Fields of each record's own, which no steady cell is made of: its checksum, and its places in
/// queue and log, by where they stand in its head.
const OWN: [Range<usize>; 2] =
    [PREFIXES[0].body_crc..PREFIXES[0].queue_id, PREFIXES[0].queue_offset..PREFIXES[0].sys_flag];

/// The fields of the record before.
#[derive(Debug, Default, Clone)]
pub struct Fields {
    head: Vec<u8>,
    topic: Vec<u8>,
    body: Body,
}

/// What is told of a body: whether it is a text, and whether it is not what was stored.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Body {
    pub is_text: bool,
    pub is_damaged: bool,
}

impl Fields {
    /// Whether a record has the same ones, but those of its own. It is the record before from now on.
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

    /// There is no record before.
    pub fn forget(&mut self) {
        self.head.clear();
    }
}

/// Neighbours among the cells of a line.
#[derive(Debug, Clone)]
pub struct Run {
    pub cells: Range<usize>,
    /// Whether they are made of no field of a record's own.
    pub is_steady: bool,
    /// Their text in the line before, if that is known: it had the fields of the one before it.
    pub text: Vec<u8>,
    pub is_known: bool,
}

/// The runs of cells, by which of them are steady.
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
