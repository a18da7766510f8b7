//! Ends a command in order when a page of a mapped file cannot be had: its disk cannot read it, or the
//! file was cut. An access to memory returns no error, so the system sends SIGBUS instead.

#![allow(unsafe_code)]

use std::fs;
use std::io::{self, Write as _};

use libc::{SIGBUS, siginfo_t};
use signal_hook_registry::register_sigaction;

/// The files that are mapped into this process, one a line.
const MAPS: &str = "/proc/self/maps";
/// The columns of a line before the file's name.
const BEFORE_NAME: usize = 5;
/// The exit code of a shell for a process that a signal has ended is this and the signal's number.
const ENDED_BY_SIGNAL: i32 = 128;

/// From now on a lost page ends the process: `before`, the name of the file and `after` go to stderr,
/// and `code` is the exit code. Bytes that were stored stay stored, as after a kill.
pub fn tell(before: String, after: String, code: i32) -> io::Result<()> {
    let action = move |signal: &siginfo_t| {
        if signal.si_code <= 0 {
            exit(ENDED_BY_SIGNAL + signal.si_signo); // Another process has sent it.
        }
        // SAFETY: a SIGBUS of the system's has the address.
        let address = unsafe { signal.si_addr() }.addr();
        let maps = fs::read(MAPS).unwrap_or_default();
        let maps = String::from_utf8_lossy(&maps);
        let name = shown(file_at(&maps, address).unwrap_or("a mapped file"));
        let _ = io::stderr().write_all(format!("{before}{name}{after}\n").as_bytes());
        exit(code);
    };
    // SAFETY: the action never returns to what the signal has interrupted. That is an access to a page
    // of a file, which is never amid malloc or in the lock of stderr, so both can be used.
    unsafe { register_sigaction(SIGBUS, action) }.map(drop)
}

/// Ends the process at once.
fn exit(code: i32) -> ! {
    // SAFETY: it may be called anywhere.
    unsafe { libc::_exit(code) }
}

/// The name of the file that is mapped at an address.
fn file_at(maps: &str, address: usize) -> Option<&str> {
    maps.lines().find_map(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        let name = line.splitn(BEFORE_NAME + 1, ' ').nth(BEFORE_NAME)?.trim_start();
        ((start..end).contains(&address) && !name.is_empty()).then_some(name)
    })
}

/// A name without characters that control a terminal.
fn shown(name: &str) -> String {
    name.chars().map(|one| if one.is_control() { '\u{fffd}' } else { one }).collect()
}

#[cfg(test)]
mod tests {
    use super::{file_at, shown};

    const MAPS: &str = "\
5600-5700 r--p 00000000 fe:01 123                        /usr/bin/python3.11
7000-9000 r--s 00000000 fe:01 1181                       /data/my store/commitlog/0 (deleted)
9000-a000 rw-p 00000000 00:00 0 
";

    #[test]
    fn the_name_of_a_file_is_found_by_an_address() {
        assert_eq!(file_at(MAPS, 0x5600), Some("/usr/bin/python3.11"));
        let other = Some("/data/my store/commitlog/0 (deleted)");
        assert_eq!(file_at(MAPS, 0x7000), other);
        assert_eq!(file_at(MAPS, 0x8fff), other);
        assert_eq!(file_at(MAPS, 0x9000), None);
        assert_eq!(file_at(MAPS, 0x6000), None);
        assert_eq!(file_at("no map\n-\n", 0), None);
    }

    #[test]
    fn a_name_controls_no_terminal() {
        assert_eq!(shown("/é\u{1b}[1m\u{9b}2\r"), "/é\u{fffd}[1m\u{fffd}2\u{fffd}");
    }
}
