//! Stores units into the file of a queue while others may read it, as `store_units` of
//! `rmqctl/engine/queue/storing.py` does.

use crate::bytes::mapped::Room;
use crate::layouts::{QUEUE_UNIT_BYTES, QUEUE_UNIT_SIZE, QUEUE_UNIT_TAGS_CODE};

/// Stores whole units over zeros, the size of each last. A kill during a unit leaves its size 0, which
/// every start takes for the end of the queue, and never a torn unit.
pub fn store_all(room: &mut Room<'_>, position: usize, units: &[u8]) {
    for (at, unit) in
        (position..).step_by(QUEUE_UNIT_BYTES).zip(units.chunks_exact(QUEUE_UNIT_BYTES))
    {
        room.write(at, &unit[..QUEUE_UNIT_SIZE]);
        room.write(at + QUEUE_UNIT_TAGS_CODE, &unit[QUEUE_UNIT_TAGS_CODE..]);
        let size = &unit[QUEUE_UNIT_SIZE..QUEUE_UNIT_TAGS_CODE];
        room.publish(at + QUEUE_UNIT_SIZE, size);
    }
}
