//! Access to bytes: reading and prefetching them, storing them while others read, reusing memory.

pub mod fetch;
pub mod lost;
pub mod mapped;
pub mod memory;
pub mod pieces;
pub mod processors;
