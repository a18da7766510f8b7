//! Units stored into the file of a queue that others may read (`store_units` of
//! `rmqctl/engine/queue/storing.py`).

use crate::bytes::mapped::Room;
use crate::layouts::{QUEUE_UNIT_BYTES, QUEUE_UNIT_SIZE, QUEUE_UNIT_TAGS_CODE};

/// Stores whole units where nothing stands, the size of each last: a kill leaves a place that every
/// start takes for the queue's end, and no unit that is cut.
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
