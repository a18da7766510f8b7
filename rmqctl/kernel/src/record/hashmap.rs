//! The iteration order of a `java.util.HashMap`, in which a broker stores the properties of a record
//! (`hash_map_order` of `formats/text.py`).

use crate::record::keyhash::hash_code;

const INITIAL_CAPACITY: usize = 16;
const TREEIFY_THRESHOLD: usize = 8;
const MIN_TREEIFY_CAPACITY: usize = 64;

/// Sorts entries into the order of a map into which they were put in their present order. False if a
/// name is there twice. Takes time with the square of their number, which callers must bound.
pub fn sort<T>(entries: &mut [(u32, T)], name: impl Fn(&T) -> &[u8]) -> bool {
    for (spread, entry) in entries.iter_mut() {
        let name = name(entry);
        let code = hash_code(name, 0, name.len(), 0);
        *spread = code ^ (code >> 16);
    }
    let bucket = table_capacity(entries) as u32 - 1;
    // The sort is stable: in a bucket, entries have the order in which they were put.
    entries.sort_by_key(|(spread, _)| spread & bucket);
    entries.iter().enumerate().all(|(at, (spread, entry))| {
        let before = entries[..at].iter().rev();
        let mut neighbours = before.take_while(|(other, _)| (other ^ spread) & bucket == 0);
        neighbours.all(|(other, own)| other != spread || name(own) != name(entry))
    })
}

/// The capacity of the map's table after all entries were put one by one.
fn table_capacity<T>(entries: &[(u32, T)]) -> usize {
    let mut capacity = INITIAL_CAPACITY;
    if entries.len() <= TREEIFY_THRESHOLD {
        return capacity;
    }
    for (at, (spread, _)) in entries.iter().enumerate() {
        // A crowded bucket of a small table grows the table (HashMap#treeifyBin) ...
        if capacity < MIN_TREEIFY_CAPACITY {
            let same = |other: &u32| (other ^ spread) & (capacity as u32 - 1) == 0;
            let neighbours = entries[..at].iter().filter(|(other, _)| same(other)).count();
            if neighbours >= TREEIFY_THRESHOLD {
                capacity *= 2;
            }
        }
        // ... and so does a table that is more than three quarters full.
        if (at + 1) * 4 > capacity * 3 {
            capacity *= 2;
        }
    }
    capacity
}
