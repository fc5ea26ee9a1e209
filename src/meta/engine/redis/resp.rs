//! Answers as they come over the wire (RESP, version 2): where one ends, and what it says.
//!
//! Nothing is believed that has not arrived: a length is compared with what an answer can have
//! before anything waits for that many bytes, and no memory is taken for it.

use redis::{Value, parse_redis_value};

/// Lists in lists; scripts answer two or three.
const DEEPEST: usize = 32;

/// Bytes of one answer. The largest are listings of what a whole volume has of something, such as
/// its quotas, and values of some hundred KiB.
pub(super) const LARGEST: usize = 32 << 20;

/// Values of one answer: each takes more memory than it takes bytes on the wire.
const MOST_VALUES: usize = 1_000_000;

/// Bytes of a line: an error, a status, a number or a length.
const LONGEST_LINE: usize = 16 << 10;

/// Looks for the end of an answer, and goes on where it stopped when more has arrived.
pub(super) struct Scan {
    /// How far it has looked.
    at: usize,
    /// Values that are still to come of each list that has begun, innermost last.
    open: Vec<usize>,
    /// Values so far, and those that lists have announced.
    values: usize,
}

impl Scan {
    pub fn new() -> Self {
        Self { at: 0, open: vec![1], values: 1 }
    }

    /// Begins with the next answer.
    pub fn restart(&mut self) {
        self.at = 0;
        self.open.clear();
        self.open.push(1);
        self.values = 1;
    }

    /// Where the answer that `raw` begins with ends; none if it has not arrived whole.
    pub fn end(&mut self, raw: &[u8]) -> Result<Option<usize>, String> {
        while let Some(missing) = self.open.last_mut() {
            if *missing == 0 {
                self.open.pop();
                continue;
            }
            let Some(head) = Head::read(raw, self.at)? else { return Ok(None) };
            let (end, more) = match head.kind {
                b'+' | b'-' | b':' => (head.end, 0),
                b'$' => (past_text(&head)?, 0),
                b'*' => (head.end, head.count()?.unwrap_or(0)),
                other => return Err(format!("an answer begins with byte {other}")),
            };
            self.values = self.values.saturating_add(more);
            if end > LARGEST {
                return Err(format!("an answer of more than {LARGEST} bytes"));
            }
            if self.values > MOST_VALUES {
                return Err(format!("an answer of more than {MOST_VALUES} values"));
            }
            if end > raw.len() {
                return Ok(None);
            }
            self.at = end;
            *missing -= 1;
            if more > 0 {
                self.open.push(more);
            }
            if self.open.len() > DEEPEST {
                return Err("an answer of too many lists in lists".to_owned());
            }
        }
        Ok(Some(self.at))
    }
}

/// What a whole answer says.
pub(super) fn value(raw: &[u8]) -> Result<Value, String> {
    Ok(read(raw, 0, DEEPEST)?.0)
}

fn read(raw: &[u8], at: usize, depth: usize) -> Result<(Value, usize), String> {
    let head = Head::read(raw, at)?.ok_or("an answer breaks off")?;
    Ok(match head.kind {
        b'+' if head.line == b"OK" => (Value::Okay, head.end),
        b'+' => (Value::SimpleString(head.text()?.to_owned()), head.end),
        b':' => (Value::Int(head.number()?), head.end),
        b'$' => match head.count()? {
            None => (Value::Nil, head.end),
            Some(len) => {
                let end = past_text(&head)?;
                let text = raw.get(head.end..head.end + len).ok_or("an answer breaks off")?;
                if raw.get(head.end + len..end) != Some(b"\r\n") {
                    return Err("a text is longer than announced".to_owned());
                }
                let mut copy = Vec::new();
                copy.try_reserve_exact(len).map_err(|_| "there is no memory for an answer")?;
                copy.extend_from_slice(text);
                (Value::BulkString(copy), end)
            }
        },
        b'*' => match head.count()? {
            None => (Value::Nil, head.end),
            Some(count) => {
                let depth = depth.checked_sub(1).ok_or("an answer of too many lists in lists")?;
                let (mut items, mut end) = (Vec::new(), head.end);
                // It has arrived whole, so there are as many.
                items.try_reserve_exact(count).map_err(|_| "there is no memory for an answer")?;
                for _ in 0..count {
                    let (item, past) = read(raw, end, depth)?;
                    items.push(item);
                    end = past;
                }
                (Value::Array(items), end)
            }
        },
        // The library alone can make an error of the server; they are rare.
        _ => {
            let error = parse_redis_value(&raw[at..head.end]).map_err(|error| error.to_string())?;
            (error, head.end)
        }
    })
}

/// The first line of a value: its kind, and a text, a number or a length.
struct Head<'a> {
    kind: u8,
    line: &'a [u8],
    /// Where the next line begins.
    end: usize,
}

impl<'a> Head<'a> {
    fn read(raw: &'a [u8], at: usize) -> Result<Option<Self>, String> {
        let Some((&kind, rest)) = raw.get(at..).and_then(<[u8]>::split_first) else {
            return Ok(None);
        };
        let near = &rest[..rest.len().min(LONGEST_LINE)];
        let Some(len) = near.iter().position(|&byte| byte == b'\n') else {
            return match near.len() {
                LONGEST_LINE => Err(format!("a line of more than {LONGEST_LINE} bytes")),
                _ => Ok(None),
            };
        };
        match rest[..len].strip_suffix(b"\r") {
            Some(line) => Ok(Some(Self { kind, line, end: at + 1 + len + 1 })),
            None => Err("an answer has a line without its end".to_owned()),
        }
    }

    fn text(&self) -> Result<&'a str, String> {
        std::str::from_utf8(self.line).map_err(|_| "an answer that is not text".to_owned())
    }

    fn number(&self) -> Result<i64, String> {
        let text = self.text()?;
        text.parse().map_err(|_| {
            let shown: String = text.chars().take(40).collect();
            format!("an answer of {shown:?} instead of a number")
        })
    }

    /// A length; none stands for nothing at all.
    fn count(&self) -> Result<Option<usize>, String> {
        match self.number()? {
            -1 => Ok(None),
            count => match usize::try_from(count) {
                Ok(count) => Ok(Some(count)),
                Err(_) => Err(format!("an answer of length {count}")),
            },
        }
    }
}

/// Where the text behind a head ends, with the end of its line.
fn past_text(head: &Head<'_>) -> Result<usize, String> {
    match head.count()? {
        None => Ok(head.end),
        Some(len) => len
            .checked_add(head.end)
            .and_then(|end| end.checked_add(2))
            .ok_or_else(|| format!("an answer of length {len}")),
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
    fn every_kind_of_answer_is_read_as_the_library_reads_it() {
        let answers = [
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
        for raw in answers {
            let raw = raw.as_bytes();
            assert_eq!(Scan::new().end(raw), Ok(Some(raw.len())), "{}", raw.escape_ascii());
            assert_eq!(value(raw).unwrap(), parse_redis_value(raw).unwrap());
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for raw in ["!\r\n", "$x\r\n", "$-2\r\n", "*-7\r\n", "$18446744073709551616\r\n", "+a\n"] {
            assert!(Scan::new().end(raw.as_bytes()).is_err(), "{raw:?}");
        }
        assert!(value(":x\r\n".as_bytes()).is_err());
        let deep = "*1\r\n".repeat(100) + ":1\r\n";
        assert!(Scan::new().end(deep.as_bytes()).is_err());
        assert!(value(deep.as_bytes()).is_err());
    }

    #[test]
    fn an_answer_beyond_its_bounds_is_refused_as_soon_as_it_says_so() {
        let refused = |raw: &str| Scan::new().end(raw.as_bytes()).unwrap_err();
        for length in [i64::MAX, 1 << 40, i64::try_from(LARGEST).unwrap()] {
            assert!(refused(&format!("${length}\r\n")).contains("bytes"), "{length}");
        }
        for count in [1_000_000_000, i64::MAX] {
            assert!(refused(&format!("*{count}\r\n")).contains("values"), "{count}");
        }
        // Lists that are each short enough.
        let many = format!("*900000\r\n*900000\r\n{}", ":1\r\n".repeat(10));
        assert!(refused(&many).contains("values"));
        let many = format!("*2\r\n${0}\r\n{1}\r\n${0}\r\n", 17 << 20, "x".repeat(17 << 20));
        assert!(refused(&many).contains("bytes"));
        assert!(refused(&"*1\r\n".repeat(1_000_000)).contains("lists in lists"));
        assert!(refused(&format!("+{}", "x".repeat(1 << 20))).contains("line"));
        // The largest that there may be is waited for.
        let largest = format!("${}\r\n", LARGEST - 13);
        assert_eq!(Scan::new().end(largest.as_bytes()), Ok(None));
    }

    #[test]
    fn an_answer_ends_where_the_next_begins() {
        let raw = b"*2\r\n$1\r\na\r\n:1\r\n:7\r\n";
        let end = Scan::new().end(raw).unwrap().unwrap();
        assert_eq!(value(&raw[..end]).unwrap(), Value::Array(vec![text("a"), Value::Int(1)]));
        assert_eq!(&raw[end..], b":7\r\n");
    }

    fn any_answer() -> impl Strategy<Value = Vec<u8>> {
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
        fn an_answer_in_pieces_is_found_whole_and_not_before(
            raw in any_answer(), step in 1..20_usize
        ) {
            let mut scan = Scan::new();
            for len in (0..raw.len()).step_by(step) {
                prop_assert_eq!(scan.end(&raw[..len]), Ok(None));
            }
            prop_assert_eq!(scan.end(&raw), Ok(Some(raw.len())));
            prop_assert_eq!(value(&raw).unwrap(), parse_redis_value(&raw).unwrap());
        }

        #[test]
        fn noise_never_panics(raw in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Scan::new().end(&raw);
            let _ = value(&raw);
        }
    }

    /// An answer of which some bytes were replaced, put in, left out or cut off.
    fn mutated() -> impl Strategy<Value = Vec<u8>> {
        let edit = (any::<prop::sample::Index>(), any::<u8>(), 0..4_u8);
        (any_answer(), prop::collection::vec(edit, 1..8)).prop_map(|(mut raw, edits)| {
            for (at, byte, how) in edits {
                let at = at.index(raw.len() + 1);
                // Digits and line ends are what matters.
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

        /// However it is cut into pieces; and nothing is waited for that goes beyond the bounds.
        #[test]
        fn mutated_answers_end_or_are_refused(raw in mutated(), step in 1..50_usize) {
            let mut scan = Scan::new();
            for len in (0..raw.len()).step_by(step).chain([raw.len()]) {
                match scan.end(&raw[..len]) {
                    Ok(Some(end)) => {
                        prop_assert!(end <= len);
                        let _ = value(&raw[..end]);
                        break;
                    }
                    Ok(None) => prop_assert!(scan.at <= len && scan.values <= MOST_VALUES),
                    Err(_) => break,
                }
            }
        }
    }
}
