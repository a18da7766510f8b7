//! Scans the records of a window of the log with several threads, into columns or counts.

pub mod columns;
pub mod parts;
pub mod plain;
pub mod window;
