//! Reuses the memory of columns that were freed. New memory from the system is zeroed page by page,
//! which takes as long as filling it.

use std::sync::{Mutex, MutexGuard, TryLockError};

/// Bytes that are kept at most for each type of item. A piece larger than a quarter of that is not
/// kept.
const MOST_BYTES: usize = 16 << 20;
/// Pieces that are kept at most for each type: those of a few batches. A search goes through all.
const MOST_PIECES: usize = 128;
/// Smaller pieces (bytes) are not kept: they take no whole page from the system.
const LEAST_BYTES: usize = 1 << 12;
/// A piece may have up to so many times the capacity that is asked for.
const SLACK: usize = 8;

/// Pieces of memory that are not in use.
#[derive(Debug)]
pub struct Shelf<T>(Mutex<Vec<Vec<T>>>);

/// The types of items of columns.
pub trait Item: Copy + Send + 'static {
    fn shelf() -> &'static Shelf<Self>;
}

macro_rules! item {
    ($($kind:ty),*) => {$(
        impl Item for $kind {
            fn shelf() -> &'static Shelf<Self> {
                static SHELF: Shelf<$kind> = Shelf::new();
                &SHELF
            }
        }
    )*};
}

item!(u8, i32, i64);

impl<T: Copy> Shelf<T> {
    const fn new() -> Self {
        Shelf(Mutex::new(Vec::new()))
    }

    /// The pieces; None while another thread holds the lock. Nobody waits for it, because in a process
    /// that was forked meanwhile that thread does not exist, and the wait would never end.
    fn pieces(&self) -> Option<MutexGuard<'_, Vec<Vec<T>>>> {
        match self.0.try_lock() {
            Ok(kept) => Some(kept),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn take(&self, room: usize) -> Vec<T> {
        let most = room.saturating_mul(SLACK).saturating_add(1 << 12);
        let fitting = |(_, piece): &(usize, &Vec<T>)| (room..=most).contains(&piece.capacity());
        let kept = self.pieces().and_then(|mut kept| {
            let best =
                kept.iter().enumerate().filter(fitting).min_by_key(|(_, piece)| piece.capacity());
            let place = best.map(|(place, _)| place)?;
            Some(kept.swap_remove(place))
        });
        kept.unwrap_or_else(|| Vec::with_capacity(room))
    }

    fn give(&self, mut piece: Vec<T>) {
        let bytes = |piece: &Vec<T>| piece.capacity() * size_of::<T>();
        if !(LEAST_BYTES..=MOST_BYTES / 4).contains(&bytes(&piece)) {
            return;
        }
        let Some(mut kept) = self.pieces() else { return };
        piece.clear();
        kept.push(piece);
        // The oldest pieces go first: their sizes are probably not those of current columns.
        while kept.len() > MOST_PIECES || kept.iter().map(bytes).sum::<usize>() > MOST_BYTES {
            kept.remove(0);
        }
    }
}

/// An empty vector with room for so many items.
pub fn take<T: Item>(room: usize) -> Vec<T> {
    T::shelf().take(room)
}

/// Takes memory back to reuse it, and frees what would be too much.
pub fn give<T: Item>(piece: Vec<T>) {
    T::shelf().give(piece);
}

#[cfg(test)]
mod tests {
    use super::{LEAST_BYTES, MOST_BYTES, MOST_PIECES, Shelf};

    // Each test has its own shelf: tests run in parallel, and others use the shelves of the process.

    #[test]
    fn memory_comes_back_empty_and_is_bounded() {
        let shelf = Shelf::<i32>::new();
        let mut piece = shelf.take(1000);
        assert!(piece.is_empty() && piece.capacity() >= 1000);
        piece.extend(0..5000);
        shelf.give(piece);
        assert!(shelf.take(1000).is_empty());
        assert!(shelf.take(10).capacity() < 5000);
        for _ in 0..100 {
            shelf.give(Vec::with_capacity(MOST_BYTES / 40));
        }
        shelf.give(Vec::with_capacity(MOST_BYTES));
        let kept: Vec<_> = (0..100).map(|_| shelf.take(MOST_BYTES / 40 / 4)).collect();
        assert!(kept.iter().all(|piece| piece.is_empty()));
    }

    #[test]
    fn few_pieces_are_kept_however_many_there_were() {
        let shelf = Shelf::<i64>::new();
        for _ in 0..10 * MOST_PIECES {
            shelf.give(Vec::with_capacity(LEAST_BYTES / 8));
            shelf.give(Vec::with_capacity(1));
        }
        let kept = shelf.0.lock().unwrap();
        assert_eq!(kept.len(), MOST_PIECES);
        assert!(kept.iter().all(|piece| piece.capacity() * 8 >= LEAST_BYTES));
    }

    #[test]
    fn nobody_waits_for_a_thread_that_a_fork_has_left_behind() {
        let shelf = Shelf::<u8>::new();
        let held = shelf.0.lock();
        shelf.give(Vec::with_capacity(LEAST_BYTES));
        assert_eq!(shelf.take(LEAST_BYTES).capacity(), LEAST_BYTES);
        drop(held);
    }
}
