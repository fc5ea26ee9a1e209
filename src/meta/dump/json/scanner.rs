//! A reader of JSON that is larger than memory: objects key by key, small values as a whole.

use std::io::Read;

use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

const BUFFER: usize = 256 << 10;
/// The longest key. Names have at most 255 bytes, three letters each when escaped.
const MAX_KEY: usize = 4096;
/// The longest value that is read as a whole. The largest are lists of chunks.
const MAX_VALUE: usize = 64 << 20;

pub struct Scanner<R> {
    input: R,
    buffer: Vec<u8>,
    at: usize,
    /// Bytes before the buffer.
    before: u64,
    /// The text of the current key or value.
    token: Vec<u8>,
}

impl<R: Read> Scanner<R> {
    pub fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), at: 0, before: 0, token: Vec::new() }
    }

    /// Enters an object.
    pub fn begin_object(&mut self) -> Result<()> {
        self.expect(b'{')
    }

    /// Enters an object; returns false if there is `null` instead.
    pub fn begin_object_or_null(&mut self) -> Result<bool> {
        if self.peek()? == Some(b'n') {
            self.read_value(true)?;
            if self.token != b"null" {
                return Err(self.error("expected an object"));
            }
            return Ok(false);
        }
        self.begin_object()?;
        Ok(true)
    }

    /// Returns the next key of the current object; leaves the object at its end. `is_first` starts
    /// as true, for each object.
    pub fn next_key(&mut self, is_first: &mut bool) -> Result<Option<String>> {
        match self.peek()? {
            Some(b'}') => {
                self.at += 1;
                return Ok(None);
            }
            Some(b',') if !*is_first => self.at += 1,
            Some(b'"') if *is_first => {}
            Some(other) => return Err(self.unexpected(other, "a key or the end of an object")),
            None => return Err(self.ended()),
        }
        *is_first = false;
        match self.peek()? {
            Some(b'"') => {}
            Some(other) => return Err(self.unexpected(other, "a key")),
            None => return Err(self.ended()),
        }
        self.token.clear();
        self.read_string(true, MAX_KEY)?;
        let key = serde_json::from_slice(&self.token).map_err(|cause| self.error(cause))?;
        self.expect(b':')?;
        Ok(Some(key))
    }

    /// Reads a value as a whole.
    pub fn value<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.read_value(true)?;
        serde_json::from_slice(&self.token).map_err(|cause| self.error(cause))
    }

    /// Returns the text of a value.
    pub fn raw_value(&mut self) -> Result<Vec<u8>> {
        self.read_value(true)?;
        Ok(std::mem::take(&mut self.token))
    }

    /// Passes over a value of any size.
    pub fn skip_value(&mut self) -> Result<()> {
        self.read_value(false)
    }

    /// Fails unless only blanks are left.
    pub fn end(&mut self) -> Result<()> {
        match self.peek()? {
            None => Ok(()),
            Some(other) => Err(self.unexpected(other, "the end")),
        }
    }

    /// Returns an error with the place that was reached.
    pub fn error(&self, what: impl std::fmt::Display) -> Error {
        Error::bad_input(format!("byte {} of the dump: {what}", self.before + self.at as u64))
    }

    fn ended(&self) -> Error {
        self.error("it ends here: the dump is truncated")
    }

    fn unexpected(&self, found: u8, expected: &str) -> Error {
        self.error(format!("found {:?}, expected {expected}", char::from(found)))
    }

    fn expect(&mut self, wanted: u8) -> Result<()> {
        match self.peek()? {
            Some(found) if found == wanted => {
                self.at += 1;
                Ok(())
            }
            Some(other) => Err(self.unexpected(other, &format!("{:?}", char::from(wanted)))),
            None => Err(self.ended()),
        }
    }

    /// Returns the next byte that is not blank, without taking it.
    fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            while let Some(byte) = self.buffer.get(self.at) {
                if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                    return Ok(Some(*byte));
                }
                self.at += 1;
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Reads more; returns false at the end of the input.
    fn fill(&mut self) -> Result<bool> {
        self.before += self.buffer.len() as u64;
        self.buffer.resize(BUFFER, 0);
        self.at = 0;
        let read = loop {
            match self.input.read(&mut self.buffer) {
                Ok(read) => break read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.buffer.clear();
                    return Err(Error::bad_input(format!("cannot read the dump: {error}")));
                }
            }
        };
        self.buffer.truncate(read);
        Ok(read > 0)
    }

    /// Reads the value here into the token, or passes over it.
    fn read_value(&mut self, keep: bool) -> Result<()> {
        self.token.clear();
        let mut depth = 0usize;
        loop {
            let Some(byte) = self.peek()? else { return Err(self.ended()) };
            match byte {
                b'"' => self.read_string(keep, MAX_VALUE)?,
                b'{' | b'[' => {
                    self.keep(keep, byte)?;
                    depth += 1;
                }
                b'}' | b']' if depth > 0 => {
                    self.keep(keep, byte)?;
                    depth -= 1;
                }
                b',' | b':' if depth > 0 => self.keep(keep, byte)?,
                b'-' | b'0'..=b'9' | b'a'..=b'z' => self.read_word(keep)?,
                other => return Err(self.unexpected(other, "a value")),
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Reads a number, `true`, `false` or `null`.
    fn read_word(&mut self, keep: bool) -> Result<()> {
        loop {
            match self.buffer.get(self.at).copied() {
                Some(byte @ (b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'E')) => {
                    self.keep(keep, byte)?;
                }
                None if self.fill()? => {}
                _ => return Ok(()),
            }
        }
    }

    /// Reads a string with its quotes.
    fn read_string(&mut self, keep: bool, limit: usize) -> Result<()> {
        let (mut is_first, mut is_escaped) = (true, false);
        loop {
            if self.at == self.buffer.len() && !self.fill()? {
                return Err(self.ended());
            }
            let rest = &self.buffer[self.at..];
            let mut len = 0;
            let mut ended = false;
            for byte in rest {
                len += 1;
                if is_escaped {
                    is_escaped = false;
                } else if *byte == b'\\' {
                    is_escaped = true;
                } else if *byte == b'"' && !std::mem::take(&mut is_first) {
                    ended = true;
                    break;
                }
            }
            if keep {
                if self.token.len() + len > limit {
                    return Err(self.error(format!("a text of more than {limit} bytes")));
                }
                self.token.extend_from_slice(&rest[..len]);
            }
            self.at += len;
            if ended {
                return Ok(());
            }
        }
    }

    fn keep(&mut self, keep: bool, byte: u8) -> Result<()> {
        self.at += 1;
        if keep {
            if self.token.len() >= MAX_VALUE {
                return Err(self.error(format!("a value of more than {MAX_VALUE} bytes")));
            }
            self.token.push(byte);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// A reader that returns a few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let len = self.0.len().min(self.1).min(out.len());
            out[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }

    fn keys(json: &str, step: usize) -> Result<Vec<(String, Value)>> {
        let mut scanner = Scanner::new(Slow(json.as_bytes(), step));
        scanner.begin_object()?;
        let (mut found, mut is_first) = (Vec::new(), true);
        while let Some(key) = scanner.next_key(&mut is_first)? {
            found.push((key, scanner.value()?));
        }
        scanner.end()?;
        Ok(found)
    }

    #[test]
    fn an_object_is_read_key_by_key_whatever_the_size_of_reads() {
        let json = r#" { "a" : {"b":[1,-2.5e3,"x\"}"]} , "é\u0041" :"\\", "c":null,"d":true } "#;
        let expected: Value = serde_json::from_str(json).unwrap();
        for step in 1..json.len() {
            let found = keys(json, step).unwrap();
            assert_eq!(Value::Object(found.into_iter().collect()), expected, "{step}");
        }
    }

    #[test]
    fn values_are_skipped_whatever_they_hold() {
        let json = r#"{"a":{"b":["}",{"c":1}]},"d":2}"#;
        let mut scanner = Scanner::new(json.as_bytes());
        scanner.begin_object().unwrap();
        let mut is_first = true;
        scanner.next_key(&mut is_first).unwrap();
        scanner.skip_value().unwrap();
        assert_eq!(scanner.next_key(&mut is_first).unwrap().as_deref(), Some("d"));
        assert_eq!(scanner.value::<u32>().unwrap(), 2);
    }

    #[test]
    fn wrong_json_is_an_error_with_its_place() {
        for (json, what) in [
            ("", "truncated"),
            ("[]", "found '[', expected '{'"),
            ("{\"a\"", "truncated"),
            ("{\"a\":1", "truncated"),
            ("{\"a\":\"b", "truncated"),
            ("{a:1}", "expected a key"),
            ("{\"a\":1,}", "expected a key"),
            ("{\"a\":1 \"b\":2}", "expected a key or the end"),
            ("{,\"a\":1}", "expected a key or the end"),
            ("{\"a\" 1}", "expected ':'"),
            ("{\"a\":}", "expected a value"),
            ("{\"a\":01}", "invalid number"),
            ("{\"a\":[1}]}", "expected"),
            ("{\"a\":nul}", "EOF while parsing"),
            ("{\"a\":1}x", "expected the end"),
            ("{\"\\ud800\":1}", "byte"),
        ] {
            let error = keys(json, 7).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("byte "), "{json}: {error}");
        }
    }

    #[test]
    fn a_key_without_end_is_refused_before_it_fills_the_memory() {
        let json = format!("{{\"{}\":1}}", "x".repeat(10_000));
        assert!(keys(&json, 100).unwrap_err().to_string().contains("more than 4096 bytes"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_scanner_panic(json: String, step in 1usize..50) {
            let _ = keys(&json, step);
        }

        #[test]
        fn a_truncated_object_is_never_accepted(text: String, cut in 0usize..1000) {
            let json = serde_json::to_string(&serde_json::json!({"a": text, "b": [1, {}]})).unwrap();
            let cut = json.floor_char_boundary(cut % json.len());
            prop_assert!(keys(&json[..cut], 3).is_err());
        }
    }
}
