//! The bytes of a file, to be written to while others may read them.
//!
//! The second of the two places that take Python's word for memory (the first is `bytes_of`): while
//! the buffer is held its bytes are neither freed nor moved, and only who holds the put lock stores
//! into files. Others read the same pages meanwhile, in this process and in others, so there is never a
//! reference to them: bytes go through a pointer, and every place is checked before.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::fetch;

/// What is stored last of a record: its size and its magic code.
pub const RECORD_HEAD: usize = 8;

/// Bytes that records are stored into.
pub struct Room<'a> {
    start: *mut u8,
    length: usize,
    held: PhantomData<&'a mut [u8]>,
}

// SAFETY: it is a pointer to bytes that are there for 'a, whichever thread uses it.
unsafe impl Send for Room<'_> {}

impl<'a> Room<'a> {
    /// Bytes of our own.
    #[cfg(any(test, feature = "hostile"))]
    pub fn of(bytes: &'a mut [u8]) -> Self {
        Room { start: bytes.as_mut_ptr(), length: bytes.len(), held: PhantomData }
    }

    /// The bytes of a buffer of Python's.
    ///
    /// # Safety
    ///
    /// From `start` on so many bytes can be written to for all of 'a.
    pub unsafe fn at(start: *mut u8, length: usize) -> Self {
        Room { start, length, held: PhantomData }
    }

    /// The same bytes for another thread, which stores into other places than this one.
    pub fn twin(&mut self) -> Room<'a> {
        Room { start: self.start, length: self.length, held: PhantomData }
    }

    /// Stores a record, size and magic code last and in one store of eight bytes: a kill leaves a
    /// whole record or none (`CommitLogWriter.store`).
    #[inline]
    pub fn store(&mut self, position: usize, record: &[u8]) {
        let end = position.checked_add(record.len());
        assert!(record.len() > RECORD_HEAD && end.is_some_and(|end| end <= self.length));
        let mut head = [0; RECORD_HEAD];
        head.copy_from_slice(&record[..RECORD_HEAD]);
        let rest = &record[RECORD_HEAD..];
        // SAFETY: all of the record lies in the room, which was checked; `record` is another's.
        unsafe {
            let place = self.start.add(position);
            ptr::copy_nonoverlapping(rest.as_ptr(), place.add(RECORD_HEAD), rest.len());
            fence(Ordering::Release);
            place.cast::<u64>().write_unaligned(u64::from_ne_bytes(head));
        }
    }

    /// Has the processor fetch what stands at a position, without waiting for it.
    #[inline]
    pub fn fetch(&self, position: usize) {
        fetch::line_at(self.start.wrapping_add(position));
    }

    /// Bytes as they stand there.
    #[inline]
    pub fn read<const N: usize>(&self, position: usize) -> [u8; N] {
        assert!(position.checked_add(N).is_some_and(|end| end <= self.length));
        // SAFETY: they lie in the room, which was checked, and any bytes are an array of them.
        unsafe { self.start.add(position).cast::<[u8; N]>().read_unaligned() }
    }

    /// A number of four bytes as it stands there, where another one is about to be stored: the
    /// system is asked for a page once that can be written to, and not before for one to be read.
    #[inline]
    pub fn claim(&mut self, position: usize) -> [u8; 4] {
        assert!(position.checked_add(4).is_some_and(|end| end <= self.length));
        // SAFETY: it lies in the room, which was checked.
        let place = unsafe { self.start.add(position).cast::<u32>() };
        if !place.is_aligned() {
            return self.read(position);
        }
        // SAFETY: it lies in the room and is aligned; others only look at it.
        let number = unsafe { AtomicU32::from_ptr(place) };
        // Stores what there is in any case, and so takes the page for writing.
        let (Ok(found) | Err(found)) =
            number.compare_exchange(u32::MAX, u32::MAX, Ordering::Relaxed, Ordering::Relaxed);
        found.to_ne_bytes()
    }

    /// Stores bytes after everything that was stored before.
    #[inline]
    pub fn publish(&mut self, position: usize, bytes: &[u8]) {
        fence(Ordering::Release);
        self.write(position, bytes);
    }

    /// Stores bytes.
    #[inline]
    pub fn write(&mut self, position: usize, bytes: &[u8]) {
        assert!(position.checked_add(bytes.len()).is_some_and(|end| end <= self.length));
        // SAFETY: they lie in the room, which was checked; `bytes` are another's.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(position), bytes.len());
        }
    }
}
