//! What a record is, and its texts: topics, properties, and how they are printed.

pub mod entry;
pub mod hashmap;
pub mod keyhash;
pub mod pairs;
pub mod properties;
pub mod text;
pub mod topics;
