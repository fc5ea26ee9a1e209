//! Requests, their encoding and decoding.
//!
//! Fields at the end were added over time: older tools leave them out.

use bytes::{Buf, Bytes};

use crate::error::{Error, Result};
use crate::meta::Ino;

/// The opcodes of requests.
pub mod opcode {
    pub const REMOVE: u32 = 1002;
    pub const LEGACY_INFO: u32 = 1003;
    pub const WARMUP: u32 = 1004;
    pub const INFO: u32 = 1005;
    pub const CLONE: u32 = 1006;
    pub const SUMMARY: u32 = 1007;
    pub const COMPACT: u32 = 1008;
}

#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    Remove(RemoveRequest),
    LegacyInfo(InfoRequest),
    Warmup(WarmupRequest),
    Info(InfoRequest),
    Clone(CloneRequest),
    Summary(SummaryRequest),
    Compact { ino: Ino, threads: u16 },
}

#[derive(Debug, PartialEq, Eq)]
pub struct RemoveRequest {
    pub dir: Ino,
    pub name: Bytes,
    pub skip_trash: bool,
    /// 0: the default.
    pub threads: u8,
}

#[derive(Debug, PartialEq, Eq)]
pub struct InfoRequest {
    pub ino: Ino,
    pub recursive: bool,
    /// Lists slices instead of objects.
    pub raw: bool,
    pub strict: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub struct WarmupRequest {
    pub paths: Paths,
    pub threads: u16,
    pub background: bool,
    pub action: CacheAction,
}

/// Paths, one per line. There may be as many as there are bytes, so they are split one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths(Bytes);

impl Paths {
    /// Joins paths, which must not contain a newline.
    pub fn new(paths: &[Vec<u8>]) -> Self {
        Self(paths.join(&b'\n').into())
    }

    pub fn iter(&self) -> impl Iterator<Item = Bytes> {
        self.0.split(|byte| *byte == b'\n').map(|path| self.0.slice_ref(path))
    }
}

/// What to do with the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheAction {
    Warm,
    Evict,
    Check,
}

#[derive(Debug, PartialEq, Eq)]
pub struct CloneRequest {
    pub src: Ino,
    pub src_dir: Ino,
    pub dst_dir: Ino,
    pub name: Bytes,
    pub umask: u16,
    pub preserve: bool,
    /// 0: the default.
    pub threads: u8,
}

#[derive(Debug, PartialEq, Eq)]
pub struct SummaryRequest {
    pub ino: Ino,
    pub depth: u8,
    pub top: u8,
    pub strict: bool,
}

/// Bit of a removal's flags.
const SKIP_TRASH: u8 = 1;
/// Bit of a clone's mode: keep owner, mode and times.
const PRESERVE: u8 = 2;

impl Request {
    /// Fails with [`Error::Invalid`] for an unknown opcode or a body that is too short.
    pub fn parse(op: u32, body: Bytes) -> Result<Self> {
        let mut body = Body(body);
        Ok(match op {
            opcode::REMOVE => Self::Remove(RemoveRequest {
                dir: body.ino()?,
                name: body.name()?,
                skip_trash: body.optional(0) & SKIP_TRASH != 0,
                threads: body.optional(0),
            }),
            opcode::LEGACY_INFO => Self::LegacyInfo(body.info()?),
            opcode::INFO => Self::Info(body.info()?),
            opcode::WARMUP => Self::Warmup(WarmupRequest {
                paths: body.paths()?,
                threads: body.u16()?,
                background: body.u8()? != 0,
                action: match body.optional(0) {
                    0 => CacheAction::Warm,
                    1 => CacheAction::Evict,
                    2 => CacheAction::Check,
                    _ => return Err(Error::Invalid),
                },
            }),
            opcode::CLONE => Self::Clone(CloneRequest {
                src: body.ino()?,
                src_dir: body.ino()?,
                dst_dir: body.ino()?,
                name: body.name()?,
                umask: body.u16()?,
                preserve: body.u8()? & PRESERVE != 0,
                threads: body.optional(0),
            }),
            opcode::SUMMARY => Self::Summary(SummaryRequest {
                ino: body.ino()?,
                depth: body.optional(3),
                top: body.optional(10),
                strict: body.optional(0) != 0,
            }),
            opcode::COMPACT => Self::Compact { ino: body.ino()?, threads: body.u16()? },
            _ => return Err(Error::Invalid),
        })
    }
}

impl RemoveRequest {
    /// Encodes the body. Fails with [`Error::NameTooLong`] if the name exceeds 255 bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let length = u8::try_from(self.name.len()).map_err(|_| Error::NameTooLong)?;
        let flags = if self.skip_trash { SKIP_TRASH } else { 0 };
        let tail = [flags, self.threads];
        Ok([&self.dir.0.to_be_bytes()[..], &[length], &self.name, &tail].concat())
    }
}

impl InfoRequest {
    pub fn encode(&self) -> Vec<u8> {
        [&self.encode_legacy()[..], &[u8::from(self.strict)]].concat()
    }

    /// Encodes the body as tools older than 1.1 do.
    pub fn encode_legacy(&self) -> Vec<u8> {
        let flags = [self.recursive, self.raw].map(u8::from);
        [&self.ino.0.to_be_bytes()[..], &flags].concat()
    }
}

impl WarmupRequest {
    /// Encodes the body. Fails with [`Error::Invalid`] if the paths exceed 4 GiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let length = u32::try_from(self.paths.0.len()).map_err(|_| Error::Invalid)?;
        let action = match self.action {
            CacheAction::Warm => 0,
            CacheAction::Evict => 1,
            CacheAction::Check => 2,
        };
        let tail = [u8::from(self.background), action];
        let threads = self.threads.to_be_bytes();
        Ok([&length.to_be_bytes()[..], &self.paths.0, &threads, &tail].concat())
    }
}

impl CloneRequest {
    /// Encodes the body. Fails with [`Error::NameTooLong`] if the name exceeds 255 bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let length = u8::try_from(self.name.len()).map_err(|_| Error::NameTooLong)?;
        let inodes = [self.src, self.src_dir, self.dst_dir].map(|ino| ino.0.to_be_bytes());
        let mode = if self.preserve { PRESERVE } else { 0 };
        let tail = [mode, self.threads];
        Ok([&inodes.concat()[..], &[length], &self.name, &self.umask.to_be_bytes(), &tail].concat())
    }
}

impl SummaryRequest {
    pub fn encode(&self) -> Vec<u8> {
        let tail = [self.depth, self.top, u8::from(self.strict)];
        [&self.ino.0.to_be_bytes()[..], &tail].concat()
    }
}

/// The body of a request, decoded field by field.
struct Body(Bytes);

impl Body {
    fn u8(&mut self) -> Result<u8> {
        self.0.try_get_u8().map_err(|_| Error::Invalid)
    }

    fn u16(&mut self) -> Result<u16> {
        self.0.try_get_u16().map_err(|_| Error::Invalid)
    }

    fn ino(&mut self) -> Result<Ino> {
        self.0.try_get_u64().map(Ino).map_err(|_| Error::Invalid)
    }

    fn optional(&mut self, default: u8) -> u8 {
        self.0.try_get_u8().unwrap_or(default)
    }

    fn bytes(&mut self, count: usize) -> Result<Bytes> {
        if self.0.len() < count { Err(Error::Invalid) } else { Ok(self.0.split_to(count)) }
    }

    fn name(&mut self) -> Result<Bytes> {
        let count = self.u8()?;
        self.bytes(count.into())
    }

    fn paths(&mut self) -> Result<Paths> {
        let count = self.0.try_get_u32().map_err(|_| Error::Invalid)?;
        Ok(Paths(self.bytes(count as usize)?))
    }

    fn info(&mut self) -> Result<InfoRequest> {
        Ok(InfoRequest {
            ino: self.ino()?,
            recursive: self.optional(1) != 0,
            raw: self.optional(0) != 0,
            strict: self.optional(0) != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(op: u32, body: &'static [u8]) -> Result<Request> {
        Request::parse(op, Bytes::from_static(body))
    }

    #[test]
    fn a_removal_has_directory_name_flags_and_threads() {
        let parsed = parse(1002, b"\0\0\0\0\0\0\0\x02\x03abc\x01\x07").unwrap();
        let remove =
            RemoveRequest { dir: Ino(2), name: "abc".into(), skip_trash: true, threads: 7 };
        assert_eq!(parsed, Request::Remove(remove));
        let Request::Remove(old) = parse(1002, b"\0\0\0\0\0\0\0\x02\x03abc").unwrap() else {
            panic!()
        };
        assert_eq!((old.skip_trash, old.threads), (false, 0));
    }

    #[test]
    fn fields_left_out_of_an_info_have_their_old_meaning() {
        let new = InfoRequest { ino: Ino(5), recursive: false, raw: true, strict: true };
        assert_eq!(parse(1005, b"\0\0\0\0\0\0\0\x05\0\x01\x01").unwrap(), Request::Info(new));
        let old = InfoRequest { ino: Ino(5), recursive: true, raw: false, strict: false };
        assert_eq!(parse(1003, b"\0\0\0\0\0\0\0\x05").unwrap(), Request::LegacyInfo(old));
    }

    #[test]
    fn paths_are_lines() {
        let parsed = parse(1004, b"\0\0\0\x05/a\n/b\0\x32\0\x01").unwrap();
        let warmup = WarmupRequest {
            paths: Paths(Bytes::from_static(b"/a\n/b")),
            threads: 50,
            background: false,
            action: CacheAction::Evict,
        };
        assert_eq!(warmup.paths.iter().collect::<Vec<_>>(), ["/a", "/b"]);
        assert_eq!(parsed, Request::Warmup(warmup));
    }

    #[test]
    fn a_clone_has_source_destination_and_mode() {
        let body = b"\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\x01c\0\x12\x02\x04";
        let clone = CloneRequest {
            src: Ino(5),
            src_dir: Ino(2),
            dst_dir: Ino(3),
            name: "c".into(),
            umask: 0o22,
            preserve: true,
            threads: 4,
        };
        assert_eq!(parse(1006, body).unwrap(), Request::Clone(clone));
    }

    #[test]
    fn a_summary_has_defaults() {
        let summary = SummaryRequest { ino: Ino(1), depth: 3, top: 10, strict: false };
        assert_eq!(parse(1007, b"\0\0\0\0\0\0\0\x01").unwrap(), Request::Summary(summary));
    }

    #[test]
    fn a_short_or_unknown_request_is_refused() {
        for (op, body) in [
            (1002, &b"\0\0\0\0\0\0\0\x02\x09abc"[..]),
            (1004, b"\0\0\0\x09/a"),
            (1004, b"\0\0\0\x02/a\0\x01\0\x03"),
            (1005, b"\0\0\0\0\0\0\x05"),
            (1008, b"\0\0\0\0\0\0\0\x05\0"),
            (1000, b""),
            (1009, b"\0\0\0\0\0\0\0\x05"),
        ] {
            assert!(matches!(parse(op, body), Err(Error::Invalid)), "{op} {body:?}");
        }
    }

    #[test]
    fn encoded_requests_are_parsed_to_themselves() {
        let clone = CloneRequest {
            src: Ino(5),
            src_dir: Ino(2),
            dst_dir: Ino(3),
            name: "c".into(),
            umask: 0o22,
            preserve: true,
            threads: 4,
        };
        let body = Bytes::from(clone.encode().unwrap());
        assert_eq!(Request::parse(opcode::CLONE, body).unwrap(), Request::Clone(clone));
        let summary = SummaryRequest { ino: Ino(7), depth: 1, top: 2, strict: true };
        let body = Bytes::from(summary.encode());
        assert_eq!(Request::parse(opcode::SUMMARY, body).unwrap(), Request::Summary(summary));
        for action in [CacheAction::Warm, CacheAction::Evict, CacheAction::Check] {
            let paths = Paths::new(&[b"/a".to_vec(), b"/b".to_vec()]);
            let warmup = WarmupRequest { paths, threads: 50, background: true, action };
            let body = Bytes::from(warmup.encode().unwrap());
            assert_eq!(Request::parse(opcode::WARMUP, body).unwrap(), Request::Warmup(warmup));
        }
    }

    proptest::proptest! {
        #[test]
        fn random_requests_never_panic(op in 995u32..1012, body: Vec<u8>) {
            if let Ok(Request::Warmup(warmup)) = Request::parse(op, Bytes::from(body.clone())) {
                let bytes: usize = warmup.paths.iter().map(|path| path.len() + 1).sum();
                assert!(bytes <= body.len() + 1);
            }
        }

        #[test]
        fn every_truncated_request_is_refused_or_decoded(
            op in 1002u32..1009,
            ino: u64,
            lengths: [u8; 4],
            rest: Vec<u8>,
            cut: u8,
        ) {
            let mut body = [&ino.to_be_bytes()[..], &lengths, &rest].concat();
            body.truncate(usize::from(cut));
            let _ = Request::parse(op, Bytes::from(body));
        }
    }
}
