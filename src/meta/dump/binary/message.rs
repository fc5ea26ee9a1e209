//! The messages of a binary dump.

use std::collections::HashMap;

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct Format {
    #[prost(bytes = "vec", tag = "1")]
    pub data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Counter {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(int64, tag = "2")]
    pub value: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sustained {
    #[prost(uint64, tag = "1")]
    pub sid: u64,
    #[prost(uint64, repeated, tag = "2")]
    pub inodes: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DelFile {
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    #[prost(uint64, tag = "2")]
    pub length: u64,
    #[prost(int64, tag = "3")]
    pub expire: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct SliceRef {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint32, tag = "2")]
    pub size: u32,
    #[prost(int64, tag = "3")]
    pub refs: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Acl {
    #[prost(uint32, tag = "1")]
    pub id: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Xattr {
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// Text for the Go client.
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(bytes = "vec", tag = "3")]
    pub value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Quota {
    #[prost(uint64, tag = "1")]
    pub key: u64,
    #[prost(int64, tag = "2")]
    pub max_space: i64,
    #[prost(int64, tag = "3")]
    pub max_inodes: i64,
    #[prost(int64, tag = "4")]
    pub used_space: i64,
    #[prost(int64, tag = "5")]
    pub used_inodes: i64,
    /// 0 = directory, 1 = user, 2 = group.
    #[prost(uint32, tag = "6")]
    pub kind: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Stat {
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    #[prost(int64, tag = "2")]
    pub data_length: i64,
    #[prost(int64, tag = "3")]
    pub used_space: i64,
    #[prost(int64, tag = "4")]
    pub used_inodes: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Node {
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Edge {
    #[prost(uint64, tag = "1")]
    pub parent: u64,
    #[prost(uint64, tag = "2")]
    pub inode: u64,
    #[prost(bytes = "vec", tag = "3")]
    pub name: Vec<u8>,
    #[prost(uint32, tag = "4")]
    pub kind: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Parent {
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// The parent.
    #[prost(uint64, tag = "2")]
    pub dir: u64,
    #[prost(int64, tag = "3")]
    pub count: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Chunk {
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    #[prost(uint32, tag = "2")]
    pub index: u32,
    #[prost(bytes = "vec", tag = "3")]
    pub slices: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Symlink {
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub target: Vec<u8>,
}

/// One segment. All its records are of one kind, except that quotas have three fields.
#[derive(Clone, PartialEq, Message)]
pub struct Batch {
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<Node>,
    #[prost(message, repeated, tag = "2")]
    pub edges: Vec<Edge>,
    #[prost(message, repeated, tag = "3")]
    pub chunks: Vec<Chunk>,
    #[prost(message, repeated, tag = "4")]
    pub slice_refs: Vec<SliceRef>,
    #[prost(message, repeated, tag = "5")]
    pub xattrs: Vec<Xattr>,
    #[prost(message, repeated, tag = "6")]
    pub parents: Vec<Parent>,
    #[prost(message, repeated, tag = "7")]
    pub symlinks: Vec<Symlink>,
    #[prost(message, repeated, tag = "8")]
    pub sustained: Vec<Sustained>,
    #[prost(message, repeated, tag = "9")]
    pub del_files: Vec<DelFile>,
    #[prost(message, repeated, tag = "10")]
    pub dir_stats: Vec<Stat>,
    #[prost(message, repeated, tag = "11")]
    pub quotas: Vec<Quota>,
    #[prost(message, repeated, tag = "12")]
    pub acls: Vec<Acl>,
    #[prost(message, repeated, tag = "13")]
    pub counters: Vec<Counter>,
    #[prost(message, repeated, tag = "15")]
    pub user_quotas: Vec<Quota>,
    #[prost(message, repeated, tag = "16")]
    pub group_quotas: Vec<Quota>,
}

/// Where the segments of one type are, and how many records they hold.
#[derive(Clone, PartialEq, Message)]
pub struct SegmentInfo {
    #[prost(uint64, repeated, tag = "1")]
    pub offset: Vec<u64>,
    #[prost(uint64, tag = "2")]
    pub num: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Footer {
    #[prost(uint32, tag = "1")]
    pub magic: u32,
    #[prost(uint32, tag = "2")]
    pub version: u32,
    #[prost(map = "string, message", tag = "3")]
    pub infos: HashMap<String, SegmentInfo>,
}
