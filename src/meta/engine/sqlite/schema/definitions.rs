//! The tables of a volume with their columns and indexes.

pub struct Table {
    pub name: &'static str,
    pub columns: &'static [Column],
    pub indexes: &'static [Index],
}

pub struct Column {
    pub name: &'static str,
    /// The declared type: `INTEGER`, `TEXT` or `BLOB`.
    pub kind: &'static str,
    pub constraint: Constraint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constraint {
    /// The primary key, incremented by SQLite.
    Serial,
    /// The primary key.
    Key,
    /// One of several columns of the primary key.
    PartOfKey,
    Required,
    /// Required, 0 unless given.
    Zero,
    Optional,
}

pub struct Index {
    /// The last part of the index's name.
    pub name: &'static str,
    pub unique: bool,
    pub columns: &'static [&'static str],
}

const fn column(name: &'static str, kind: &'static str, constraint: Constraint) -> Column {
    Column { name, kind, constraint }
}

const fn key(name: &'static str) -> Column {
    column(name, "INTEGER", Constraint::Key)
}

const fn serial() -> Column {
    column("id", "INTEGER", Constraint::Serial)
}

const fn int(name: &'static str) -> Column {
    column(name, "INTEGER", Constraint::Required)
}

const fn optional_int(name: &'static str) -> Column {
    column(name, "INTEGER", Constraint::Optional)
}

const fn zero_int(name: &'static str) -> Column {
    column(name, "INTEGER", Constraint::Zero)
}

const fn blob(name: &'static str) -> Column {
    column(name, "BLOB", Constraint::Required)
}

const fn optional_blob(name: &'static str) -> Column {
    column(name, "BLOB", Constraint::Optional)
}

const fn text(name: &'static str) -> Column {
    column(name, "TEXT", Constraint::Required)
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
    table("jfs_setting", &[column("name", "TEXT", Constraint::Key), text("value")], &[]),
    table("jfs_counter", &[column("name", "TEXT", Constraint::Key), int("value")], &[]),
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
            optional_int("rdev"),
            optional_int("parent"),
            optional_int("access_acl_id"),
            optional_int("default_acl_id"),
            optional_int("tier_id"),
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
    table("jfs_session2", &[key("sid"), int("expire"), optional_blob("info")], &[]),
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
            column("qtype", "INTEGER", Constraint::PartOfKey),
            column("qkey", "INTEGER", Constraint::PartOfKey),
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
            optional_int("owner"),
            optional_int("group"),
            optional_int("mask"),
            optional_int("other"),
            optional_blob("named_users"),
            optional_blob("named_groups"),
        ],
        &[],
    ),
    table("jfs_delegation_token", &[serial(), optional_blob("token")], &[]),
    table("jfs_change_log", &[serial(), text("entry")], &[]),
];
