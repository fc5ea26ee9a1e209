//! The tables of a volume, as data.

pub struct Table {
    pub name: &'static str,
    pub columns: &'static [Column],
    pub indexes: &'static [Index],
}

pub struct Column {
    pub name: &'static str,
    /// The declared type: `INTEGER`, `TEXT` or `BLOB`.
    pub kind: &'static str,
    pub rule: Rule,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The primary key, counted up by SQLite.
    Serial,
    /// The primary key.
    Key,
    /// One column of a primary key of several.
    PartOfKey,
    Needed,
    /// Needed, 0 unless given.
    Zero,
    Optional,
}

pub struct Index {
    /// The last part of its name.
    pub name: &'static str,
    pub unique: bool,
    pub columns: &'static [&'static str],
}

const fn column(name: &'static str, kind: &'static str, rule: Rule) -> Column {
    Column { name, kind, rule }
}

const fn key(name: &'static str) -> Column {
    column(name, "INTEGER", Rule::Key)
}

const fn serial() -> Column {
    column("id", "INTEGER", Rule::Serial)
}

const fn int(name: &'static str) -> Column {
    column(name, "INTEGER", Rule::Needed)
}

const fn maybe_int(name: &'static str) -> Column {
    column(name, "INTEGER", Rule::Optional)
}

const fn zero_int(name: &'static str) -> Column {
    column(name, "INTEGER", Rule::Zero)
}

const fn blob(name: &'static str) -> Column {
    column(name, "BLOB", Rule::Needed)
}

const fn maybe_blob(name: &'static str) -> Column {
    column(name, "BLOB", Rule::Optional)
}

const fn text(name: &'static str) -> Column {
    column(name, "TEXT", Rule::Needed)
}

const fn unique(name: &'static str, columns: &'static [&'static str]) -> Index {
    Index { name, unique: true, columns }
}

const fn plain(name: &'static str, columns: &'static [&'static str]) -> Index {
    Index { name, unique: false, columns }
}

const fn table(name: &'static str, columns: &'static [Column], indexes: &'static [Index]) -> Table {
    Table { name, columns, indexes }
}

pub const TABLES: &[Table] = &[
    table("jfs_setting", &[column("name", "TEXT", Rule::Key), text("value")], &[]),
    table("jfs_counter", &[column("name", "TEXT", Rule::Key), int("value")], &[]),
    table(
        "jfs_edge",
        &[serial(), int("parent"), blob("name"), int("inode"), int("type")],
        &[unique("edge", &["parent", "name"]), plain("inode", &["inode"])],
    ),
    table(
        "jfs_node",
        &[
            key("inode"),
            int("type"),
            int("flags"),
            int("mode"),
            int("uid"),
            int("gid"),
            int("atime"),
            int("mtime"),
            int("ctime"),
            zero_int("atimensec"),
            zero_int("mtimensec"),
            zero_int("ctimensec"),
            int("nlink"),
            int("length"),
            maybe_int("rdev"),
            maybe_int("parent"),
            maybe_int("access_acl_id"),
            maybe_int("default_acl_id"),
            maybe_int("tier_id"),
        ],
        &[],
    ),
    table("jfs_symlink", &[key("inode"), blob("target")], &[]),
    table(
        "jfs_xattr",
        &[serial(), int("inode"), text("name"), blob("value")],
        &[unique("name", &["inode", "name"])],
    ),
    table(
        "jfs_chunk",
        &[serial(), int("inode"), int("indx"), blob("slices")],
        &[unique("chunk", &["inode", "indx"])],
    ),
    table(
        "jfs_chunk_ref",
        &[key("chunkid"), int("size"), int("refs")],
        &[plain("refs", &["refs"])],
    ),
    table("jfs_delslices", &[key("chunkid"), int("deleted"), blob("slices")], &[]),
    table("jfs_session2", &[key("sid"), int("expire"), maybe_blob("info")], &[]),
    table(
        "jfs_sustained",
        &[serial(), int("sid"), int("inode")],
        &[unique("sustained", &["sid", "inode"])],
    ),
    table("jfs_delfile", &[key("inode"), int("length"), int("expire")], &[]),
    table(
        "jfs_flock",
        &[serial(), int("inode"), int("sid"), int("owner"), int("ltype")],
        &[unique("flock", &["inode", "sid", "owner"])],
    ),
    table(
        "jfs_plock",
        &[serial(), int("inode"), int("sid"), int("owner"), blob("records")],
        &[unique("plock", &["inode", "sid", "owner"])],
    ),
    table(
        "jfs_dir_quota",
        &[key("inode"), int("max_space"), int("max_inodes"), int("used_space"), int("used_inodes")],
        &[],
    ),
    table(
        "jfs_user_group_quota",
        &[
            column("qtype", "INTEGER", Rule::PartOfKey),
            column("qkey", "INTEGER", Rule::PartOfKey),
            int("max_space"),
            int("max_inodes"),
            int("used_space"),
            int("used_inodes"),
        ],
        &[],
    ),
    table(
        "jfs_dir_stats",
        &[key("inode"), int("data_length"), int("used_space"), int("used_inodes")],
        &[],
    ),
    table("jfs_detached_node", &[key("inode"), int("added")], &[]),
    table(
        "jfs_acl",
        &[
            serial(),
            maybe_int("owner"),
            maybe_int("group"),
            maybe_int("mask"),
            maybe_int("other"),
            maybe_blob("named_users"),
            maybe_blob("named_groups"),
        ],
        &[],
    ),
    table("jfs_delegation_token", &[serial(), maybe_blob("token")], &[]),
    table("jfs_change_log", &[serial(), text("entry")], &[]),
];
