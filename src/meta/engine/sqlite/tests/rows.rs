//! The rows that this client writes, compared with those of the Go client.

use rusqlite::types::Value;

use super::*;
use crate::meta::record::{
    AclEntry, AclRule, DirStat, LockKind, PlockRange, Quota, QuotaKey, SliceSize,
};
use crate::meta::{LockOwner, Sid};

/// Returns every row of a query, with values joined by `|` and blobs in hex.
fn dump(volume: &Volume, sql: &str) -> Vec<String> {
    let other_connection = volume.other_connection();
    let mut statement = other_connection.prepare(sql).unwrap();
    let width = statement.column_count();
    let rows = statement.query_map([], |row| {
        let cells: Vec<String> = (0..width).map(|i| cell(&row.get(i).unwrap())).collect();
        Ok(cells.join("|"))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => format!("real {number}"),
        Value::Text(text) => text.clone(),
        Value::Blob(blob) => {
            let digits = blob.iter().map(|byte| format!("{byte:02x}"));
            format!("x{}", digits.collect::<Vec<_>>().concat())
        }
    }
}

#[tokio::test]
async fn a_new_volume_has_the_rows_of_the_go_client() {
    let volume = Volume::new().await;
    assert_eq!(
        dump(&volume, "SELECT * FROM jfs_counter"),
        [
            "nextInode|2",
            "nextChunk|1",
            "nextSession|0",
            "usedSpace|0",
            "totalInodes|0",
            "nextCleanupSlices|0"
        ]
    );
    let micros = "1794799715165759|1794799715165759|1794799715165759|392|392|392";
    assert_eq!(
        dump(&volume, "SELECT * FROM jfs_node ORDER BY inode"),
        [
            format!("1|2|0|511|0|0|{micros}|2|4096|0|1|0|0|0"),
            format!("9223372032828243968|2|0|365|0|0|{micros}|2|4096|0|1|0|0|0"),
        ]
    );
    assert_eq!(
        dump(&volume, "SELECT name, value, typeof(value) FROM jfs_setting"),
        ["format|{}|text"]
    );
    for table in ["edge", "chunk", "chunk_ref", "session2", "dir_stats", "change_log"] {
        assert!(dump(&volume, &format!("SELECT * FROM jfs_{table}")).is_empty());
    }
}

#[tokio::test]
async fn storing_the_setting_again_changes_only_the_setting() {
    let volume = Volume::with("").await;
    volume.engine.add_counter(crate::meta::record::Counter::NextInode, 1).await.unwrap();
    let mut root = dir_attr(0o700);
    root.uid = 5;
    volume.engine.store_setting(b"{\"Name\": \"v\"}", &root, Some(&root)).await.unwrap();
    assert_eq!(volume.engine.load_setting().await.unwrap().unwrap(), b"{\"Name\": \"v\"}");
    assert_eq!(volume.read(Key::Attr(Ino::ROOT)).await, Record::Attr(Some(dir_attr(0o777))));
    assert_eq!(volume.read(Key::Attr(Ino::TRASH)).await, Record::Attr(Some(dir_attr(0o555))));
    assert_eq!(dump(&volume, "SELECT value FROM jfs_counter WHERE name = 'nextInode'"), ["3"]);
}

#[tokio::test]
async fn nodes_entries_and_slices_have_the_go_clients_rows() {
    let volume = Volume::new().await;
    let mut link = file_attr();
    link.parent = Ino::NONE;
    link.nlink = 2;
    let changes = [
        Change::PutEntry(Ino::ROOT, name("d1"), Entry { kind: FileKind::Dir, ino: Ino(2) }),
        Change::PutAttr(Ino(3), link),
        Change::AppendSlices {
            ino: Ino(3),
            index: 0,
            slices: vec![slice(1, 6)],
            if_present: false,
        },
        Change::NewSlice(SliceSize { id: SliceId(1), size: 6 }),
        Change::PutSymlink(Ino(4), bytes("tgt")),
        Change::PutXattr(Ino(3), name("user.k"), bytes("val")),
        Change::PutDirStat(Ino(2), DirStat { length: 6, space: 8192, inodes: 2 }),
        Change::AddUsage { space: 8192, inodes: 2 },
        Change::AddSustained(Sid(1), Ino(6)),
        Change::PutDeletedFile { ino: Ino(7), length: 300, at: 1_794_789_851 },
        Change::PutDetached(Ino(8), 1_794_789_851),
        Change::PutDelayed {
            id: SliceId(9),
            at: 1_794_789_851,
            slices: vec![SliceSize { id: SliceId(5), size: 1000 }],
        },
        Change::Log(
            "1794789868.461127873|CREATE(2,cl,0,0,1,438,18,,linux,true):12|(1,2)".to_owned(),
        ),
    ];
    volume.apply(&changes).await.unwrap();
    assert_eq!(dump(&volume, "SELECT * FROM jfs_edge"), ["1|1|x6431|2|2"]);
    let micros = "1794799715165759|1794799715165759|1794799715165759|392|392|392";
    assert_eq!(
        dump(&volume, "SELECT * FROM jfs_node WHERE inode = 3"),
        [format!("3|1|0|420|1000|100|{micros}|2|0|0|0|0|0|0")]
    );
    assert_eq!(
        dump(&volume, "SELECT * FROM jfs_chunk"),
        ["1|3|0|x000000000000000000000001000000060000000000000006"]
    );
    assert_eq!(dump(&volume, "SELECT * FROM jfs_chunk_ref"), ["1|6|1"]);
    assert_eq!(dump(&volume, "SELECT * FROM jfs_symlink"), ["4|x746774"]);
    assert_eq!(dump(&volume, "SELECT * FROM jfs_xattr"), ["1|3|user.k|x76616c"]);
    assert_eq!(dump(&volume, "SELECT * FROM jfs_dir_stats"), ["2|6|8192|2"]);
    assert_eq!(dump(&volume, "SELECT * FROM jfs_sustained"), ["1|1|6"]);
    assert_eq!(dump(&volume, "SELECT * FROM jfs_delfile"), ["7|300|1794789851"]);
    assert_eq!(dump(&volume, "SELECT * FROM jfs_detached_node"), ["8|1794789851"]);
    assert_eq!(
        dump(&volume, "SELECT * FROM jfs_delslices"),
        ["9|1794789851|x0000000000000005000003e8"]
    );
    assert_eq!(
        dump(
            &volume,
            "SELECT value FROM jfs_counter WHERE value > 2 OR name = 'totalInodes' ORDER BY name"
        ),
        ["2", "8192"]
    );
    let line = "1|1794789868.461127873|CREATE(2,cl,0,0,1,438,18,,linux,true):12|(1,2)";
    assert_eq!(dump(&volume, "SELECT * FROM jfs_change_log"), [line]);
}

#[tokio::test]
async fn locks_rules_sessions_and_quotas_have_the_go_clients_rows() {
    let volume = Volume::new().await;
    let (ino, sid) = (Ino(4), Sid(1));
    let owner = LockOwner(0xAB81_5C32_4E21_63D0);
    let range = PlockRange { kind: LockKind::Write, pid: 0x71A0, start: 5, end: 14 };
    let changes = [
        Change::PutFlock { ino, sid, owner, kind: LockKind::Write },
        Change::PutPlock { ino, sid, owner, ranges: vec![range] },
    ];
    volume.apply(&changes).await.unwrap();
    let rule = AclRule {
        owner: 6,
        group: 4,
        mask: 7,
        other: 4,
        users: vec![AclEntry { id: 1000, perm: 7 }],
        groups: vec![],
    };
    volume.engine.insert_acl(&rule).await.unwrap();
    volume.engine.put_session(sid, 1_794_800_130, b"{}").await.unwrap();
    let quota = Quota { max_space: 1 << 30, max_inodes: 100, used_space: 24576, used_inodes: 5 };
    volume.engine.put_quota(QuotaKey::Dir(Ino(2)), &quota, true).await.unwrap();
    volume.engine.add_quota_usage(&[(QuotaKey::Group(0), 4096, 7)]).await.unwrap();

    let signed = 0xAB81_5C32_4E21_63D0_u64.cast_signed();
    assert_eq!(dump(&volume, "SELECT * FROM jfs_flock"), [format!("1|4|1|{signed}|87")]);
    assert_eq!(
        dump(&volume, "SELECT * FROM jfs_plock"),
        [format!("1|4|1|{signed}|x00000001000071a00000000000000005000000000000000e")]
    );
    assert_eq!(dump(&volume, "SELECT * FROM jfs_acl"), ["1|6|4|7|4|x000003e80007|x"]);
    assert_eq!(dump(&volume, "SELECT * FROM jfs_session2"), ["1|1794800130|x7b7d"]);
    assert_eq!(dump(&volume, "SELECT * FROM jfs_dir_quota"), ["2|1073741824|100|24576|5"]);
    assert_eq!(dump(&volume, "SELECT * FROM jfs_user_group_quota"), ["2|0|-1|-1|4096|7"]);
}
