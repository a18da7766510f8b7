//! Stores messages, and lines of NDJSON, as records of the log.

pub mod append;
#[cfg(test)]
pub mod append_tests;
pub mod behind;
pub mod derived;
pub mod jsonline;
pub mod maker;
pub mod message;
pub mod storing;
