//! The messages between the keeper and its clients, version 1. This format never changes: an old keeper
//! serves new clients. A later version has another number in its hello.
//!
//! Each message is one packet of a `SOCK_SEQPACKET` socket, little-endian:
//!
//! ```text
//! kind u8 | flag u8 | count u16 | tag u32 | content
//! ```
//!
//! `tag` is that of the request which a reply belongs to, and 0 in an event. `count` is the number of
//! descriptors that travel with the packet, or the number of names in the content. A text is a length of
//! two bytes and that many bytes of UTF-8. Nothing may follow the content.

use std::fmt;

/// The greatest size of a packet, in bytes.
pub const MAX_PACKET: usize = 4096;
/// The greatest number of descriptors under one name.
pub const MAX_DESCRIPTORS: usize = 4;
/// The greatest length of a name, in bytes.
pub const MAX_NAME: usize = 255;
/// The greatest length of any other text, in bytes.
pub const MAX_TEXT: usize = 2048;
/// The version of this protocol.
pub const VERSION: u16 = 1;

const MAGIC: &[u8; 4] = b"JFSK";
const HEADER: usize = 8;

/// What a client sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Must come first. `instance` identifies the client in messages for people, such as a pod's UID.
    Hello { version: u16, instance: String },
    /// Holds the descriptors of this packet under a name, instead of those held before.
    Put { name: String, count: u16 },
    /// Releases a name. One that is not held is released already.
    Drop { name: String },
    /// Asks for the names after this one, in order.
    List { after: String },
    /// Asks for the descriptors under a name.
    Get { name: String },
    /// "I am ready to own." A spare is considered last.
    Ask { spare: bool },
    /// The owner has stopped serving, as it was asked to.
    Yielded,
    /// Does not want to own any more, and says why.
    Decline { reason: String },
    /// Asks a supervising keeper to replace the server by this program; empty: by the same file.
    Upgrade { program: String },
}

/// What the keeper sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The request has been carried out.
    Done,
    /// Names in order; `more` follow after the last.
    Names { names: Vec<String>, more: bool },
    /// The descriptors of this packet are those under the name.
    Held { count: u16 },
    /// Nothing is held under the name.
    Absent,
    /// The request has not been carried out.
    Failed { reason: String },
    /// Event: stop serving, then say [`Request::Yielded`].
    Yield,
    /// Event: the receiver is the owner.
    Yours,
    /// Event: the owner did not yield; the receiver does not wait any more.
    Refused,
}

/// A packet that is not a message. The text says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

/// Returns whether a name may be used.
pub fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control)
}

impl Request {
    pub fn encode(&self, tag: u32) -> Vec<u8> {
        match self {
            Self::Hello { version, instance } => {
                let mut packet = header(1, 0, 0, tag);
                packet.extend(MAGIC);
                packet.extend(version.to_le_bytes());
                text(&mut packet, instance, MAX_NAME);
                packet
            }
            Self::Put { name, count } => with_text(header(2, 0, *count, tag), name),
            Self::Drop { name } => with_text(header(3, 0, 0, tag), name),
            Self::List { after } => with_text(header(4, 0, 0, tag), after),
            Self::Get { name } => with_text(header(5, 0, 0, tag), name),
            Self::Ask { spare } => header(6, u8::from(*spare), 0, tag),
            Self::Yielded => header(7, 0, 0, tag),
            Self::Decline { reason } => with_text(header(8, 0, 0, tag), reason),
            Self::Upgrade { program } => with_text(header(9, 0, 0, tag), program),
        }
    }

    /// Decodes a packet that came with `descriptors` descriptors.
    pub fn decode(packet: &[u8], descriptors: usize) -> Result<(Self, u32), Malformed> {
        let mut reader = Reader::new(packet)?;
        let request = match reader.kind {
            1 => {
                if reader.take(4)? != MAGIC {
                    return Err(Malformed("the hello is not that of a client"));
                }
                let version = reader.u16()?;
                let instance = reader.text(MAX_NAME)?;
                // What follows in a later version is for those who know it.
                if version != VERSION {
                    reader.rest = &[];
                }
                Self::Hello { version, instance }
            }
            2 => Self::Put { name: reader.name()?, count: reader.count },
            3 => Self::Drop { name: reader.name()? },
            4 => Self::List { after: reader.text(MAX_NAME)? },
            5 => Self::Get { name: reader.name()? },
            6 => Self::Ask { spare: reader.flag()? },
            7 => Self::Yielded,
            8 => Self::Decline { reason: reader.text(MAX_TEXT)? },
            9 => Self::Upgrade { program: reader.text(MAX_TEXT)? },
            _ => return Err(Malformed("a request of unknown kind")),
        };
        let announced = match &request {
            Self::Put { count, .. } if (1..=MAX_DESCRIPTORS).contains(&usize::from(*count)) => {
                usize::from(*count)
            }
            Self::Put { .. } => {
                return Err(Malformed("a put without descriptors, or with too many"));
            }
            _ => 0,
        };
        if descriptors != announced {
            return Err(Malformed("another number of descriptors than announced"));
        }
        let tag = reader.tag;
        reader.end()?;
        Ok((request, tag))
    }
}

impl Answer {
    pub fn encode(&self, tag: u32) -> Vec<u8> {
        match self {
            Self::Done => header(64, 0, 0, tag),
            Self::Names { names, more } => {
                let count = u16::try_from(names.len()).unwrap_or(u16::MAX);
                let mut packet = header(65, u8::from(*more), count, tag);
                for name in names {
                    text(&mut packet, name, MAX_NAME);
                }
                packet
            }
            Self::Held { count } => header(66, 0, *count, tag),
            Self::Absent => header(67, 0, 0, tag),
            Self::Failed { reason } => with_text(header(68, 0, 0, tag), reason),
            Self::Yield => header(80, 0, 0, tag),
            Self::Yours => header(81, 0, 0, tag),
            Self::Refused => header(82, 0, 0, tag),
        }
    }

    /// Decodes a packet that came with `descriptors` descriptors.
    pub fn decode(packet: &[u8], descriptors: usize) -> Result<(Self, u32), Malformed> {
        let mut reader = Reader::new(packet)?;
        let answer = match reader.kind {
            64 => Self::Done,
            65 => {
                let more = reader.flag()?;
                let names = (0..reader.count).map(|_| reader.name()).collect::<Result<_, _>>()?;
                Self::Names { names, more }
            }
            66 => Self::Held { count: reader.count },
            67 => Self::Absent,
            68 => Self::Failed { reason: reader.text(MAX_TEXT)? },
            80 => Self::Yield,
            81 => Self::Yours,
            82 => Self::Refused,
            _ => return Err(Malformed("an answer of unknown kind")),
        };
        let announced = if let Self::Held { count } = &answer { usize::from(*count) } else { 0 };
        if descriptors != announced {
            return Err(Malformed("another number of descriptors than announced"));
        }
        let tag = reader.tag;
        reader.end()?;
        Ok((answer, tag))
    }

    /// Returns as many of the names as fit into one packet.
    pub fn page<'a>(names: impl Iterator<Item = &'a String>) -> Self {
        let mut page = Vec::new();
        let mut size = HEADER;
        for name in names {
            size += 2 + name.len();
            if size > MAX_PACKET {
                return Self::Names { names: page, more: true };
            }
            page.push(name.clone());
        }
        Self::Names { names: page, more: false }
    }
}

fn header(kind: u8, flag: u8, count: u16, tag: u32) -> Vec<u8> {
    let mut packet = vec![kind, flag];
    packet.extend(count.to_le_bytes());
    packet.extend(tag.to_le_bytes());
    packet
}

fn with_text(mut packet: Vec<u8>, content: &str) -> Vec<u8> {
    text(&mut packet, content, MAX_TEXT);
    packet
}

/// Appends a text, cut to `limit` bytes.
fn text(packet: &mut Vec<u8>, content: &str, limit: usize) {
    let content = &content[..content.floor_char_boundary(limit)];
    packet.extend(u16::try_from(content.len()).unwrap_or(u16::MAX).to_le_bytes());
    packet.extend(content.as_bytes());
}

struct Reader<'a> {
    kind: u8,
    flag: u8,
    count: u16,
    tag: u32,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(packet: &'a [u8]) -> Result<Self, Malformed> {
        match packet {
            [kind, flag, c0, c1, t0, t1, t2, t3, rest @ ..] if packet.len() <= MAX_PACKET => {
                Ok(Self {
                    kind: *kind,
                    flag: *flag,
                    count: u16::from_le_bytes([*c0, *c1]),
                    tag: u32::from_le_bytes([*t0, *t1, *t2, *t3]),
                    rest,
                })
            }
            _ => Err(Malformed("a packet that is too short or too long")),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or(Malformed("a packet that ends early"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        match self.take(2)? {
            [low, high] => Ok(u16::from_le_bytes([*low, *high])),
            _ => Err(Malformed("a packet that ends early")),
        }
    }

    fn flag(&self) -> Result<bool, Malformed> {
        match self.flag {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag that is neither 0 nor 1")),
        }
    }

    fn text(&mut self, limit: usize) -> Result<String, Malformed> {
        let length = usize::from(self.u16()?);
        if length > limit {
            return Err(Malformed("a text that is too long"));
        }
        let bytes = self.take(length)?;
        let text = std::str::from_utf8(bytes).map_err(|_| Malformed("a text that is not UTF-8"))?;
        Ok(text.to_owned())
    }

    fn name(&mut self) -> Result<String, Malformed> {
        let name = self.text(MAX_NAME)?;
        if is_name(&name) {
            Ok(name)
        } else {
            Err(Malformed("a name that is empty or unprintable"))
        }
    }

    fn end(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed("bytes after the content")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<(Request, usize)> {
        let name = || "n".repeat(MAX_NAME);
        vec![
            (Request::Hello { version: VERSION, instance: "pod-1".into() }, 0),
            (Request::Put { name: name(), count: 3 }, 3),
            (Request::Drop { name: "a".into() }, 0),
            (Request::List { after: String::new() }, 0),
            (Request::Get { name: name() }, 0),
            (Request::Ask { spare: true }, 0),
            (Request::Ask { spare: false }, 0),
            (Request::Yielded, 0),
            (Request::Decline { reason: "ä".repeat(MAX_TEXT / 2) }, 0),
            (Request::Upgrade { program: "/usr/bin/x".into() }, 0),
        ]
    }

    fn answers() -> Vec<(Answer, usize)> {
        vec![
            (Answer::Done, 0),
            (Answer::Names { names: vec!["a".into(), "b".into()], more: true }, 0),
            (Answer::Held { count: 2 }, 2),
            (Answer::Absent, 0),
            (Answer::Failed { reason: "no".into() }, 0),
            (Answer::Yield, 0),
            (Answer::Yours, 0),
            (Answer::Refused, 0),
        ]
    }

    #[test]
    fn messages_survive_encoding() {
        for (request, descriptors) in requests() {
            let packet = request.encode(7);
            assert!(packet.len() <= MAX_PACKET);
            assert_eq!(Request::decode(&packet, descriptors), Ok((request, 7)));
        }
        for (answer, descriptors) in answers() {
            assert_eq!(Answer::decode(&answer.encode(9), descriptors), Ok((answer, 9)));
        }
    }

    #[test]
    fn the_bytes_of_version_1_never_change() {
        let hello = Request::Hello { version: 1, instance: "ab".into() };
        assert_eq!(hello.encode(5), b"\x01\0\0\0\x05\0\0\0JFSK\x01\0\x02\0ab");
        let put = Request::Put { name: "x".into(), count: 3 };
        assert_eq!(put.encode(0x0102), b"\x02\0\x03\0\x02\x01\0\0\x01\0x");
        assert_eq!(Request::Ask { spare: true }.encode(1), b"\x06\x01\0\0\x01\0\0\0");
        assert_eq!(Request::Yielded.encode(1), b"\x07\0\0\0\x01\0\0\0");
        let names = Answer::Names { names: vec!["x".into()], more: false };
        assert_eq!(names.encode(1), b"A\0\x01\0\x01\0\0\0\x01\0x");
        assert_eq!(Answer::Yours.encode(0), b"Q\0\0\0\0\0\0\0");
    }

    #[test]
    fn a_prefix_of_a_message_is_refused_and_so_is_a_longer_one() {
        for (request, descriptors) in requests() {
            let packet = request.encode(7);
            for length in 0..packet.len() {
                Request::decode(&packet[..length], descriptors).unwrap_err();
            }
            Request::decode(&[&packet[..], &[0]].concat(), descriptors).unwrap_err();
            Request::decode(&packet, descriptors + 1).unwrap_err();
        }
        for (answer, descriptors) in answers() {
            let packet = answer.encode(7);
            for length in 0..packet.len() {
                Answer::decode(&packet[..length], descriptors).unwrap_err();
            }
            Answer::decode(&packet, descriptors + 1).unwrap_err();
        }
    }

    #[test]
    fn a_hello_of_a_later_version_is_understood_as_one() {
        let mut packet = Request::Hello { version: 2, instance: "new".into() }.encode(1);
        packet.extend(b"more");
        let (request, _) = Request::decode(&packet, 0).unwrap();
        assert_eq!(request, Request::Hello { version: 2, instance: "new".into() });
    }

    #[test]
    fn names_are_bounded_and_printable() {
        assert!(is_name("pv-1/é") && is_name(&"n".repeat(MAX_NAME)));
        assert!(!is_name("") && !is_name("a\nb") && !is_name(&"n".repeat(MAX_NAME + 1)));
    }

    #[test]
    fn a_page_of_names_fits_into_a_packet() {
        let names: Vec<String> = (0..100).map(|n| format!("{n:0>200}")).collect();
        let page = Answer::page(names.iter());
        let Answer::Names { names: shown, more: true } = &page else { panic!("{page:?}") };
        assert!(!shown.is_empty() && shown.len() < names.len());
        assert!(page.encode(0).len() <= MAX_PACKET);
    }
}
