//! Prefetching: tells the processor which bytes will be read soon.
//!
//! Of a record the head is read first, then the end, then the body. The hardware prefetcher does not
//! follow such a pattern, and the processor would wait for memory half of the time.

#![allow(unsafe_code)]

/// Bytes of a cache line.
const LINE: usize = 64;
/// How far (bytes) behind the end of the current record is prefetched.
const DISTANCE: usize = 1 << 12;

/// Call this when a record of `size` bytes that ends at `end` is read. Prefetches the last `size`
/// bytes of the `DISTANCE` bytes behind it, so that in a log of small records each byte is prefetched
/// once. Of a larger record at most `DISTANCE` bytes are: the hardware prefetcher follows a body by
/// itself. Nothing from `readable` on is prefetched.
#[inline]
pub fn behind(data: &[u8], end: usize, size: usize, readable: usize) {
    let high = end.saturating_add(DISTANCE);
    range(data, high - size.min(DISTANCE), high.min(readable));
}

/// Bytes that are prefetched from the place on where a record's head is expected: its head, and as far
/// as sizes of records differ.
const HEAD: usize = 128;

/// Like [`behind`], but for when bodies are not read. Expects that all records have `size` bytes, and
/// prefetches around the place, at least `DISTANCE` bytes ahead, where one ends and the next begins:
/// the last `tail` bytes of the one, and the head of the other. Of small records everything.
#[inline]
pub fn around(data: &[u8], end: usize, (size, tail): (usize, usize), readable: usize) {
    if size < 4 * HEAD || size / 2 < tail {
        return behind(data, end, size, readable);
    }
    let place = end.saturating_add(DISTANCE.div_ceil(size).saturating_mul(size));
    range(data, place.saturating_sub(tail + LINE), place.saturating_add(HEAD).min(readable));
}

/// Prefetches the part of `low..high` that is in `data`, without waiting for it.
#[inline]
pub fn range(data: &[u8], low: usize, high: usize) {
    for line in data.get(low..high.min(data.len())).unwrap_or_default().chunks(LINE) {
        line_at(line.as_ptr());
    }
}

/// Prefetches the cache line at an address, which may be any.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn line_at(place: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: every x86-64 has the instruction. It has no effect that a program can observe, and takes
    // any address: for one that is not mapped it does nothing.
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
