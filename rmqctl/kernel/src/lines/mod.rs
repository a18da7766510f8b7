//! Writes records as lines of NDJSON and CSV, and the results of pulls.

pub mod cells;
pub mod columns;
pub mod pull;
pub mod rows;
pub mod second;
pub mod steady;
pub mod units;
