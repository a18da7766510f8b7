//! Has a second thread make the second half of a pull's lines, while the first one makes the first half.

use std::ops::Range;

use pyo3::buffer::PyBuffer;

use crate::bytes::memory::take;
use crate::lines::pull::{Limits, Part, Pulled, Units, pull};
use crate::lines::rows::Lines;
use crate::lines::second::Helper;
use crate::python::bytes_of;

/// What the second thread needs for its half of a pull: the parameters of `Lines.pull`. The buffer must
/// be dropped by the asking thread, which has the GIL.
pub struct Job {
    pub units: Vec<u8>,
    pub first: i64,
    pub file_end: i64,
    pub queue_end: i64,
    /// It is held as long as the second thread uses its bytes.
    pub buffer: PyBuffer<u8>,
    pub places: Range<usize>,
    pub file_from_offset: i64,
    pub limits: Limits,
    pub most: usize,
    pub room: usize,
}

/// Lines, and how many of them have a body that does not match its CRC.
pub type Made = (Pulled, usize);
pub type Ahead = Helper<Job, Made>;

/// What the second thread does.
pub fn work(mut lines: Lines) -> impl FnMut(&Job) -> Made {
    move |job| lines_of(&mut lines, job)
}

fn lines_of(lines: &mut Lines, job: &Job) -> Made {
    let units = Units {
        stored: &job.units,
        first: job.first,
        file_end: job.file_end,
        queue_end: job.queue_end,
    };
    let (data, file_from_offset) = (bytes_of(&job.buffer), job.file_from_offset);
    let part = Part { data, places: job.places.clone(), file_from_offset };
    lines.mismatches = 0;
    let out = take(job.room);
    let pulled = pull(lines, out, units, &part, job.limits, None, (job.most, job.room));
    (pulled, lines.mismatches)
}
