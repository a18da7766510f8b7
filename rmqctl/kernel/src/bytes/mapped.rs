//! Stores bytes into a mapped file while others may read them.
//!
//! This is the second of the two places that trust memory which Python provides (the first is
//! `bytes_of`). While the buffer is held, its bytes are neither freed nor moved, and only the holder of
//! the put lock stores into files. Others read the same pages meanwhile, in this process and in other
//! ones. So there is never a Rust reference to these bytes: they are read and stored through a pointer,
//! and every position is checked before.
//!
//! The first store into a page through a map costs a page fault, which on the file system of a disk
//! takes several times as long as to write(2) the page. So when many records are stored together,
//! their bytes are written to the file, first without the records' heads, and then again with them.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::bytes::fetch;

/// Bytes of a record that are stored last: its size and its magic code.
pub const RECORD_HEAD: usize = 8;

/// Bytes of a page. When the process is killed during a write(2), each page has all of its bytes, or
/// none.
const PAGE: usize = 1 << 12;

/// From so many bytes of records on it is faster to write them than to store them through the map.
const WRITTEN_AT_ONCE: usize = 1 << 14;

/// Bytes of the file that are claimed by one write (see `Room::claim_ahead`). Disk space is reserved in
/// chunks of the same size (`reserved_chunk` of `rmqctl/engine/files/mappedfile.py`).
const CLAIMED: usize = 1 << 18;
static ZEROS: [u8; CLAIMED] = [0; CLAIMED];

/// Memory that records are stored into. `file` is the file that is mapped there, if it is known.
pub struct Room<'a> {
    start: *mut u8,
    length: usize,
    file: Option<&'a File>,
    held: PhantomData<&'a mut [u8]>,
}

// SAFETY: it is a pointer to bytes that exist for 'a, whichever thread uses it.
unsafe impl Send for Room<'_> {}

impl<'a> Room<'a> {
    /// A room in memory of Rust's.
    #[cfg(any(test, feature = "hostile"))]
    pub fn of(bytes: &'a mut [u8]) -> Self {
        Room { start: bytes.as_mut_ptr(), length: bytes.len(), file: None, held: PhantomData }
    }

    /// A room in a buffer of Python's.
    ///
    /// # Safety
    ///
    /// For all of 'a the `length` bytes from `start` on must be there, and writable.
    pub unsafe fn at(start: *mut u8, length: usize) -> Self {
        Room { start, length, file: None, held: PhantomData }
    }

    /// The same room, with the file that is mapped there. It must be open for writing.
    pub fn in_file(self, file: Option<&'a File>) -> Self {
        Room { file, ..self }
    }

    /// Stores records of these sizes, one behind the other, from `position` on. At any time a record
    /// that has a head is whole, and so are all records before it. A kill leaves whole heads. A
    /// concurrent reader may see a part of a head, as with any head on two cache lines, and must then
    /// read it again.
    pub fn store_all(
        &mut self,
        position: usize,
        records: &mut [u8],
        sizes: impl Iterator<Item = usize> + Clone,
    ) {
        let end = position.checked_add(records.len());
        assert!(end.is_some_and(|end| end <= self.length));
        let is_aside = self.write_aside(position, records, sizes.clone()).is_ok();
        let (mut at, mut headless) = (0, 0);
        for size in sizes.clone() {
            let record = &records[at..at + size];
            if !is_aside {
                self.store(position + at, record);
            } else if is_on_two_pages(position + at) {
                self.write_heads(position, records, headless..at, sizes.clone());
                self.store_head(position + at, record);
                headless = at + RECORD_HEAD;
            }
            at += size;
        }
        if is_aside {
            self.write_heads(position, records, headless..at, sizes);
        }
    }

    /// Writes zeros into the file from `from` up to the end of the chunk of `CLAIMED` bytes that has
    /// `to`. There must be no data from `from` on. The page cache then holds that part in large folios.
    /// These are faster to allocate than pages for one or two records each, and take a third of the
    /// time to read. Returns the end of that part, also if a write fails: then it is just not faster.
    pub fn claim_ahead(&self, from: usize, to: usize) -> usize {
        let end = to.next_multiple_of(CLAIMED).min(self.length);
        let Some(file) = self.file else { return end };
        // The page of `from` has bytes of a record, and is in the cache already.
        let mut at = from.next_multiple_of(PAGE);
        while at < end {
            let following = (at + 1).next_multiple_of(CLAIMED).min(end);
            if file.write_all_at(&ZEROS[..following - at], at as u64).is_err() {
                break;
            }
            at = following;
        }
        end
    }

    /// Writes a part of records once more, now with their heads. Each head must lie on one page, so
    /// that a kill, which can end a write only between two pages, leaves none torn.
    fn write_heads(
        &mut self,
        position: usize,
        records: &[u8],
        part: Range<usize>,
        sizes: impl Iterator<Item = usize>,
    ) {
        let (place, bytes) = ((position + part.start) as u64, &records[part.clone()]);
        if self.file.is_some_and(|file| file.write_all_at(bytes, place).is_ok()) {
            return;
        }
        let mut at = 0;
        for size in sizes {
            if part.contains(&at) {
                self.store_head(position + at, &records[at..at + size]);
            }
            at += size;
        }
    }

    /// Writes records into the file, with zeros in place of their heads. After an error a part may be
    /// written. Without heads it is no record to any reader.
    fn write_aside(
        &self,
        position: usize,
        records: &mut [u8],
        sizes: impl Iterator<Item = usize> + Clone,
    ) -> io::Result<()> {
        let Some(file) = self.file.filter(|_| records.len() >= WRITTEN_AT_ONCE) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mut heads = Vec::new();
        let mut at = 0;
        for size in sizes.clone() {
            let mut head = [0; RECORD_HEAD];
            head.swap_with_slice(&mut records[at..at + RECORD_HEAD]);
            heads.push(head);
            at += size;
        }
        let written = file.write_all_at(records, position as u64);
        at = 0;
        for (head, size) in heads.iter().zip(sizes) {
            records[at..at + RECORD_HEAD].copy_from_slice(head);
            at += size;
        }
        written
    }

    /// Stores a record. Size and magic code come last, in one store of eight bytes, so a kill leaves a
    /// whole record or none (`CommitLogWriter.store`).
    #[inline]
    pub fn store(&mut self, position: usize, record: &[u8]) {
        let end = position.checked_add(record.len());
        assert!(record.len() > RECORD_HEAD && end.is_some_and(|end| end <= self.length));
        self.write(position + RECORD_HEAD, &record[RECORD_HEAD..]);
        self.store_head(position, record);
    }

    /// Stores the head of a record whose other bytes are stored already.
    #[inline]
    fn store_head(&mut self, position: usize, record: &[u8]) {
        assert!(position.checked_add(RECORD_HEAD).is_some_and(|end| end <= self.length));
        let mut head = [0; RECORD_HEAD];
        head.copy_from_slice(&record[..RECORD_HEAD]);
        fence(Ordering::Release);
        // SAFETY: it lies in the room, which was checked.
        unsafe {
            let place = self.start.add(position).cast::<u64>();
            place.write_unaligned(u64::from_ne_bytes(head));
        }
    }

    /// Prefetches the cache line at a position.
    #[inline]
    pub fn fetch(&self, position: usize) {
        fetch::line_at(self.start.wrapping_add(position));
    }

    /// The bytes at a position.
    #[inline]
    pub fn read<const N: usize>(&self, position: usize) -> [u8; N] {
        assert!(position.checked_add(N).is_some_and(|end| end <= self.length));
        // SAFETY: they lie in the room, which was checked, and any bytes are an array of them.
        unsafe { self.start.add(position).cast::<[u8; N]>().read_unaligned() }
    }

    /// The four bytes at a position at which others will be stored next. The read is done by a store,
    /// so that it causes only the page fault for writing, and not one for reading before that.
    #[inline]
    pub fn claim(&mut self, position: usize) -> [u8; 4] {
        assert!(position.checked_add(4).is_some_and(|end| end <= self.length));
        // SAFETY: it lies in the room, which was checked.
        let place = unsafe { self.start.add(position).cast::<u32>() };
        if !place.is_aligned() {
            return self.read(position);
        }
        // SAFETY: it lies in the room and is aligned; others only read it.
        let number = unsafe { AtomicU32::from_ptr(place) };
        // It never changes the bytes, but needs the page for writing in any case.
        let (Ok(found) | Err(found)) =
            number.compare_exchange(u32::MAX, u32::MAX, Ordering::Relaxed, Ordering::Relaxed);
        found.to_ne_bytes()
    }

    /// Stores bytes so that they become visible after everything that was stored before (release).
    #[inline]
    pub fn publish(&mut self, position: usize, bytes: &[u8]) {
        fence(Ordering::Release);
        self.write(position, bytes);
    }

    /// Stores bytes.
    #[inline]
    pub fn write(&mut self, position: usize, bytes: &[u8]) {
        assert!(position.checked_add(bytes.len()).is_some_and(|end| end <= self.length));
        // SAFETY: they lie in the room, which was checked, and `bytes` are outside of it.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(position), bytes.len());
        }
    }
}

/// Whether the head of a record at this position lies on two pages.
fn is_on_two_pages(position: usize) -> bool {
    position / PAGE != (position + RECORD_HEAD - 1) / PAGE
}

#[cfg(test)]
mod tests {
    use super::{CLAIMED, PAGE, RECORD_HEAD, Room, WRITTEN_AT_ONCE};
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::unix::fs::FileExt;

    use memmap2::MmapMut;

    const FILE: usize = 1 << 17;
    const START: usize = 4090;
    const SIZES: [usize; 5] = [9, 4096, 5000, 250, WRITTEN_AT_ONCE];

    fn records() -> Vec<u8> {
        SIZES.iter().zip(1..).flat_map(|(&size, byte)| vec![byte; size]).collect()
    }

    /// A file without a name, open to be read and written to.
    fn sparse() -> io::Result<File> {
        // Other processes may run the same test.
        let (process, thread) = (std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(format!("room-{process}-{thread:?}"));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path)?;
        std::fs::remove_file(path)?;
        file.set_len(FILE as u64)?;
        Ok(file)
    }

    fn content(file: &File) -> io::Result<Vec<u8>> {
        let mut content = vec![0; FILE];
        file.read_exact_at(&mut content, 0)?;
        Ok(content)
    }

    #[test]
    fn bytes_that_go_to_the_file_are_those_that_go_to_the_map() -> io::Result<()> {
        let mut expected = vec![0; FILE];
        Room::of(&mut expected).store_all(START, &mut records(), SIZES.into_iter());
        assert_eq!(expected[START..][..records().len()], records());
        let (file, refusing) = (sparse()?, File::open("/dev/null")?);
        // SAFETY: nobody else has the file.
        let mut map = unsafe { MmapMut::map_mut(&file) }?;
        for file_of_room in [&file, &refusing] {
            map.fill(0);
            let mut given = records();
            let mut room = Room::of(&mut map).in_file(Some(file_of_room));
            room.store_all(START, &mut given, SIZES.into_iter());
            assert_eq!(given, records());
            assert!(content(&file)? == expected);
        }
        Ok(())
    }

    #[test]
    fn what_is_claimed_is_zeros_up_to_the_end_of_a_part() -> io::Result<()> {
        let file = sparse()?;
        let length = 2 * CLAIMED + PAGE;
        let mut bytes = vec![7; length];
        let (from, to) = (PAGE + 5, CLAIMED + 3);
        for (to, end) in [(CLAIMED - 1, CLAIMED), (CLAIMED, CLAIMED), (to, 2 * CLAIMED)] {
            file.write_all_at(&bytes, 0)?;
            let mut none = vec![0; length];
            let room = Room::of(&mut none).in_file(Some(&file));
            assert_eq!(room.claim_ahead(from, to), end);
            let mut expected = vec![7; length];
            expected[2 * PAGE..end].fill(0);
            let mut content = vec![1; length];
            file.read_exact_at(&mut content, 0)?;
            assert!(content == expected);
        }
        // No more than the file has, and nothing where it refuses.
        let room = Room::of(&mut bytes).in_file(Some(&file));
        assert_eq!(room.claim_ahead(2 * CLAIMED, length), length);
        assert_eq!(file.metadata()?.len(), length as u64);
        let refusing = File::open("/dev/null")?;
        let room = Room::of(&mut bytes).in_file(Some(&refusing));
        assert_eq!(room.claim_ahead(from, to), 2 * CLAIMED);
        assert!(bytes.iter().all(|byte| *byte == 7));
        Ok(())
    }

    #[test]
    fn heads_that_cannot_be_written_are_stored_through_the_map() -> io::Result<()> {
        let refusing = File::open("/dev/null")?;
        let (mut map, records) = (vec![0; FILE], records());
        let mut room = Room::of(&mut map).in_file(Some(&refusing));
        // Of all but the first record and the last one.
        let (first, last) = (SIZES[0], records.len() - WRITTEN_AT_ONCE);
        room.write_heads(START, &records, first..last, SIZES.into_iter());
        let mut expected = vec![0; FILE];
        let mut at = 0;
        for size in SIZES {
            if at >= first && at < last {
                let place = START + at;
                expected[place..place + RECORD_HEAD].copy_from_slice(&records[at..][..RECORD_HEAD]);
            }
            at += size;
        }
        assert!(map == expected);
        Ok(())
    }

    #[test]
    fn what_is_written_has_no_head_before_all_of_it_is_there() -> io::Result<()> {
        let file = sparse()?;
        let mut none = vec![0; FILE];
        let room = Room::of(&mut none).in_file(Some(&file));
        room.write_aside(START, &mut records(), SIZES.into_iter())?;
        let mut expected = records();
        let mut at = 0;
        for size in SIZES {
            expected[at..at + RECORD_HEAD].fill(0);
            at += size;
        }
        assert!(content(&file)?[START..][..expected.len()] == expected);
        // Few are stored through the map.
        let mut few = records();
        let size = WRITTEN_AT_ONCE - 1;
        few.truncate(size);
        assert!(room.write_aside(START, &mut few, [size].into_iter()).is_err());
        Ok(())
    }
}
