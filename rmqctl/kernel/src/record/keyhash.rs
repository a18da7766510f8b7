//! `String#hashCode` of texts in UTF-8, and the hash of an index key.

/// 31 to the powers 0 to 8.
const POWERS: [u32; 9] = powers();

const fn powers() -> [u32; 9] {
    let mut powers = [1u32; 9];
    let mut number = 1;
    while number < powers.len() {
        powers[number] = powers[number - 1].wrapping_mul(31);
        number += 1;
    }
    powers
}

pub const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// The hash of the text at `start..end` of `data`. `before` is the hash of the text before it, or 0.
/// Malformed UTF-8 becomes U+FFFD as in Java (`formats.text.decode_utf8`).
#[inline]
pub fn hash_code(data: &[u8], start: usize, end: usize, before: u32) -> u32 {
    let text = &data[start..end];
    let mut code = before;
    let mut high = 0;
    for word in text.chunks_exact(8) {
        let word = word_of(word);
        high |= word;
        code = code.wrapping_mul(POWERS[8]).wrapping_add(hash_word(word));
    }
    let left = text.len() % 8;
    if left > 0 {
        let word = last_word(data, end, left);
        high |= word;
        code = code.wrapping_mul(POWERS[left]).wrapping_add(hash_word(word));
    }
    if high & HIGH_BITS == 0 {
        return code;
    }
    hash_units(text, before)
}

/// Eight bytes as a number, the first one lowest.
#[inline]
pub fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// The last `count` (1 to 7) bytes before `end` as the last bytes of a word. Its first bytes are zeros,
/// which do not change a hash.
#[inline]
fn last_word(data: &[u8], end: usize, count: usize) -> u64 {
    if let Some(low) = end.checked_sub(8) {
        return word_of(&data[low..end]) & (u64::MAX << (8 * (8 - count)));
    }
    let mut bytes = [0; 8];
    bytes[8 - count..].copy_from_slice(&data[end - count..end]);
    u64::from_le_bytes(bytes)
}

/// The hash of eight bytes, if each is a code unit (ASCII). Pairs of neighbours are combined into
/// numbers of twice the width: first bytes, then 16 bits. 255 · 32 fits into 16 bits, and that times
/// 962 into 32 bits.
#[inline]
fn hash_word(word: u64) -> u32 {
    const BYTES: u64 = 0x00ff_00ff_00ff_00ff;
    const PAIRS: u64 = 0x0000_ffff_0000_ffff;
    let pairs = (word & BYTES) * 31 + ((word >> 8) & BYTES);
    let fours = (pairs & PAIRS) * 961 + ((pairs >> 16) & PAIRS);
    (fours as u32).wrapping_mul(POWERS[4]).wrapping_add((fours >> 32) as u32)
}

/// The hash of any bytes, computed from their UTF-16 code units one by one.
#[cold]
fn hash_units(text: &[u8], before: u32) -> u32 {
    decode_utf8(text)
        .encode_utf16()
        .fold(before, |code, unit| code.wrapping_mul(31).wrapping_add(u32::from(unit)))
}

/// Decodes UTF-8 as Java does. Of malformed bytes, an encoded surrogate becomes one U+FFFD; all others
/// are replaced as Rust does it.
fn decode_utf8(text: &[u8]) -> String {
    if let Ok(sound) = std::str::from_utf8(text) {
        return sound.to_owned();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let second = text.get(at + 1).copied().unwrap_or(0);
        if text[at] == 0xed && (0xa0..=0xbf).contains(&second) {
            let third = text.get(at + 2).copied().unwrap_or(0);
            at += if (0x80..=0xbf).contains(&third) { 3 } else { 2 };
            bytes.extend_from_slice("\u{fffd}".as_bytes());
        } else {
            bytes.push(text[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `IndexFile#indexKeyHashMethod` of a hash: the absolute value, Integer.MIN_VALUE → 0.
#[inline]
pub fn index_hash(code: u32) -> i32 {
    (code as i32).checked_abs().unwrap_or(0)
}
