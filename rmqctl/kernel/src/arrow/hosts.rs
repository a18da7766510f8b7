//! Writes hosts as `address:port`, and message ids, which contain the broker's address.

use crate::arrow::maps::{SHORT, Texts};
use crate::record::entry::{i32_at, i64_at};
use crate::record::text::host_text;

const HOSTS: usize = 64;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Adds a message id: address, port and physical offset as hexadecimal digits.
#[inline]
pub fn push_msg_id(out: &mut Vec<u8>, host: &[u8], place: [u8; 8]) {
    let mut digits = [0; 32];
    let low = host.len() - 8;
    for bytes in host[..low].chunks_exact(4) {
        out.extend_from_slice(&hex(i32_at(bytes, 0) as u32));
    }
    let words = [i32_at(host, low), i32_at(host, low + 4), i32_at(&place, 0), i32_at(&place, 4)];
    for (eight, word) in digits.chunks_exact_mut(8).zip(words) {
        eight.copy_from_slice(&hex(word as u32));
    }
    out.extend_from_slice(&digits);
}

/// A number as eight hexadecimal digits, computed at once: each half of a byte in its own byte.
#[inline]
fn hex(number: u32) -> [u8; 8] {
    const HALVES: u64 = 0x0f0f_0f0f_0f0f_0f0f;
    const ONES: u64 = 0x0101_0101_0101_0101;
    let wide = u64::from(number);
    let wide = (wide | wide << 16) & 0x0000_ffff_0000_ffff;
    let wide = (wide | wide << 8) & 0x00ff_00ff_00ff_00ff;
    let halves = (wide | wide << 4) & HALVES;
    // 1 in each byte whose half is 10 or more, so that adding 6 makes it 16 or more.
    let letters = (halves + 6 * ONES) >> 4 & ONES;
    (halves + u64::from(b'0') * ONES + u64::from(b'A' - b'9' - 1) * letters).to_be_bytes()
}

/// A cache of texts of hosts: mostly a few hosts send many messages. The key of an IPv4 address and its
/// port is a 64-bit word. Its text is in an array of fixed size, which is copied as a whole.
#[derive(Debug)]
pub struct Hosts {
    last: (u64, Texted),
    four: Vec<(u64, Texted)>,
    six: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A text of at most `SHORT` bytes, and its length.
type Texted = ([u8; SHORT], usize);

impl Hosts {
    /// A cache for born hosts, and one for store hosts.
    pub fn two() -> [Hosts; 2] {
        // All entries begin with the key 0, so they need the text of that host.
        let zeros = (0, texted("0.0.0.0:0"));
        let none = || Hosts { last: zeros, four: vec![zeros; HOSTS], six: Vec::new() };
        [none(), none()]
    }

    /// Adds the text of an address and its port. None if Python must make it, or the array is full.
    #[inline]
    pub fn push(&mut self, texts: &mut Texts, host: &[u8]) -> Option<()> {
        let Some(word) = host.try_into().ok().map(u64::from_le_bytes) else {
            return texts.push(self.text_of_six(host)?);
        };
        if word != self.last.0 {
            self.last = (word, self.text_of_four(word)?);
        }
        texts.push_short(&self.last.1.0, self.last.1.1)
    }

    fn text_of_four(&mut self, word: u64) -> Option<Texted> {
        let slot = &mut self.four[slot_of(word)];
        if slot.0 != word {
            *slot = (word, texted(&host_text(&word.to_le_bytes())?));
        }
        Some(slot.1)
    }

    fn text_of_six(&mut self, host: &[u8]) -> Option<&[u8]> {
        if self.six.is_empty() {
            self.six = vec![Default::default(); HOSTS];
        }
        let mixed = u64::from(i64_at(host, 0) as u32) ^ (i64_at(host, host.len() - 8) as u64);
        let slot = &mut self.six[slot_of(mixed)];
        if *slot.0 != *host {
            *slot = (host.to_vec(), host_text(host)?.into_bytes());
        }
        Some(&slot.1)
    }
}

#[inline]
fn slot_of(word: u64) -> usize {
    (word.wrapping_mul(FACTOR) >> 58) as usize
}

/// A text of at most 27 bytes: the longest is 255.255.255.255:-2147483648.
fn texted(text: &str) -> Texted {
    let mut room = [0; SHORT];
    room[..text.len()].copy_from_slice(text.as_bytes());
    (room, text.len())
}

#[cfg(test)]
mod tests {
    use super::{Hosts, push_msg_id};
    use crate::arrow::maps::Texts;
    use crate::record::text::host_text;

    #[test]
    fn hosts_are_told_as_one_by_one() {
        let mut texts = Texts::new(0, 0);
        let [mut hosts, _] = Hosts::two();
        let mut expected = Vec::new();
        for number in 0..500u64 {
            let word = (number % 130).wrapping_mul(0x0123_4567_89ab_cdef).to_be_bytes();
            let long: Vec<u8> = [&[0x20; 12][..], &word].concat();
            for host in [&word[..], &long, &[0; 8], &[255; 8]] {
                hosts.push(&mut texts, host).unwrap();
                expected.push(host_text(host).unwrap());
            }
        }
        assert_eq!(String::from_utf8(texts.bytes).unwrap(), expected.concat());
        let mixed = [[0; 10].as_slice(), &[255; 2], &[1; 8]].concat();
        assert!(hosts.push(&mut Texts::new(0, 0), &mixed).is_none());
    }

    #[test]
    fn ids_are_hexadecimal_digits() {
        for number in 0..1000u64 {
            let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            for host in [&word[..], &[[7; 12].as_slice(), &word].concat()] {
                let mut made = Vec::new();
                push_msg_id(&mut made, host, word);
                let digits = |bytes: &[u8]| -> String {
                    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
                };
                assert_eq!(String::from_utf8(made).unwrap(), digits(host) + &digits(&word));
            }
        }
    }
}
