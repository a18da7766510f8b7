//! Links index items to the items before them in their slots, and groups rows by queue, with hash
//! tables. `link_items` (`rmqctl/engine/index/links.py`) and `group_by_queue`
//! (`rmqctl/engine/derive/writer.py`) do the same with sorted arrays.

use std::hash::{BuildHasher, RandomState};

/// A hash table that numbers keys in the order of their first use. Its width is a power of two, and
/// it is never more than half full. Its hash function is a different one each time, so nobody can
/// make a store whose keys all collide.
pub struct Places {
    factor: u64,
    keys: Vec<(i64, i64)>,
    /// 1 + the number of a key; 0 where the table is empty.
    places: Vec<u32>,
    mask: usize,
}

impl Places {
    /// A table with room for so many keys. It grows.
    pub fn new(room: usize) -> Self {
        let width = (2 * room.max(4)).next_power_of_two();
        let factor = RandomState::new().hash_one(0) | 1;
        Places { factor, keys: Vec::new(), places: vec![0; width], mask: width - 1 }
    }

    /// The number of a key, and whether it is new.
    #[inline]
    pub fn place_of(&mut self, key: (i64, i64)) -> (usize, bool) {
        let mut at = self.first_look(key);
        loop {
            let place = self.places[at] as usize;
            if place == 0 {
                self.keys.push(key);
                self.places[at] = self.keys.len() as u32;
                if 2 * self.keys.len() > self.places.len() {
                    self.grow();
                }
                return (self.keys.len() - 1, true);
            }
            if self.keys[place - 1] == key {
                return (place - 1, false);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Where in the table the search for a key begins.
    #[inline]
    fn first_look(&self, key: (i64, i64)) -> usize {
        let mixed = (key.0 as u64).wrapping_mul(self.factor) ^ (key.1 as u64);
        (mixed.wrapping_mul(self.factor) >> 32) as usize & self.mask
    }

    #[cold]
    fn grow(&mut self) {
        let width = 2 * self.places.len();
        (self.places, self.mask) = (vec![0; width], width - 1);
        for place in 0..self.keys.len() {
            let mut at = self.first_look(self.keys[place]);
            while self.places[at] != 0 {
                at = (at + 1) & self.mask;
            }
            self.places[at] = place as u32 + 1;
        }
    }

    /// The keys in the order of their numbers.
    pub fn into_keys(self) -> Vec<(i64, i64)> {
        self.keys
    }
}

/// `Links` of `rmqctl/engine/index/links.py`. The slots have the order of their first items.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Links {
    pub previous: Vec<i32>,
    pub slot: Vec<i64>,
    pub newest: Vec<i32>,
    pub fresh_slots: usize,
}

/// The links that `IndexFile#putKey` would give to these items, one after the other. `newest_of`
/// returns what a slot has before them; unless that is from 1 to `count`, the slot counts as empty.
pub fn link_items(
    slots: impl ExactSizeIterator<Item = i64> + Clone,
    numbers: impl Iterator<Item = i32>,
    newest_of: impl Fn(i64) -> i32,
    count: i32,
) -> Links {
    let mut places = Places::new(slots.len());
    // First read all slots: they are far apart, and the processor waits for many cache misses at once
    // as long as no other work depends on them.
    let mut links = Links { previous: slots.clone().map(newest_of).collect(), ..Links::default() };
    for ((slot, number), previous) in slots.zip(numbers).zip(&mut links.previous) {
        let (place, is_new) = places.place_of((slot, 0));
        if is_new {
            if *previous < 0 || *previous > count {
                *previous = 0;
            }
            links.fresh_slots += usize::from(*previous == 0);
            links.newest.push(number);
        } else {
            *previous = links.newest[place];
            links.newest[place] = number;
        }
    }
    links.slot = places.into_keys().into_iter().map(|(slot, _)| slot).collect();
    links
}

/// The rows of each queue, ascending. The queues are sorted by topic and queue id.
pub fn group_by_queue(
    queues: impl ExactSizeIterator<Item = (i64, i64)>,
) -> Vec<((i64, i64), Vec<i64>)> {
    let mut places = Places::new(queues.len());
    let mut rows: Vec<Vec<i64>> = Vec::new();
    for (row, queue) in queues.enumerate() {
        let (place, is_new) = places.place_of(queue);
        if is_new {
            rows.push(Vec::new());
        }
        rows[place].push(row as i64);
    }
    let mut groups: Vec<_> = places.into_keys().into_iter().zip(rows).collect();
    groups.sort_unstable_by_key(|(queue, _)| *queue);
    groups
}
