//! The hot loops of rmqctl: what `rmqctl/engine/scan` does with numpy, over the same bytes and with
//! the same answers. The loops know no Python; `python` is what Python sees of them.
//!
//! A room uses those that stand before it, and all of them know the `layouts`: `bytes`, `record`,
//! `index`, `queue` and `scan`, `put` and `arrow`, `lines`, `python`
//! (`tests/test_safety/test_layers.py`).
//!
//! All bytes are hostile. Every place and length is checked before it is followed, by what Rust
//! checks of slices if by nothing else, and a number that runs over is a panic and not a number.

#![deny(unsafe_code)]
// Without Python there is nobody to use some of it.
#![cfg_attr(not(feature = "python"), allow(dead_code))]

mod arrow;
mod bytes;
#[cfg(any(test, feature = "hostile"))]
pub mod hostile;
mod index;
#[rustfmt::skip] // Generated.
#[allow(dead_code)] // Whole structures.
mod layouts;
mod lines;
mod put;
#[cfg(feature = "python")]
mod python;
mod queue;
mod record;
mod scan;

#[cfg(test)]
mod tests;
