//! Bytes as text of a JSON dump: blanks, control characters, quotes, backslashes, percent signs and
//! bytes that are not UTF-8 become `%` and two digits.

use std::fmt::Write;

/// Appends bytes to JSON text, between quotes that the caller writes.
pub fn escape_into(out: &mut String, bytes: &[u8]) {
    for part in bytes.utf8_chunks() {
        for character in part.valid().chars() {
            match character {
                // The Go client keeps only the first byte of U+FFFD, and loses the others.
                '%' | '"' | '\\' | '\u{FFFD}' | '\0'..=' ' => {
                    let mut encoded = [0; 4];
                    escape_bytes(out, character.encode_utf8(&mut encoded).as_bytes());
                }
                plain => out.push(plain),
            }
        }
        escape_bytes(out, part.invalid());
    }
}

/// Returns bytes as text.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    escape_into(&mut out, bytes);
    out
}

/// Returns the bytes of a text. A `%` without two digits after it stands for itself, as in dumps of
/// old clients.
pub fn unescape(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digit = |at: usize| bytes.get(at).copied().and_then(hex);
        if let (b'%', Some(high), Some(low)) = (byte, digit(at + 1), digit(at + 2)) {
            out.push(high << 4 | low);
            at += 3;
        } else {
            out.push(*byte);
            at += 1;
        }
    }
    out
}

fn escape_bytes(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(out, "%{byte:02X}");
    }
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // The expected texts are those of the Go client, except for U+FFFD.
    #[test]
    fn bytes_become_the_text_of_the_go_client() {
        for (bytes, text) in [
            (&b"plain.txt"[..], "plain.txt"),
            (b"a b%c\"d\\e\n", "a%20b%25c%22d%5Ce%0A"),
            ("日本\u{7f}<&>".as_bytes(), "日本\u{7f}<&>"),
            (b"\xff\xe6\x97x", "%FF%E6%97x"),
            ("\u{FFFD}".as_bytes(), "%EF%BF%BD"),
        ] {
            assert_eq!(escape(bytes), text);
            assert_eq!(unescape(text), bytes);
        }
    }

    #[test]
    fn a_percent_sign_without_digits_stands_for_itself() {
        for text in ["%", "100%", "%4", "%zz", "%2g", "%2f"] {
            assert_eq!(unescape(text), text.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn every_escaped_text_returns_the_same_bytes(bytes: Vec<u8>) {
            let text = escape(&bytes);
            prop_assert!(!text.contains(['"', '\\', ' ', '\n']));
            prop_assert_eq!(unescape(&text), bytes);
        }
    }
}
