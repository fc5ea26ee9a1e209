//! Objects stored as files.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use jfs::object::file::FileStore;
use jfs::object::{GetRequest, ObjectStore, Spec, open};

fn store(dir: &Path) -> FileStore {
    FileStore::new(&format!("{}/", dir.display()), true).unwrap()
}

#[tokio::test]
async fn a_key_is_a_path_and_no_temporary_file_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let key = format!("vol/chunks/0/0/{}", "n".repeat(250));
    store(dir.path()).put(&key, Bytes::from_static(b"body"), 0).await.unwrap();
    assert_eq!(fs::read(dir.path().join(&key)).unwrap(), b"body");
    let names = fs::read_dir(dir.path().join("vol/chunks/0/0")).unwrap();
    assert_eq!(names.count(), 1);
}

#[tokio::test]
async fn temporary_files_are_not_listed() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    store.put("a", Bytes::from_static(b"x"), 0).await.unwrap();
    fs::write(dir.path().join(".jfs.b.tmp.123"), "half").unwrap();
    let listed = store.list("", "", 10).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].key, "a");
}

#[tokio::test]
async fn a_key_cannot_lead_out_of_the_bucket() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir.path().join("bucket"));
    for key in ["../out", "a/../../out", "a//b", "./a", ""] {
        let error = store.put(key, Bytes::from_static(b"x"), 0).await.unwrap_err();
        assert!(error.to_string().contains("cannot be the name of a file"), "{key}: {error}");
    }
    assert!(!dir.path().join("out").exists());
}

#[tokio::test]
async fn a_directory_is_not_an_object_and_is_removed_when_empty() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    store.put("testing/a", Bytes::from_static(b"x"), 0).await.unwrap();
    assert!(matches!(store.get("testing", GetRequest::whole()).await, Err(jfs::Error::NotFound)));
    store.delete("testing/").await.unwrap();
    assert!(dir.path().join("testing/a").exists());
    store.delete("testing/a").await.unwrap();
    store.delete("testing/").await.unwrap();
    assert!(!dir.path().join("testing").exists());
    store.delete("testing/").await.unwrap();
}

#[tokio::test]
async fn the_error_says_why_a_bucket_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "in the way").unwrap();
    let store = store(dir.path());
    let error = store.put("file/a", Bytes::from_static(b"x"), 0).await.unwrap_err();
    let error_message = error.to_string();
    assert!(
        error_message.contains("put file/a") && error_message.contains("Not a directory"),
        "{error_message}"
    );
}

#[test]
fn a_bucket_must_be_an_absolute_path() {
    let error = open(&Spec::new("file", "bucket/")).err().expect("it must be refused");
    assert!(error.to_string().contains("\"bucket/\" is not an absolute path"), "{error}");
}
