//! The hot loops of rmqctl, compiled. They give the same results as the pure Python engine, which
//! does the same with numpy (`rmqctl/engine/scan`). Only the module `python` knows Python.
//!
//! The modules are layers. Each uses only those before it: `bytes`, `record`, `index`, `queue` and
//! `scan`, `put` and `arrow`, `lines`, `python` (`tests/test_safety/test_layers.py`). All use
//! `layouts`.
//!
//! All bytes of a store are hostile. Every position and length is checked before it is used, at least
//! by Rust's own check of slice bounds. An integer that overflows is a panic, never a wrong number.

#![deny(unsafe_code)]
// Without Python some of the code has no caller.
#![cfg_attr(not(feature = "python"), allow(dead_code))]

mod arrow;
mod bytes;
#[cfg(any(test, feature = "hostile"))]
pub mod hostile;
mod index;
#[rustfmt::skip] // Generated.
#[allow(dead_code)] // It has all fields of all structures.
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
