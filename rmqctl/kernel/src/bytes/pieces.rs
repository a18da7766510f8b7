//! The bytes of a file for a scan: through its map, or read(2) piece by piece.
//!
//! The first access to a page through a map can cost more than copying the page, because the system
//! enters each page into a page table, and removes it again behind the scan. So bytes that are used
//! once are read, in pieces that fit into the cache of one core. Bytes that stay mapped are used there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::bytes::memory::take;

/// Bytes that are read at once: at most a quarter of a core's own cache.
pub const PIECE: usize = 1 << 18;

/// A file. Nothing behind `readable` is used. It is read if there is a `file`, else used in its map.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub map: &'a [u8],
    pub file: Option<&'a File>,
    pub readable: usize,
}

/// The bytes of a file from `base` on.
#[derive(Clone, Copy)]
pub struct Piece<'a> {
    pub data: &'a [u8],
    pub base: usize,
    /// The position in the file up to which bytes may be used here.
    pub readable: usize,
    /// Whether it was read, and so is in the processor's cache.
    pub was_read: bool,
    /// Whether bytes that may be used follow it.
    pub has_more: bool,
}

impl<'a> Source<'a> {
    /// All of the map.
    pub fn mapped(self) -> Piece<'a> {
        let readable = self.readable;
        Piece { data: self.map, base: 0, readable, was_read: false, has_more: false }
    }

    /// Reads bytes from `begin` on, at most up to `end`, into `room`. If the file has become shorter,
    /// they are fewer, and `has_more` is false.
    pub fn read<'b>(
        self,
        file: &File,
        room: &'b mut Vec<u8>,
        begin: usize,
        end: usize,
    ) -> io::Result<Piece<'b>> {
        if room.capacity() < PIECE {
            *room = take(PIECE);
        }
        room.resize(PIECE, 0);
        let wanted = PIECE.min(end.min(self.readable).saturating_sub(begin));
        let length = read_all(file, &mut room[..wanted], begin)?;
        let readable = begin + length;
        let has_more = length == wanted && readable < self.readable;
        Ok(Piece { data: &room[..length], base: begin, readable, was_read: true, has_more })
    }
}

/// Reads until the room is full or the file ends. Returns the number of bytes.
fn read_all(file: &File, room: &mut [u8], begin: usize) -> io::Result<usize> {
    let mut length = 0;
    while length < room.len() {
        match file.read_at(&mut room[length..], (begin + length) as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}
