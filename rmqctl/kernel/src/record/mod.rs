//! Records and their texts: topics, properties, and how these are printed.

pub mod entry;
pub mod hashmap;
pub mod indexkeys;
pub mod keyhash;
pub mod pairs;
pub mod properties;
pub mod shapes;
pub mod text;
pub mod topics;
