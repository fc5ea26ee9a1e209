//! The Redis protocol (RESP, version 2): finds the end of a reply, and parses it.
//!
//! The server is not trusted. A length that it announces is checked against the limits before
//! anything waits for that many bytes, and memory is allocated only for bytes that have arrived.

use redis::{Value, parse_redis_value};

/// Nesting of lists. Scripts return two or three levels.
const MAX_DEPTH: usize = 32;

/// Bytes of one reply. The largest are listings over a whole volume, such as all quotas, and values
/// of some hundred KiB.
pub(super) const MAX_REPLY_BYTES: usize = 32 << 20;

/// Values in one reply. In memory, each takes more than its bytes in the protocol.
const MAX_VALUES: usize = 1_000_000;

/// Bytes of a line: an error, a status, a number or a length.
const MAX_LINE_BYTES: usize = 16 << 10;

/// Finds the end of a reply, and resumes when more bytes have arrived.
pub(super) struct Scan {
    /// How far it has scanned.
    at: usize,
    /// Values that are missing in each open list, innermost last.
    open: Vec<usize>,
    /// Values so far, including those that lists have announced.
    values: usize,
}

impl Scan {
    pub fn new() -> Self {
        Self { at: 0, open: vec![1], values: 1 }
    }

    /// Starts over with the next reply.
    pub fn restart(&mut self) {
        self.at = 0;
        self.open.clear();
        self.open.push(1);
        self.values = 1;
    }

    /// Returns where the reply at the start of `raw` ends; none if it has not arrived completely.
    pub fn end(&mut self, raw: &[u8]) -> Result<Option<usize>, String> {
        while let Some(missing) = self.open.last_mut() {
            if *missing == 0 {
                self.open.pop();
                continue;
            }
            let Some(head) = Head::read(raw, self.at)? else { return Ok(None) };
            let (end, more) = match head.kind {
                b'+' | b'-' | b':' => (head.end, 0),
                b'$' => (string_end(&head)?, 0),
                b'*' => (head.end, head.count()?.unwrap_or(0)),
                other => return Err(format!("a reply starts with byte {other}")),
            };
            self.values = self.values.saturating_add(more);
            if end > MAX_REPLY_BYTES {
                return Err(format!("a reply of more than {MAX_REPLY_BYTES} bytes"));
            }
            if self.values > MAX_VALUES {
                return Err(format!("a reply of more than {MAX_VALUES} values"));
            }
            if end > raw.len() {
                return Ok(None);
            }
            self.at = end;
            *missing -= 1;
            if more > 0 {
                self.open.push(more);
            }
            if self.open.len() > MAX_DEPTH {
                return Err("a reply with too many nested lists".to_owned());
            }
        }
        Ok(Some(self.at))
    }
}

/// Parses a complete reply.
pub(super) fn parse(raw: &[u8]) -> Result<Value, String> {
    Ok(parse_at(raw, 0, MAX_DEPTH)?.0)
}

/// Parses the value at a position, and returns where the next one starts.
fn parse_at(raw: &[u8], at: usize, depth: usize) -> Result<(Value, usize), String> {
    let head = Head::read(raw, at)?.ok_or("a reply is truncated")?;
    Ok(match head.kind {
        b'+' if head.line == b"OK" => (Value::Okay, head.end),
        b'+' => (Value::SimpleString(head.text()?.to_owned()), head.end),
        b':' => (Value::Int(head.number()?), head.end),
        b'$' => match head.count()? {
            None => (Value::Nil, head.end),
            Some(len) => {
                let end = string_end(&head)?;
                let text = raw.get(head.end..head.end + len).ok_or("a reply is truncated")?;
                if raw.get(head.end + len..end) != Some(b"\r\n") {
                    return Err("a string is longer than announced".to_owned());
                }
                let mut copy = Vec::new();
                copy.try_reserve_exact(len).map_err(|_| "out of memory for a reply")?;
                copy.extend_from_slice(text);
                (Value::BulkString(copy), end)
            }
        },
        b'*' => match head.count()? {
            None => (Value::Nil, head.end),
            Some(count) => {
                let depth = depth.checked_sub(1).ok_or("a reply with too many nested lists")?;
                let (mut items, mut end) = (Vec::new(), head.end);
                // The reply has arrived completely, so the count is real.
                items.try_reserve_exact(count).map_err(|_| "out of memory for a reply")?;
                for _ in 0..count {
                    let (item, past) = parse_at(raw, end, depth)?;
                    items.push(item);
                    end = past;
                }
                (Value::Array(items), end)
            }
        },
        // Only the library can construct a server error. They are rare.
        _ => {
            let error = parse_redis_value(&raw[at..head.end]).map_err(|error| error.to_string())?;
            (error, head.end)
        }
    })
}

/// The first line of a value: its kind, and a string, a number or a length.
struct Head<'a> {
    kind: u8,
    line: &'a [u8],
    /// Where the next line starts.
    end: usize,
}

impl<'a> Head<'a> {
    fn read(raw: &'a [u8], at: usize) -> Result<Option<Self>, String> {
        let Some((&kind, rest)) = raw.get(at..).and_then(<[u8]>::split_first) else {
            return Ok(None);
        };
        let near = &rest[..rest.len().min(MAX_LINE_BYTES)];
        let Some(len) = near.iter().position(|&byte| byte == b'\n') else {
            return match near.len() {
                MAX_LINE_BYTES => Err(format!("a line of more than {MAX_LINE_BYTES} bytes")),
                _ => Ok(None),
            };
        };
        match rest[..len].strip_suffix(b"\r") {
            Some(line) => Ok(Some(Self { kind, line, end: at + 1 + len + 1 })),
            None => Err("a line does not end with CR LF".to_owned()),
        }
    }

    fn text(&self) -> Result<&'a str, String> {
        std::str::from_utf8(self.line).map_err(|_| "a reply that is not UTF-8".to_owned())
    }

    fn number(&self) -> Result<i64, String> {
        let text = self.text()?;
        text.parse().map_err(|_| {
            let shown: String = text.chars().take(40).collect();
            format!("{shown:?} instead of a number")
        })
    }

    /// Returns a length; none stands for a null value.
    fn count(&self) -> Result<Option<usize>, String> {
        match self.number()? {
            -1 => Ok(None),
            count => match usize::try_from(count) {
                Ok(count) => Ok(Some(count)),
                Err(_) => Err(format!("a reply of length {count}")),
            },
        }
    }
}

/// Returns where the string after a head ends, including its CR LF.
fn string_end(head: &Head<'_>) -> Result<usize, String> {
    match head.count()? {
        None => Ok(head.end),
        Some(len) => len
            .checked_add(head.end)
            .and_then(|end| end.checked_add(2))
            .ok_or_else(|| format!("a reply of length {len}")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(raw: &str) -> Value {
        Value::BulkString(raw.as_bytes().to_vec())
    }

    #[test]
    fn every_kind_of_reply_is_parsed_as_the_library_parses_it() {
        let replies = [
            "+OK\r\n",
            "+PONG\r\n",
            ":-42\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "$7\r\na\r\nb\r\nc\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*3\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n+OK\r\n",
            "-ERR no such thing\r\n",
            "-NOSCRIPT No matching script.\r\n",
            "-ODD\r\n",
        ];
        for raw in replies {
            let raw = raw.as_bytes();
            assert_eq!(Scan::new().end(raw), Ok(Some(raw.len())), "{}", raw.escape_ascii());
            assert_eq!(parse(raw).unwrap(), parse_redis_value(raw).unwrap());
        }
    }

    #[test]
    fn malformed_replies_are_refused() {
        for raw in ["!\r\n", "$x\r\n", "$-2\r\n", "*-7\r\n", "$18446744073709551616\r\n", "+a\n"] {
            assert!(Scan::new().end(raw.as_bytes()).is_err(), "{raw:?}");
        }
        assert!(parse(":x\r\n".as_bytes()).is_err());
        let deep = "*1\r\n".repeat(100) + ":1\r\n";
        assert!(Scan::new().end(deep.as_bytes()).is_err());
        assert!(parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn a_reply_above_a_limit_is_refused_as_soon_as_it_is_announced() {
        let refused = |raw: &str| Scan::new().end(raw.as_bytes()).unwrap_err();
        for length in [i64::MAX, 1 << 40, i64::try_from(MAX_REPLY_BYTES).unwrap()] {
            assert!(refused(&format!("${length}\r\n")).contains("bytes"), "{length}");
        }
        for count in [1_000_000_000, i64::MAX] {
            assert!(refused(&format!("*{count}\r\n")).contains("values"), "{count}");
        }
        // Each list alone is short enough.
        let many = format!("*900000\r\n*900000\r\n{}", ":1\r\n".repeat(10));
        assert!(refused(&many).contains("values"));
        let many = format!("*2\r\n${0}\r\n{1}\r\n${0}\r\n", 17 << 20, "x".repeat(17 << 20));
        assert!(refused(&many).contains("bytes"));
        assert!(refused(&"*1\r\n".repeat(1_000_000)).contains("nested lists"));
        assert!(refused(&format!("+{}", "x".repeat(1 << 20))).contains("line"));
        // A reply of the largest allowed size is waited for.
        let largest = format!("${}\r\n", MAX_REPLY_BYTES - 13);
        assert_eq!(Scan::new().end(largest.as_bytes()), Ok(None));
    }

    #[test]
    fn a_reply_ends_where_the_next_starts() {
        let raw = b"*2\r\n$1\r\na\r\n:1\r\n:7\r\n";
        let end = Scan::new().end(raw).unwrap().unwrap();
        assert_eq!(parse(&raw[..end]).unwrap(), Value::Array(vec![text("a"), Value::Int(1)]));
        assert_eq!(&raw[end..], b":7\r\n");
    }

    fn any_reply() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            Just(b"$-1\r\n".to_vec()),
            Just(b"+OK\r\n".to_vec()),
            Just(b"-ERR odd\r\n".to_vec()),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(|text| {
                [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat()
            }),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop::collection::vec(inner, 0..6).prop_map(|items| {
                [format!("*{}\r\n", items.len()).as_bytes(), &items.concat()].concat()
            })
        })
    }

    proptest! {
        #[test]
        fn a_reply_in_pieces_is_found_once_it_is_complete(
            raw in any_reply(), step in 1..20_usize
        ) {
            let mut scan = Scan::new();
            for len in (0..raw.len()).step_by(step) {
                prop_assert_eq!(scan.end(&raw[..len]), Ok(None));
            }
            prop_assert_eq!(scan.end(&raw), Ok(Some(raw.len())));
            prop_assert_eq!(parse(&raw).unwrap(), parse_redis_value(&raw).unwrap());
        }

        #[test]
        fn random_bytes_never_panic(raw in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Scan::new().end(&raw);
            let _ = parse(&raw);
        }
    }

    /// A reply with some bytes replaced, inserted, removed or truncated.
    fn mutated() -> impl Strategy<Value = Vec<u8>> {
        let edit = (any::<prop::sample::Index>(), any::<u8>(), 0..4_u8);
        (any_reply(), prop::collection::vec(edit, 1..8)).prop_map(|(mut raw, edits)| {
            for (at, byte, how) in edits {
                let at = at.index(raw.len() + 1);
                // Mostly digits, kinds and line ends: those decide how a reply is parsed.
                let byte =
                    if byte < 128 { b"0123456789-$*+:\r\n"[usize::from(byte % 17)] } else { byte };
                match how {
                    0 if at < raw.len() => raw[at] = byte,
                    1 if at < raw.len() => drop(raw.remove(at)),
                    2 => raw.truncate(at),
                    _ => raw.insert(at, byte),
                }
            }
            raw
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

        /// For every way to split the reply; and a reply above the limits is never waited for.
        #[test]
        fn mutated_replies_end_or_are_refused(raw in mutated(), step in 1..50_usize) {
            let mut scan = Scan::new();
            for len in (0..raw.len()).step_by(step).chain([raw.len()]) {
                match scan.end(&raw[..len]) {
                    Ok(Some(end)) => {
                        prop_assert!(end <= len);
                        let _ = parse(&raw[..end]);
                        break;
                    }
                    Ok(None) => prop_assert!(scan.at <= len && scan.values <= MAX_VALUES),
                    Err(_) => break,
                }
            }
        }
    }
}
