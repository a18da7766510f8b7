//! How bytes are looked at, stored while others read them, and lent.

pub mod fetch;
pub mod mapped;
pub mod memory;
pub mod pieces;
pub mod processors;
