use super::fixtures::Server;
use super::*;
use crate::meta::engine::connect as connect_any;

#[tokio::test]
async fn a_fresh_volume_has_a_setting_a_root_and_a_trash() {
    let server = Server::start();
    let engine = server.engine().await;
    engine.prepare().await.unwrap();
    assert_eq!(engine.load_setting().await.unwrap(), None);
    let root = Attr::new(FileKind::Dir, 0o777, 0, 0, Ino::ROOT, Timestamp::from_secs(5));
    let trash = Attr::new(FileKind::Dir, 0o555, 0, 0, Ino::ROOT, Timestamp::from_secs(5));
    engine.store_setting(b"{one}", &root, Some(&trash)).await.unwrap();
    assert_eq!(server.keys(), ["i1", "i9223372032828243968", "setting"]);
    assert_eq!(engine.load_setting().await.unwrap(), Some(b"{one}".to_vec()));
    assert_eq!(read_one(&engine, Key::Attr(Ino::ROOT)).await, Record::Attr(Some(root)));
    assert_eq!(read_one(&engine, Key::Attr(Ino::TRASH)).await, Record::Attr(Some(trash)));
}

#[tokio::test]
async fn rewriting_the_setting_does_not_change_root_and_trash() {
    let server = Server::start();
    let engine = server.engine().await;
    let (old, new) = (file(), Attr { mode: 1, ..file() });
    engine.store_setting(b"{one}", &old, None).await.unwrap();
    assert_eq!(server.keys(), ["i1", "setting"]);
    engine.store_setting(b"{two}", &new, Some(&old)).await.unwrap();
    engine.store_setting(b"{two}", &new, Some(&new)).await.unwrap();
    assert_eq!(engine.load_setting().await.unwrap(), Some(b"{two}".to_vec()));
    assert_eq!(read_one(&engine, Key::Attr(Ino::ROOT)).await, Record::Attr(Some(old.clone())));
    assert_eq!(read_one(&engine, Key::Attr(Ino::TRASH)).await, Record::Attr(Some(old)));
}

#[tokio::test]
async fn wiping_removes_only_the_keys_of_the_volume() {
    let server = Server::start();
    let engine = server.engine().await;
    server.run::<()>(&["SET", "foreign-key", "1"]);
    server.run::<()>(&["SET", "cache_7", "1"]);
    engine.store_setting(b"{}", &file(), Some(&file())).await.unwrap();
    let changes: Vec<Change> = (10..30_000).map(|i| Change::PutAttr(Ino(i), file())).collect();
    put(&engine, &changes).await;
    put(&engine, &[Change::AddUsage { space: 1, inodes: 1 }]).await;
    engine.put_session(crate::meta::Sid(1), 5, b"{}").await.unwrap();
    engine.wipe().await.unwrap();
    assert_eq!(server.keys(), ["cache_7", "foreign-key"]);
}

#[tokio::test]
async fn the_address_chooses_this_engine() {
    let server = Server::start();
    for url in [server.url(), format!("127.0.0.1:{}/1", server.port)] {
        let engine = connect_any(&url).await.unwrap();
        assert_eq!((engine.name(), engine.address()), ("redis", url.as_str()));
        assert!(engine.properties().usage_in_commit);
    }
    let error = connect_any("gopher://h/1").await.map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("gopher"), "{error}");
}
