//! Units of queues.

pub mod newunits;
pub mod units;
