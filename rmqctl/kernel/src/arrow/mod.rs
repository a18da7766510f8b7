//! Columns of Apache Arrow.

pub mod hosts;
pub mod maps;
pub mod rows;
pub mod shapes;
