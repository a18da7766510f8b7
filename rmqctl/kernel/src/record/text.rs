//! Writes texts as JSON and CSV, byte for byte as the commands do in Python (`rmqctl/cli/output.py`,
//! `rmqctl/operations/look/exportfiles.py`).

use std::net::Ipv6Addr;

use crate::record::keyhash::{HIGH_BITS, word_of};

/// What is escaped in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escapes {
    /// What JSON must escape, and all characters that control a terminal.
    SafeJson,
    /// Only what JSON must escape.
    Json,
    /// All characters that control a terminal, as `\x1b`.
    Visible,
    /// None.
    Raw,
}

const ONES: u64 = 0x0101_0101_0101_0101;

/// A word with the high bit set in each byte that needs an escape: below 0x20, `"`, `\`, 0x7f, or not
/// ASCII. Only the lowest of these bits is reliable; higher ones may be set for other bytes, too.
#[inline]
pub fn odd_bytes(word: u64) -> u64 {
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let small = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = zero(word ^ (ONES * u64::from(b'"')));
    let back = zero(word ^ (ONES * u64::from(b'\\')));
    let delete = zero(word ^ (ONES * 0x7f));
    (small | quote | back | delete | word) & HIGH_BITS
}

/// Whether any byte of a word needs an escape.
#[inline]
fn stands_out(word: u64) -> bool {
    odd_bytes(word) != 0
}

/// Whether a byte needs an escape.
#[inline]
pub fn is_odd(byte: u8) -> bool {
    !(0x20..0x7f).contains(&byte) || byte == b'"' || byte == b'\\'
}

/// Bytes that are checked at once with vector instructions.
const BLOCK: usize = 64;

/// How many bytes at the front of a text are printed without escapes, in every form.
#[inline]
fn plain(text: &[u8]) -> usize {
    let mut at = 0;
    for block in text.chunks_exact(BLOCK) {
        // There is no early exit within a block, so the compiler can vectorise it.
        if block.iter().fold(false, |odd, &byte| odd | is_odd(byte)) {
            break;
        }
        at += BLOCK;
    }
    for word in text[at..].chunks_exact(8) {
        if stands_out(word_of(word)) {
            break;
        }
        at += 8;
    }
    let rest = &text[at..];
    if rest.len() < 8 && text.last_chunk::<8>().is_some_and(|word| !stands_out(word_of(word))) {
        return text.len();
    }
    at + rest.iter().take(8).position(|&byte| is_odd(byte)).unwrap_or(rest.len().min(8))
}

/// Whether all of a text is printed without escapes, in every form that puts it in quotes. Then it is
/// ASCII.
#[inline]
pub fn is_plain(text: &[u8]) -> bool {
    plain(text) == text.len()
}

/// A text that is mostly short, and is added often. It is copied with a length that the compiler
/// knows, which is much faster than with a variable one.
#[derive(Debug, Clone, Default)]
pub struct Short {
    bytes: Vec<u8>,
    padded: [u8; 32],
}

impl Short {
    pub fn new(bytes: Vec<u8>) -> Self {
        let mut short = Short { bytes, padded: [0; 32] };
        short.pad();
        short
    }

    /// Becomes the text that `push` writes.
    pub fn renew(&mut self, push: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.clear();
        push(&mut self.bytes);
        self.pad();
    }

    fn pad(&mut self) {
        if let Some(room) = self.padded.get_mut(..self.bytes.len()) {
            room.copy_from_slice(&self.bytes);
        }
    }

    #[inline]
    pub fn push_to(&self, out: &mut Vec<u8>) {
        let length = self.bytes.len();
        if length > self.padded.len() {
            return out.extend_from_slice(&self.bytes);
        }
        let end = out.len() + length;
        if length <= 16 {
            out.extend_from_slice(&self.padded[..16]);
        } else {
            out.extend_from_slice(&self.padded);
        }
        out.truncate(end);
    }
}

/// Adds the bytes `start..end` of a text, which are mostly few, in the same way as [`Short`].
#[inline]
pub fn push_part(out: &mut Vec<u8>, text: &[u8], start: usize, end: usize) {
    let behind = out.len() + (end - start);
    let room = &text[start..];
    match (end - start, room.first_chunk::<16>(), room.first_chunk::<32>()) {
        (..=16, Some(bytes), _) => out.extend_from_slice(bytes),
        (..=32, _, Some(bytes)) => out.extend_from_slice(bytes),
        _ => out.extend_from_slice(&text[start..end]),
    }
    out.truncate(behind);
}

/// Texts up to this length are copied word by word while they are checked.
const SHORT: usize = 64;

/// Adds a text, which must be UTF-8. Bytes that are not become U+FFFD.
#[inline]
pub fn push_text(out: &mut Vec<u8>, text: &[u8], escapes: Escapes) {
    if escapes == Escapes::Raw {
        out.extend_from_slice(text);
        return;
    }
    let mut rest = text;
    if rest.len() <= SHORT {
        while let Some((word, behind)) = rest.split_first_chunk::<8>() {
            if stands_out(u64::from_le_bytes(*word)) {
                break;
            }
            out.extend_from_slice(word);
            rest = behind;
        }
    }
    while !rest.is_empty() {
        let (front, behind) = rest.split_at(plain(rest));
        out.extend_from_slice(front);
        rest = behind;
        if let Some(&first) = rest.first() {
            if first < 0x80 {
                push_ascii(out, first, escapes);
                rest = &rest[1..];
            } else {
                rest = push_others(out, rest, escapes);
            }
        }
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

#[cold]
fn push_ascii(out: &mut Vec<u8>, byte: u8, escapes: Escapes) {
    let [high, low] = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    let is_control = byte < 0x20 || byte == 0x7f;
    if escapes == Escapes::Visible {
        match is_control {
            true => out.extend_from_slice(&[b'\\', b'x', high, low]),
            false => out.push(byte),
        }
        return;
    }
    match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        8 => out.extend_from_slice(b"\\b"),
        9 => out.extend_from_slice(b"\\t"),
        10 => out.extend_from_slice(b"\\n"),
        12 => out.extend_from_slice(b"\\f"),
        13 => out.extend_from_slice(b"\\r"),
        0x7f if escapes == Escapes::Json => out.push(byte),
        _ if is_control => out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]),
        _ => out.push(byte),
    }
}

/// Adds all characters before the first ASCII one. Returns the rest of the text.
fn push_others<'a>(out: &mut Vec<u8>, text: &'a [u8], escapes: Escapes) -> &'a [u8] {
    let end = text.iter().position(u8::is_ascii).unwrap_or(text.len());
    for char in String::from_utf8_lossy(&text[..end]).chars() {
        let is_hidden = escapes != Escapes::Json && is_obeyed(char);
        if !is_hidden {
            out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        } else if escapes == Escapes::Visible {
            let code = u32::from(char);
            let told =
                if code < 0x100 { format!("\\x{code:02x}") } else { format!("\\u{code:04x}") };
            out.extend_from_slice(told.as_bytes());
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            }
        }
    }
    &text[end..]
}

/// Whether a character controls a terminal, or is invisible (`_CONTROL` of `rmqctl/cli/text.py`).
fn is_obeyed(char: char) -> bool {
    matches!(u32::from(char),
        0x7f..=0x9f | 0xad | 0x061c | 0x180e | 0x200b..=0x200f | 0x2028..=0x202e
        | 0x2060..=0x206f | 0xfeff | 0xfff9..=0xfffb | 0xe0000..=0xe007f)
}

/// Adds a text as a JSON string, in quotes.
#[inline]
pub fn push_quoted(out: &mut Vec<u8>, text: &[u8], escapes: Escapes) {
    out.push(b'"');
    push_text(out, text, escapes);
    out.push(b'"');
}

/// Adds bytes as hexadecimal digits.
#[inline]
pub fn push_hex(out: &mut Vec<u8>, bytes: &[u8], digits: &[u8; 16]) {
    for byte in bytes {
        let pair = [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]];
        out.extend_from_slice(&pair);
    }
}

/// Adds bytes as hexadecimal digits in lower case.
pub fn push_lower_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    push_hex(out, bytes, DIGITS);
}

/// The text `address:port` of an address of 4 or 16 bytes and the port behind it. None for addresses
/// that different versions of Python write differently.
pub fn host_text(host: &[u8]) -> Option<String> {
    let (address, port) = host.split_last_chunk::<4>()?;
    let port = i32::from_be_bytes(*port);
    if let Ok(four) = <[u8; 4]>::try_from(address) {
        return Some(format!("{}.{}.{}.{}:{port}", four[0], four[1], four[2], four[3]));
    }
    let address = Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?);
    address.to_ipv4().is_none().then(|| format!("[{address}]:{port}"))
}

#[inline]
pub fn push_int(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Milliseconds of a day, and the days (since 1970) of the years 1 to 9999.
const DAY: i64 = 86_400_000;
const DAYS: std::ops::RangeInclusive<i64> = -719_162..=2_932_896;

/// Adds a time (epoch milliseconds) as ISO 8601 in UTC. Adds nothing and returns false if it is
/// outside the years 1 to 9999.
pub fn push_time(out: &mut Vec<u8>, milliseconds: i64) -> bool {
    let (days, rest) = (milliseconds.div_euclid(DAY), milliseconds.rem_euclid(DAY));
    if !DAYS.contains(&days) {
        return false;
    }
    // Days since the first of March of year 0, in eras of 400 years.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, year) = (day - (153 * month + 2) / 5 + 1, year + 400 * era);
    let (month, year) = if month < 10 { (month + 3, year) } else { (month - 9, year + 1) };
    let (seconds, milliseconds) = (rest / 1000, rest % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let told = format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z"
    );
    out.extend_from_slice(told.as_bytes());
    true
}
