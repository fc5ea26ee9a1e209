//! Rows that cannot be decoded are errors that name the row.

use super::*;
use crate::error::Error;
use crate::meta::engine::{Cursor, InvalidEntry};
use crate::meta::record::QuotaKey;

async fn damaged(volume: &Volume, key: Key, words: &[&str]) {
    let error = volume.engine.read(&[key]).await.unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text} lacks one of {words:?}");
}

#[tokio::test]
async fn a_chunk_of_the_wrong_length_names_its_table_and_inode() {
    let volume = Volume::new().await;
    let sql = "INSERT INTO jfs_chunk (inode, indx, slices) VALUES (5, 3, zeroblob(25))";
    volume.other_connection().execute_batch(sql).unwrap();
    damaged(&volume, Key::Chunk(Ino(5), 3), &["table chunk", "inode 5", "indx 3", "25 bytes"])
        .await;
}

#[tokio::test]
async fn a_node_with_invalid_columns_names_them() {
    let volume = Volume::new().await;
    for ino in [5, 6, 7] {
        volume.apply(&[Change::PutAttr(Ino(ino), file_attr())]).await.unwrap();
    }
    volume
        .other_connection()
        .execute_batch(
            "UPDATE jfs_node SET type = 9 WHERE inode = 5;
             UPDATE jfs_node SET uid = -1 WHERE inode = 6;
             UPDATE jfs_node SET mtime = 'noon' WHERE inode = 7;",
        )
        .unwrap();
    damaged(&volume, Key::Attr(Ino(5)), &["table node", "inode 5", "type", "9"]).await;
    damaged(&volume, Key::Attr(Ino(6)), &["table node", "inode 6", "uid", "-1"]).await;
    damaged(&volume, Key::Attr(Ino(7)), &["table node", "inode 7", "mtime", "text"]).await;
}

#[tokio::test]
async fn an_entry_of_an_unknown_type_names_directory_and_name() {
    let volume = Volume::new().await;
    let sql = "INSERT INTO jfs_edge (parent, name, inode, type) VALUES (1, x'6162', 5, 0)";
    volume.other_connection().execute_batch(sql).unwrap();
    damaged(&volume, Key::Entry(Ino(1), name("ab")), &["table edge", "parent 1", "ab"]).await;
    let page = volume.engine.list(Ino(1), &Cursor::Start, 10).await.unwrap();
    assert!(page.entries.is_empty());
    assert_eq!(page.invalid, [InvalidEntry { name: "ab".into(), entry: None }]);
}

#[tokio::test]
async fn damaged_locks_rules_and_quotas_are_named() {
    let volume = Volume::new().await;
    volume
        .other_connection()
        .execute_batch(
            "INSERT INTO jfs_flock (inode, sid, owner, ltype) VALUES (5, 1, 2, 88);
             INSERT INTO jfs_plock (inode, sid, owner, records) VALUES (5, 1, 2, x'00');
             INSERT INTO jfs_acl (id, owner, named_users) VALUES (4, 7, x'00');
             INSERT INTO jfs_dir_quota VALUES (5, 'x', 0, 0, 0);
             INSERT INTO jfs_delslices VALUES (9, 1, x'0102');",
        )
        .unwrap();
    damaged(&volume, Key::Flocks(Ino(5)), &["table flock", "inode 5"]).await;
    damaged(&volume, Key::Plocks(Ino(5)), &["table plock", "inode 5"]).await;
    damaged(&volume, Key::Acl(4), &["table acl", "id 4", "named_users"]).await;
    damaged(&volume, Key::Quota(QuotaKey::Dir(Ino(5))), &["quota Dir(Ino(5))", "max_space"]).await;
    let error = volume.engine.delayed_slices(10, 10).await.unwrap_err();
    assert!(error.to_string().contains("chunkid 9"), "{error}");
}
