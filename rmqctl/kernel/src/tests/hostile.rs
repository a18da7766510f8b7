//! Runs `hostile.rs` on random bytes, which are the same in every run (`RMQCTL_KERNEL_ROUNDS=N` sets
//! how many). `fuzz/fuzz_targets/hostile.rs` runs it on the bytes of a fuzzer.

use super::{Lots, damaged, log};
use crate::hostile::read_all;

#[test]
fn no_bytes_make_anything_panic() {
    let rounds = std::env::var("RMQCTL_KERNEL_ROUNDS").ok().and_then(|text| text.parse().ok());
    let mut lots = Lots(11);
    for round in 0..rounds.unwrap_or(1500) {
        let length = lots.below(600);
        let mut data = match round % 3 {
            0 => lots.bytes(length),
            1 => log(&mut lots, 5),
            _ => damaged(&mut lots, 5, 1 + round % 6),
        };
        let mut choice = lots.bytes(8);
        choice.append(&mut data);
        read_all(&choice);
    }
}
