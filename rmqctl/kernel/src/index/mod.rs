//! Index files: items, their slots, and lookups.

pub mod items;
pub mod keychain;
pub mod links;
pub mod slots;
