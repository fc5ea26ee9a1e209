//! What a request asks for.
//!
//! Fields at the end were added over time: a tool that is older leaves them out.

use bytes::{Buf, Bytes};

use crate::error::{Error, Result};
use crate::meta::Ino;

const REMOVE: u32 = 1002;
const LEGACY_INFO: u32 = 1003;
const FILL: u32 = 1004;
const INFO: u32 = 1005;
const CLONE: u32 = 1006;
const SUMMARY: u32 = 1007;
const COMPACT: u32 = 1008;

#[derive(Debug, PartialEq, Eq)]
pub enum Ask {
    Remove(Remove),
    LegacyInfo(Info),
    Fill(Fill),
    Info(Info),
    Clone(Clone),
    Summary(Summary),
    Compact { ino: Ino, threads: u16 },
}

#[derive(Debug, PartialEq, Eq)]
pub struct Remove {
    pub dir: Ino,
    pub name: Bytes,
    pub skip_trash: bool,
    /// 0: as many as usual.
    pub threads: u8,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Info {
    pub ino: Ino,
    pub recursive: bool,
    /// Slices instead of objects.
    pub raw: bool,
    pub strict: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Fill {
    pub paths: Paths,
    pub threads: u16,
    pub background: bool,
    pub action: Action,
}

/// Paths, a line each. There may be as many as there are bytes, so they are taken one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths(Bytes);

impl Paths {
    pub fn iter(&self) -> impl Iterator<Item = Bytes> {
        self.0.split(|byte| *byte == b'\n').map(|path| self.0.slice_ref(path))
    }
}

/// What is done to the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Warm,
    Evict,
    Check,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Clone {
    pub src: Ino,
    pub src_dir: Ino,
    pub dst_dir: Ino,
    pub name: Bytes,
    pub umask: u16,
    pub preserve: bool,
    /// 0: as many as usual.
    pub threads: u8,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Summary {
    pub ino: Ino,
    pub depth: u8,
    pub top: u8,
    pub strict: bool,
}

/// Bit of a clone's mode: keep owner, mode and times.
const PRESERVE: u8 = 2;

impl Ask {
    /// [`Error::Invalid`] for what is unknown or too short.
    pub fn parse(op: u32, body: Bytes) -> Result<Self> {
        let mut body = Body(body);
        Ok(match op {
            REMOVE => Self::Remove(Remove {
                dir: body.ino()?,
                name: body.name()?,
                skip_trash: body.optional(0) & 1 != 0,
                threads: body.optional(0),
            }),
            LEGACY_INFO => Self::LegacyInfo(body.info()?),
            INFO => Self::Info(body.info()?),
            FILL => Self::Fill(Fill {
                paths: body.paths()?,
                threads: body.u16()?,
                background: body.u8()? != 0,
                action: match body.optional(0) {
                    0 => Action::Warm,
                    1 => Action::Evict,
                    2 => Action::Check,
                    _ => return Err(Error::Invalid),
                },
            }),
            CLONE => Self::Clone(Clone {
                src: body.ino()?,
                src_dir: body.ino()?,
                dst_dir: body.ino()?,
                name: body.name()?,
                umask: body.u16()?,
                preserve: body.u8()? & PRESERVE != 0,
                threads: body.optional(0),
            }),
            SUMMARY => Self::Summary(Summary {
                ino: body.ino()?,
                depth: body.optional(3),
                top: body.optional(10),
                strict: body.optional(0) != 0,
            }),
            COMPACT => Self::Compact { ino: body.ino()?, threads: body.u16()? },
            _ => return Err(Error::Invalid),
        })
    }
}

/// The bytes of a request, taken field by field.
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

    fn info(&mut self) -> Result<Info> {
        Ok(Info {
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

    fn parse(op: u32, body: &'static [u8]) -> Result<Ask> {
        Ask::parse(op, Bytes::from_static(body))
    }

    #[test]
    fn a_removal_names_directory_name_flags_and_threads() {
        let asked = parse(1002, b"\0\0\0\0\0\0\0\x02\x03abc\x01\x07").unwrap();
        let remove = Remove { dir: Ino(2), name: "abc".into(), skip_trash: true, threads: 7 };
        assert_eq!(asked, Ask::Remove(remove));
        let Ask::Remove(old) = parse(1002, b"\0\0\0\0\0\0\0\x02\x03abc").unwrap() else { panic!() };
        assert_eq!((old.skip_trash, old.threads), (false, 0));
    }

    #[test]
    fn what_is_left_out_of_an_info_has_its_old_meaning() {
        let new = Info { ino: Ino(5), recursive: false, raw: true, strict: true };
        assert_eq!(parse(1005, b"\0\0\0\0\0\0\0\x05\0\x01\x01").unwrap(), Ask::Info(new));
        let old = Info { ino: Ino(5), recursive: true, raw: false, strict: false };
        assert_eq!(parse(1003, b"\0\0\0\0\0\0\0\x05").unwrap(), Ask::LegacyInfo(old));
    }

    #[test]
    fn paths_are_lines() {
        let asked = parse(1004, b"\0\0\0\x05/a\n/b\0\x32\0\x01").unwrap();
        let fill = Fill {
            paths: Paths(Bytes::from_static(b"/a\n/b")),
            threads: 50,
            background: false,
            action: Action::Evict,
        };
        assert_eq!(fill.paths.iter().collect::<Vec<_>>(), ["/a", "/b"]);
        assert_eq!(asked, Ask::Fill(fill));
    }

    #[test]
    fn a_clone_names_source_place_and_mode() {
        let body = b"\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\x01c\0\x12\x02\x04";
        let clone = Clone {
            src: Ino(5),
            src_dir: Ino(2),
            dst_dir: Ino(3),
            name: "c".into(),
            umask: 0o22,
            preserve: true,
            threads: 4,
        };
        assert_eq!(parse(1006, body).unwrap(), Ask::Clone(clone));
    }

    #[test]
    fn a_summary_has_defaults() {
        let summary = Summary { ino: Ino(1), depth: 3, top: 10, strict: false };
        assert_eq!(parse(1007, b"\0\0\0\0\0\0\0\x01").unwrap(), Ask::Summary(summary));
    }

    #[test]
    fn what_is_short_or_unknown_is_refused() {
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

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_odd_to_be_looked_at(op in 995u32..1012, body: Vec<u8>) {
            if let Ok(Ask::Fill(fill)) = Ask::parse(op, Bytes::from(body.clone())) {
                let bytes: usize = fill.paths.iter().map(|path| path.len() + 1).sum();
                assert!(bytes <= body.len() + 1);
            }
        }

        #[test]
        fn every_beginning_of_a_request_is_refused_or_understood(
            op in 1002u32..1009,
            ino: u64,
            lengths: [u8; 4],
            rest: Vec<u8>,
            cut: u8,
        ) {
            let mut body = [&ino.to_be_bytes()[..], &lengths, &rest].concat();
            body.truncate(usize::from(cut));
            let _ = Ask::parse(op, Bytes::from(body));
        }
    }
}
