//! The hot loops of rmqctl: what `rmqctl/engine/scan` does with numpy, over the same bytes and with
//! the same answers. The loops know no Python; `python` is what Python sees of them.
//!
//! All bytes are hostile. Every place and length is checked before it is followed, by what Rust
//! checks of slices if by nothing else, and a number that runs over is a panic and not a number.

#![deny(unsafe_code)]
// Without Python there is nobody to use some of it.
#![cfg_attr(not(feature = "python"), allow(dead_code))]

mod append;
mod behind;
mod columns;
mod derived;
mod fetch;
mod hashmap;
#[cfg(any(test, feature = "hostile"))]
pub mod hostile;
mod items;
mod jsonline;
mod keychain;
mod keyhash;
#[rustfmt::skip] // Generated.
#[allow(dead_code)] // Whole structures.
mod layouts;
mod arrowhosts;
mod arrowmaps;
mod arrowrows;
mod arrowshapes;
mod links;
mod mapped;
mod memory;
mod newunits;
mod pairs;
mod parts;
mod plain;
mod properties;
mod pull;
mod record;
mod rows;
mod scan;
mod slots;
mod storing;
mod text;
mod topics;
mod units;

#[cfg(feature = "python")]
mod pyappend;
#[cfg(feature = "python")]
mod pyarrow;
#[cfg(feature = "python")]
mod pyderived;
#[cfg(feature = "python")]
mod pyitems;
#[cfg(feature = "python")]
mod pykeys;
#[cfg(feature = "python")]
mod pylines;
#[cfg(feature = "python")]
mod pymemory;
#[cfg(feature = "python")]
mod pymessage;
#[cfg(feature = "python")]
mod pyplain;
#[cfg(feature = "python")]
mod pyrecords;
#[cfg(feature = "python")]
mod pysingle;
#[cfg(feature = "python")]
mod pystored;
#[cfg(feature = "python")]
mod python;

#[cfg(test)]
mod append_tests;
#[cfg(test)]
mod tests;
