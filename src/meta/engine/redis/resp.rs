//! Answers as they come over the wire (RESP, version 2): where one ends, and what it says.

use redis::{Value, parse_redis_value};

/// Lists in lists; scripts answer two or three.
const DEEPEST: usize = 32;

/// Looks for the end of an answer, and goes on where it stopped when more has arrived.
pub(super) struct Scan {
    /// How far it has looked.
    at: usize,
    /// Values that are still to come.
    missing: usize,
}

impl Scan {
    pub fn new() -> Self {
        Self { at: 0, missing: 1 }
    }

    /// Where the answer that `raw` begins with ends; none if it has not arrived whole.
    pub fn end(&mut self, raw: &[u8]) -> Result<Option<usize>, String> {
        while self.missing > 0 {
            let Some(head) = Head::read(raw, self.at)? else { return Ok(None) };
            let (end, more) = match head.kind {
                b'+' | b'-' | b':' => (head.end, 0),
                b'$' => (past_text(&head)?, 0),
                b'*' => (head.end, head.count()?.unwrap_or(0)),
                other => return Err(format!("an answer begins with byte {other}")),
            };
            if end > raw.len() {
                return Ok(None);
            }
            self.at = end;
            self.missing = (self.missing - 1).checked_add(more).ok_or("an endless answer")?;
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
                (Value::BulkString(text.to_vec()), end)
            }
        },
        b'*' => match head.count()? {
            None => (Value::Nil, head.end),
            Some(count) => {
                let depth = depth.checked_sub(1).ok_or("an answer of too many lists in lists")?;
                let (mut items, mut end) = (Vec::with_capacity(count), head.end);
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
        let Some(len) = rest.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
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
        text.parse().map_err(|_| format!("an answer of {text:?} instead of a number"))
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
        assert!(Scan::new().end(format!("${}\r\n", i64::MAX).as_bytes()).unwrap().is_none());
        assert!(value(":x\r\n".as_bytes()).is_err());
        let deep = "*1\r\n".repeat(100) + ":1\r\n";
        assert_eq!(Scan::new().end(deep.as_bytes()), Ok(Some(deep.len())));
        assert!(value(deep.as_bytes()).is_err());
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
}
