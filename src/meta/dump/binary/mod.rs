//! Binary dumps: records in segments of Protobuf messages, and a footer that counts them.
//!
//! The layout: segments of a type (4 bytes, big-endian), a length (8 bytes) and a message; the end
//! mark; the footer and its length (8 bytes).

pub mod export;
pub mod import;
mod message;
mod read;
pub mod stat;

/// The end mark after the last segment, and the first field of the footer.
const MAGIC: u32 = 0x0074_7083;
const VERSION: u32 = 1;

/// The types of segments, from 1 on.
const SEGMENTS: [&str; 15] = [
    "format",
    "counter",
    "node",
    "edge",
    "chunk",
    "sliceRef",
    "symlink",
    "sustained",
    "delFile",
    "xattr",
    "acl",
    "stat",
    "quota",
    "parent",
    "changeLog",
];

const FORMAT: u32 = 1;

/// Returns the name of a segment type, as `load --stat` shows it.
fn segment_name(kind: u32) -> String {
    let index = usize::try_from(kind).ok().and_then(|kind| kind.checked_sub(1));
    match index.and_then(|index| SEGMENTS.get(index)) {
        Some(name) => (*name).to_owned(),
        None => format!("type-{kind}"),
    }
}
