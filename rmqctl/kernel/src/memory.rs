//! Memory of columns that are gone, for those that come: what the system gives anew costs as much as
//! to fill it, for it is zeroed page by page.

use std::sync::{Mutex, PoisonError};

/// What is kept of each kind of item, in bytes; what is larger than a quarter of it never is.
const MOST_BYTES: usize = 16 << 20;
/// A piece of memory is taken for less than it holds, but not for very much less.
const SLACK: usize = 8;

/// Pieces of memory that nobody uses.
#[derive(Debug)]
pub struct Shelf<T>(Mutex<Vec<Vec<T>>>);

/// What columns are made of.
pub trait Item: Copy + Send + 'static {
    fn shelf() -> &'static Shelf<Self>;
}

macro_rules! item {
    ($($kind:ty),*) => {$(
        impl Item for $kind {
            fn shelf() -> &'static Shelf<Self> {
                static SHELF: Shelf<$kind> = Shelf(Mutex::new(Vec::new()));
                &SHELF
            }
        }
    )*};
}

item!(u8, i32, i64);

/// Memory for so many items, without any.
pub fn take<T: Item>(room: usize) -> Vec<T> {
    let mut kept = T::shelf().0.lock().unwrap_or_else(PoisonError::into_inner);
    let most = room.saturating_mul(SLACK).saturating_add(1 << 12);
    let fitting = |(_, piece): &(usize, &Vec<T>)| (room..=most).contains(&piece.capacity());
    let best = kept.iter().enumerate().filter(fitting).min_by_key(|(_, piece)| piece.capacity());
    match best.map(|(place, _)| place) {
        Some(place) => kept.swap_remove(place),
        None => Vec::with_capacity(room),
    }
}

/// Takes memory back, and lets go of what would be too much.
pub fn give<T: Item>(mut piece: Vec<T>) {
    let bytes = |piece: &Vec<T>| piece.capacity() * size_of::<T>();
    let mut kept = T::shelf().0.lock().unwrap_or_else(PoisonError::into_inner);
    let fits = bytes(&piece) <= MOST_BYTES / 4;
    if fits && bytes(&piece) > 0 {
        piece.clear();
        kept.push(piece);
    }
    // The oldest goes first: columns have other sizes now.
    while kept.iter().map(bytes).sum::<usize>() > MOST_BYTES {
        kept.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST_BYTES, give, take};

    #[test]
    fn memory_comes_back_empty_and_is_bounded() {
        let mut piece = take::<i32>(1000);
        assert!(piece.is_empty() && piece.capacity() >= 1000);
        piece.extend(0..5000);
        give(piece);
        assert!(take::<i32>(1000).is_empty());
        assert!(take::<i32>(10).capacity() < 5000);
        for _ in 0..100 {
            give(Vec::<i32>::with_capacity(MOST_BYTES / 40));
        }
        give(Vec::<i32>::with_capacity(MOST_BYTES));
        let kept: Vec<_> = (0..100).map(|_| take::<i32>(MOST_BYTES / 40 / 4)).collect();
        assert!(kept.iter().all(|piece| piece.is_empty()));
    }
}
