//! A file's bytes as a scan comes to them: through its map, or read piece by piece.
//!
//! To look at a page through a map for the first time may cost more than to copy it, for the system
//! enters each into a table, and takes it out again behind the scan. So what is looked at once is read,
//! as much at a time as stays in the cache of one core, and what stays mapped is looked at there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::bytes::memory::take;

/// Bytes that are read at once: a quarter of the cache that a core has for itself, or less.
pub const PIECE: usize = 1 << 18;

/// A file of which nothing behind `readable` is looked at; if there is a `file`, it is read.
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
    /// Where in the file ends what may be looked at here.
    pub readable: usize,
    /// Whether it was read, and lies in the processor's cache.
    pub was_read: bool,
    /// Whether bytes that may be looked at follow it.
    pub has_more: bool,
}

impl<'a> Source<'a> {
    /// All of the map.
    pub fn mapped(self) -> Piece<'a> {
        let readable = self.readable;
        Piece { data: self.map, base: 0, readable, was_read: false, has_more: false }
    }

    /// The bytes from `begin` on, up to `end` at most, which are read into `room`. Where the file has
    /// become shorter they are fewer, and nothing follows.
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

/// Reads until there is no more room, or no more of the file; how many bytes.
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
