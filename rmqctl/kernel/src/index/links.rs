//! How items hang on the slots of an index file, and which rows belong to which queue: what
//! `link_items` (`rmqctl/engine/index/links.py`) and `group_by_queue`
//! (`rmqctl/engine/derive/writer.py`) do with sorted arrays.

use std::hash::{BuildHasher, RandomState};

/// A table from a key to the place of its first use, a power of two wide and never more than half
/// full. Its hash is
/// another one each time, so that no store can be made whose keys are all in each other's way.
pub struct Places {
    factor: u64,
    keys: Vec<(i64, i64)>,
    /// 1 + place; 0 where nothing stands.
    places: Vec<u32>,
    mask: usize,
}

impl Places {
    /// With room for so many keys, which grows.
    pub fn new(room: usize) -> Self {
        let width = (2 * room.max(4)).next_power_of_two();
        let factor = RandomState::new().hash_one(0) | 1;
        Places { factor, keys: Vec::new(), places: vec![0; width], mask: width - 1 }
    }

    /// The place of a key among those seen, and whether it is new.
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

    /// Where a key is looked for first.
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

    /// The keys by their places.
    pub fn into_keys(self) -> Vec<(i64, i64)> {
        self.keys
    }
}

/// `Links` of `rmqctl/engine/index/links.py`; slots in the order of their first item.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Links {
    pub previous: Vec<i32>,
    pub slot: Vec<i64>,
    pub newest: Vec<i32>,
    pub fresh_slots: usize,
}

/// The links of items one after the other, as `IndexFile#putKey` gives them. `newest_of` is what a
/// slot says before them; a number that is not above 0 and at most `count` is none.
pub fn link_items(
    slots: impl ExactSizeIterator<Item = i64> + Clone,
    numbers: impl Iterator<Item = i32>,
    newest_of: impl Fn(i64) -> i32,
    count: i32,
) -> Links {
    let mut places = Places::new(slots.len());
    // All slots first: these places lie far apart, and the machine looks at many of them at once as
    // long as nothing else depends on them.
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

/// The rows of each queue in order, by topic and queue id.
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
