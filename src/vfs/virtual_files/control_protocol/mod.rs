//! The protocol of `.control`, shared by the mount and the command line client.
//!
//! Owns the bytes of requests and replies. The format is that of JuiceFS, whose tools use it, too.

mod request;
mod response;

use nix::errno::Errno;

pub use request::{
    CacheAction, CloneRequest, InfoRequest, Paths, RemoveRequest, Request, SummaryRequest,
    WarmupRequest, opcode,
};
pub use response::{
    InfoFileLock, InfoObject, InfoRangeLock, InfoResponse, InfoSlice, InfoSummary, InfoTier,
    SummaryNode, SummaryResponse, WarmupResponse,
};

/// The names of the file, with and without the prefix.
pub const FILE_NAMES: [&str; 2] = [".jfs.control", ".control"];
/// The inode number of the file in every mount.
pub const INODE: u64 = 0x7FFF_FFFF_0000_0002;

const PROGRESS: u8 = 0xFE;
const DATA: u8 = 0xFF;

/// A part of a reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// Two counts, whose meaning depends on the request.
    Progress(u64, u64),
    End(ReplyEnd),
}

/// The last part of a reply.
#[derive(Debug, PartialEq, Eq)]
pub enum ReplyEnd {
    Done,
    Failed(Errno),
    /// Most often JSON.
    Data(Vec<u8>),
}

impl Frame {
    /// Decodes the first frame. Returns it with its length, or `None` if it is incomplete.
    pub fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        match bytes {
            [PROGRESS, rest @ ..] => {
                let (first, rest) = rest.split_first_chunk::<8>()?;
                let second = rest.first_chunk::<8>()?;
                let frame = Self::Progress(u64::from_be_bytes(*first), u64::from_be_bytes(*second));
                Some((frame, 17))
            }
            [DATA, rest @ ..] => {
                let (length, rest) = rest.split_first_chunk::<4>()?;
                let length = u32::from_be_bytes(*length) as usize;
                let data = rest.get(..length)?;
                Some((Self::End(ReplyEnd::Data(data.to_vec())), 5 + length))
            }
            [0, ..] => Some((Self::End(ReplyEnd::Done), 1)),
            [errno, ..] => Some((Self::End(ReplyEnd::Failed(errno_from_byte(*errno))), 1)),
            [] => None,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Progress(first, second) => {
                [&[PROGRESS][..], &first.to_be_bytes(), &second.to_be_bytes()].concat()
            }
            Self::End(ReplyEnd::Done) => vec![0],
            Self::End(ReplyEnd::Failed(errno)) => vec![errno_to_byte(*errno)],
            Self::End(ReplyEnd::Data(data)) => [&[DATA][..], &length_prefix(data), data].concat(),
        }
    }
}

/// Encodes a reply in the legacy form: a length and a text.
pub fn encode_text(text: &str) -> Vec<u8> {
    [&length_prefix(text.as_bytes())[..], text.as_bytes()].concat()
}

pub fn errno_to_byte(errno: Errno) -> u8 {
    // Linux has none above 133.
    u8::try_from(errno as i32).unwrap_or(u8::MAX)
}

pub fn errno_from_byte(byte: u8) -> Errno {
    Errno::from_raw(byte.into())
}

fn length_prefix(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_decoded_frame_by_frame() {
        let progress = [&[0xFE][..], &7u64.to_be_bytes(), &8u64.to_be_bytes()].concat();
        assert_eq!(Frame::parse(&progress), Some((Frame::Progress(7, 8), 17)));
        assert_eq!(Frame::parse(&progress[..16]), None);
        let data = b"\xff\0\0\0\x02{}";
        assert_eq!(Frame::parse(data), Some((Frame::End(ReplyEnd::Data(b"{}".to_vec())), 7)));
        assert_eq!(Frame::parse(&data[..6]), None);
        assert_eq!(Frame::parse(b"\0"), Some((Frame::End(ReplyEnd::Done), 1)));
        assert_eq!(Frame::parse(b"\x02"), Some((Frame::End(ReplyEnd::Failed(Errno::ENOENT)), 1)));
        assert_eq!(Frame::parse(b""), None);
    }

    #[test]
    fn every_frame_is_decoded_as_it_was_encoded() {
        for frame in [
            Frame::Progress(1, u64::MAX),
            Frame::End(ReplyEnd::Done),
            Frame::End(ReplyEnd::Failed(Errno::ENOTEMPTY)),
            Frame::End(ReplyEnd::Data(b"data".to_vec())),
        ] {
            let bytes = frame.encode();
            assert_eq!(Frame::parse(&bytes), Some((frame, bytes.len())));
        }
    }
}
