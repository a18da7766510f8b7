//! Writes the units of a queue as lines.

use crate::bytes::memory::take;
use crate::layouts::{
    QUEUE_UNIT_BYTES, QUEUE_UNIT_PHYSICAL_OFFSET, QUEUE_UNIT_SIZE, QUEUE_UNIT_TAGS_CODE,
};
use crate::record::entry::{i32_at, i64_at};
use crate::record::text::push_int;

/// Makes lines of units, up to the first that was never written, and at most `most`. Units that do not
/// point into `places` (physical offsets, the end exclusive) are skipped. Returns the lines, how many
/// they are, and how many units were read.
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
