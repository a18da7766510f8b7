//! Groups units by queue, in the form in which they are stored. `units_by_queue`
//! (`rmqctl/engine/dispatch/byqueue.py`) does the same with sorted arrays.

use crate::index::links::Places;
use crate::layouts::{
    QUEUE_UNIT_BYTES, QUEUE_UNIT_PHYSICAL_OFFSET, QUEUE_UNIT_SIZE, QUEUE_UNIT_TAGS_CODE,
};

/// A unit that dispatch makes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    pub topic: i64,
    pub queue: i64,
    pub queue_offset: i64,
    pub physical_offset: i64,
    pub size: i64,
    pub tags_code: i64,
}

/// The units of a queue: those from number `start` on, up to those of the next queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    pub topic: i64,
    pub queue: i64,
    pub start: usize,
    /// Whether the queue offsets are consecutive and the physical offsets ascending.
    pub is_run: bool,
}

/// All units, queue by queue. The units of a queue keep their order.
#[derive(Debug, Default)]
pub struct ByQueue {
    pub queues: Vec<Queue>,
    /// The number that each unit had before.
    pub rows: Vec<i64>,
    /// The bytes of the units, as they are stored.
    pub stored: Vec<u8>,
}

/// Sorts `count` units by topic and queue.
pub fn by_queue(units: impl Iterator<Item = Unit> + Clone, count: usize) -> ByQueue {
    let mut places = Places::new(count);
    let mut sizes: Vec<usize> = Vec::new();
    let place_of_row: Vec<u32> = units
        .clone()
        .map(|unit| {
            let (place, is_new) = places.place_of((unit.topic, unit.queue));
            if is_new {
                sizes.push(0);
            }
            sizes[place] += 1;
            place as u32
        })
        .collect();
    let keys = places.into_keys();
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_unstable_by_key(|&place| keys[place]);
    let mut found = ByQueue {
        rows: vec![0; count],
        stored: vec![0; count * QUEUE_UNIT_BYTES],
        ..ByQueue::default()
    };
    let mut ends = vec![Ends::default(); keys.len()];
    let mut start = 0;
    for &place in &order {
        let (topic, queue) = keys[place];
        found.queues.push(Queue { topic, queue, start, is_run: true });
        ends[place].next = start;
        start += sizes[place];
    }
    for ((row, unit), &place) in units.enumerate().zip(&place_of_row) {
        let end = &mut ends[place as usize];
        found.rows[end.next] = row as i64;
        store(&unit, &mut found.stored[end.next * QUEUE_UNIT_BYTES..][..QUEUE_UNIT_BYTES]);
        end.take(&unit);
    }
    for (queue, &place) in found.queues.iter_mut().zip(&order) {
        queue.is_run = !ends[place].is_broken;
    }
    found
}

/// The state of one queue while its units are placed.
#[derive(Debug, Default, Clone, Copy)]
struct Ends {
    next: usize,
    last: Option<(i64, i64)>,
    is_broken: bool,
}

impl Ends {
    #[inline]
    fn take(&mut self, unit: &Unit) {
        if let Some((queue_offset, physical_offset)) = self.last {
            let follows = unit.queue_offset.wrapping_sub(queue_offset) == 1;
            self.is_broken |= !follows || unit.physical_offset <= physical_offset;
        }
        self.last = Some((unit.queue_offset, unit.physical_offset));
        self.next += 1;
    }
}

/// Writes a unit as it is stored in a queue's file.
#[inline]
pub fn store(unit: &Unit, stored: &mut [u8]) {
    let mut put = |at: usize, bytes: &[u8]| stored[at..at + bytes.len()].copy_from_slice(bytes);
    put(QUEUE_UNIT_PHYSICAL_OFFSET, &unit.physical_offset.to_be_bytes());
    put(QUEUE_UNIT_SIZE, &(unit.size as i32).to_be_bytes());
    put(QUEUE_UNIT_TAGS_CODE, &unit.tags_code.to_be_bytes());
}
