//! Change log lines.

/// Text as an argument of a line.
pub fn escape(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
