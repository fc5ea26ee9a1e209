//! The schema: migrated, rejected, and equal to the Go client's.

use rusqlite::Connection;

use super::go_client::Go;
use super::*;

/// Every table with its columns (type, nullness, default, key) and its indexes. The order of
/// columns is left out, since those that are added come last.
fn describe(conn: &Connection) -> Vec<String> {
    let sql = "SELECT concat_ws(' ', m.name, 'column', c.name, c.type, c.\"notnull\", \
                 ifnull(c.dflt_value, '-'), c.pk) \
               FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' \
               UNION ALL \
               SELECT concat_ws(' ', m.name, 'index', x.name, x.\"unique\", x.origin, x.partial, \
                 i.seqno, i.name) \
               FROM sqlite_master m, pragma_index_list(m.name) x, pragma_index_info(x.name) i \
               WHERE m.type = 'table' ORDER BY 1";
    strings(conn, sql)
}

/// The statements that created them.
fn statements(conn: &Connection) -> Vec<String> {
    strings(conn, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
}

fn strings(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(sql).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[tokio::test]
async fn the_schema_is_that_of_the_go_client() {
    let ours = Volume::new().await;
    let theirs = Go::format(&[]);
    let (ours, theirs) = (ours.other_connection(), theirs.connection());
    assert_eq!(describe(&ours), describe(&theirs));
    assert_eq!(statements(&ours), statements(&theirs));
}

#[tokio::test]
async fn preparing_a_volume_of_the_go_client_changes_nothing() {
    let go = Go::format(&[]);
    let before = statements(&go.connection());
    open(&go.database(), "").await.unwrap().prepare().await.unwrap();
    assert_eq!(statements(&go.connection()), before);
}

/// Removes what versions up to 1.0 did not have.
const TO_1_0: &str = "
    ALTER TABLE jfs_node DROP COLUMN atimensec;
    ALTER TABLE jfs_node DROP COLUMN mtimensec;
    ALTER TABLE jfs_node DROP COLUMN ctimensec;
    ALTER TABLE jfs_node DROP COLUMN access_acl_id;
    ALTER TABLE jfs_node DROP COLUMN default_acl_id;
    ALTER TABLE jfs_node DROP COLUMN tier_id;
    DROP INDEX IDX_jfs_chunk_ref_refs;
    DROP TABLE jfs_dir_stats;
    DROP TABLE jfs_dir_quota;
    DROP TABLE jfs_user_group_quota;
    DROP TABLE jfs_detached_node;
    DROP TABLE jfs_acl;
    DROP TABLE jfs_delegation_token;
    DROP TABLE jfs_change_log;";

#[tokio::test]
async fn an_old_volume_is_migrated_and_keeps_its_records() {
    let volume = Volume::new().await;
    volume.apply(&[Change::PutAttr(Ino(5), file_attr())]).await.unwrap();
    let complete = describe(&volume.other_connection());
    volume.other_connection().execute_batch(TO_1_0).unwrap();
    volume.engine.prepare().await.unwrap();

    assert_eq!(describe(&volume.other_connection()), complete);
    let mut attr = file_attr();
    for time in [&mut attr.atime, &mut attr.mtime, &mut attr.ctime] {
        time.nsec -= time.nsec % 1000;
    }
    assert_eq!(volume.read(Key::Attr(Ino(5))).await, Record::Attr(Some(attr)));
    volume.apply(&[Change::PutAttr(Ino(5), file_attr())]).await.unwrap();
    assert_eq!(volume.read(Key::Attr(Ino(5))).await, Record::Attr(Some(file_attr())));
    volume.engine.prepare().await.unwrap();
}

#[tokio::test]
async fn the_go_client_mounts_a_migrated_volume() {
    let go = Go::format(&[]);
    go.connection().execute_batch(TO_1_0).unwrap();
    let engine = open(&go.database(), "").await.unwrap();
    engine.prepare().await.unwrap();
    engine.close().await.unwrap();
    let status = go.run(&["status", &go.address()]);
    assert!(status.contains("\"Name\": \"peer\""), "{status}");
    let mount = go.mount();
    std::fs::write(mount.path().join("f"), "x").unwrap();
}

#[tokio::test]
async fn additional_tables_and_columns_are_left_alone() {
    let volume = Volume::new().await;
    let more = "CREATE TABLE jfs_future (a); ALTER TABLE jfs_edge ADD colour TEXT;";
    volume.other_connection().execute_batch(more).unwrap();
    let before = statements(&volume.other_connection());
    volume.engine.prepare().await.unwrap();
    assert_eq!(statements(&volume.other_connection()), before);
}

async fn prepare_error(sql: &str) -> String {
    let volume = Volume::new().await;
    volume.other_connection().execute_batch(sql).unwrap();
    let before = statements(&volume.other_connection());
    let error = volume.engine.prepare().await.unwrap_err();
    assert_eq!(statements(&volume.other_connection()), before, "nothing is changed");
    error.to_string()
}

#[tokio::test]
async fn an_incompatible_table_is_an_error_with_table_and_column() {
    let text = prepare_error(
        "DROP TABLE jfs_symlink; CREATE TABLE jfs_symlink (inode INTEGER PRIMARY KEY, target TEXT)",
    )
    .await;
    assert!(
        text.contains("jfs_symlink") && text.contains("target") && text.contains("BLOB"),
        "{text}"
    );

    let text = prepare_error("ALTER TABLE jfs_node DROP COLUMN nlink").await;
    assert!(text.contains("jfs_node") && text.contains("nlink"), "{text}");

    let text = prepare_error("DROP TABLE jfs_delfile; CREATE TABLE jfs_delfile (inode INTEGER NOT NULL, length INTEGER, expire INTEGER)").await;
    assert!(
        text.contains("jfs_delfile") && text.contains("inode") && text.contains("primary key"),
        "{text}"
    );
}

#[tokio::test]
async fn two_clients_can_prepare_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.db");
    let (one, two) = (open(&path, "").await.unwrap(), open(&path, "").await.unwrap());
    let (first, second) = tokio::join!(one.prepare(), two.prepare());
    first.unwrap();
    second.unwrap();
}
