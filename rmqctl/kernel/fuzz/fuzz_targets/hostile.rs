//! Any bytes, read in every way that there is.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| _kernel::hostile::read_all(data));
