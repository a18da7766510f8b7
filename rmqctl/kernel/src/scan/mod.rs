//! The records of a window of the log, in columns or counted, by several threads.

pub mod columns;
pub mod parts;
pub mod plain;
pub mod window;
