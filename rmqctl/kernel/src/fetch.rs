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
    use super::{behind, line_at, range};

    #[test]
    fn any_place_may_be_told_of() {
        let data = [7; 100];
        for place in [0, 1, 63, 64, 99, 100, 101, usize::MAX - 1, usize::MAX] {
            for other in [0, 1, 64, 100, 4096, 4097, usize::MAX] {
                behind(&data, place, other, 100);
                behind(&data, place, other, usize::MAX);
                range(&data, place, other);
            }
        }
        behind(&[], 0, 0, 0);
        line_at(data.as_ptr());
        line_at(std::ptr::null());
    }
}
