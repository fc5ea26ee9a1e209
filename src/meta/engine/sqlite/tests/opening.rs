//! Opening databases: addresses, invalid files and table prefixes.

use super::*;
use crate::error::Error;
use crate::meta::engine::connect;

async fn open_error(address: &str) -> String {
    match connect(address).await {
        Ok(_) => panic!("{address} was accepted"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_missing_directory_is_reported() {
    let text = open_error("sqlite3:///nowhere/at/all/meta.db").await;
    assert!(text.contains("/nowhere/at/all"), "{text}");
}

#[tokio::test]
async fn a_directory_is_not_a_database() {
    let dir = tempfile::tempdir().unwrap();
    let text = open_error(&format!("sqlite3://{}", dir.path().display())).await;
    assert!(text.contains("directory"), "{text}");
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_reported_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    let notes = "not a database, not at all\n".repeat(100);
    std::fs::write(&path, &notes).unwrap();
    let text = open_error(&format!("sqlite3://{}", path.display())).await;
    assert!(text.contains("notes.txt") && text.contains("not a SQLite database"), "{text}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), notes);
}

#[tokio::test]
async fn a_new_file_has_no_volume() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir.path().join("new.db"), "").await.unwrap();
    assert_eq!(engine.load_setting().await.unwrap(), None);
    let error = engine.read(&[Key::Attr(Ino::ROOT)]).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("new.db") && text.contains("jfs_node"), "{text}");
}

#[tokio::test]
async fn a_database_with_other_tables_has_no_volume() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE songs (title TEXT)").unwrap();
    let engine = open(&path, "").await.unwrap();
    assert_eq!(engine.load_setting().await.unwrap(), None);
    engine.prepare().await.unwrap();
    let songs: i64 = other.query_row("SELECT count(*) FROM songs", [], |row| row.get(0)).unwrap();
    assert_eq!(songs, 0);
}

#[tokio::test]
async fn a_locked_database_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; CREATE TABLE t (a)")
        .unwrap();
    let text = open(&path, "?_timeout=50").await.err().unwrap().to_string();
    assert!(text.contains("meta.db") && text.contains("locked"), "{text}");
}

#[tokio::test]
async fn the_parameters_of_the_go_client_are_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.db");
    let all = "?cache=shared&_journal=WAL&_timeout=1000&_sync=NORMAL&_cache_size=-4000&_fk=1\
               &max_open_conns=3&max_idle_conns=2&max_idle_time=300&max_life_time=0&_txlock=immediate";
    let engine = open(&path, all).await.unwrap();
    engine.prepare().await.unwrap();
}

#[tokio::test]
async fn other_parameters_are_refused_with_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.db");
    for (parameters, word) in [
        ("?_jurnal=WAL", "_jurnal"),
        ("?_journal=OFF", "_journal"),
        ("?_journal=fast", "_journal"),
        ("?_timeout=soon", "_timeout"),
        ("?vfs=unix-none", "vfs"),
        ("?_locking=EXCLUSIVE", "_locking"),
    ] {
        let error = open(&path, parameters).await.err().unwrap();
        assert!(matches!(error, Error::BadInput(_)), "{error:?}");
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(!path.exists());
}

#[tokio::test]
async fn volumes_with_prefixes_share_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.db");
    let parameters = ["", "?table_prefix=one", "?table_prefix=my-vol"];
    let mut engines = Vec::new();
    for (index, parameters) in parameters.iter().enumerate() {
        let engine = open(&path, parameters).await.unwrap();
        engine.prepare().await.unwrap();
        let json = format!("{{\"Name\": \"{index}\"}}");
        engine.store_setting(json.as_bytes(), &dir_attr(0o777), None).await.unwrap();
        let put = Change::PutEntry(Ino::ROOT, name("f"), file(10 + index as u64));
        engine.begin().commit(&[put]).await.unwrap();
        engines.push(engine);
    }
    for (index, engine) in engines.iter().enumerate() {
        let json = format!("{{\"Name\": \"{index}\"}}");
        assert_eq!(engine.load_setting().await.unwrap().unwrap(), json.as_bytes());
        let found = engine.read(&[Key::Entry(Ino::ROOT, name("f"))]).await.unwrap();
        assert_eq!(found, [Record::Entry(Some(file(10 + index as u64)))]);
        engine.prepare().await.unwrap();
    }
    engines[1].wipe().await.unwrap();
    assert_eq!(engines[1].load_setting().await.unwrap(), None);
    assert!(engines[2].load_setting().await.unwrap().is_some());
    let conn = rusqlite::Connection::open(&path).unwrap();
    let sql = "SELECT count(*) FROM sqlite_master WHERE name = 'IDX_jfs_my-vol_edge_inode'";
    assert_eq!(conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
}
