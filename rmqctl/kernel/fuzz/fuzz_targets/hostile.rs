//! Reads arbitrary bytes in every way.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| _kernel::hostile::read_all(data));
