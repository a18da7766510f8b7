//! Bytes that a processor is told of before they are looked at.
//!
//! A record is read at its head, then at its end, then its body is: a processor that looks ahead by
//! itself follows that badly, and waits for memory half of the time.

#![allow(unsafe_code)]

/// Bytes that a processor fetches together.
const LINE: usize = 64;
/// How far behind a record's end it is told of.
const DISTANCE: usize = 1 << 12;

/// Has the processor fetch what comes into its view, of `DISTANCE` bytes behind a record, when one of
/// `size` bytes that ends at `end` is read: each byte once, of a log of small records. Of a large one
/// it follows the body by itself. Nothing from `readable` on.
#[inline]
pub fn behind(data: &[u8], end: usize, size: usize, readable: usize) {
    let high = end.saturating_add(DISTANCE);
    range(data, high - size.min(DISTANCE), high.min(readable));
}

/// Bytes that a record's head takes at most, and what the next one's size may differ by, of those that
/// are looked at only where one ends and another begins.
const HEAD: usize = 128;

/// The same where nobody looks at bodies: what lies around the place, `DISTANCE` behind or more, where
/// a record begins if all are of `size` bytes, of which the last `tail` are looked at. Of small ones
/// that is all.
#[inline]
pub fn around(data: &[u8], end: usize, (size, tail): (usize, usize), readable: usize) {
    if size < 4 * HEAD || size / 2 < tail {
        return behind(data, end, size, readable);
    }
    let place = end.saturating_add(DISTANCE.div_ceil(size).saturating_mul(size));
    range(data, place.saturating_sub(tail + LINE), place.saturating_add(HEAD).min(readable));
}

/// Has the processor fetch `low..high` as far as there is any, without waiting for it.
#[inline]
pub fn range(data: &[u8], low: usize, high: usize) {
    for line in data.get(low..high.min(data.len())).unwrap_or_default().chunks(LINE) {
        line_at(line.as_ptr());
    }
}

/// Has the processor fetch what lies around a place, whatever that is.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn line_at(place: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: every x86-64 has the instruction; it reads nothing that a program could tell, and takes
    // any address: of one that is not mapped, or not there, it does nothing.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn line_at(_place: *const u8) {}

#[cfg(test)]
mod tests {
    use super::{around, behind, line_at, range};

    #[test]
    fn any_place_may_be_told_of() {
        let data = [7; 100];
        for place in [0, 1, 63, 64, 99, 100, 101, usize::MAX - 1, usize::MAX] {
            for other in [0, 1, 64, 100, 4096, 4097, usize::MAX] {
                behind(&data, place, other, 100);
                behind(&data, place, other, usize::MAX);
                around(&data, place, (other, 7), 100);
                around(&data, place, (other, other), usize::MAX);
                around(&data, place, (1024, other), usize::MAX);
                range(&data, place, other);
            }
        }
        behind(&[], 0, 0, 0);
        line_at(data.as_ptr());
        line_at(std::ptr::null());
    }
}
