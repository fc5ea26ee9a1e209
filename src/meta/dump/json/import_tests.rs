use super::*;
use crate::meta::dump::prepare;
use crate::meta::engine::{Engine, connect};
use crate::meta::record::FileKind;

const HEAD: &str = r#"{"Setting":{"Name":"vol","UUID":"fb853279-f8fe-462b-a38e-73264b206aaf","Storage":"file","Bucket":"/tmp/","BlockSize":4096,"TrashDays":1,"DirStats":true,"EnableACL":true},
"Counters":{"usedSpace":0,"usedInodes":0,"nextInodes":100,"nextChunk":50,"nextSession":3,"nextTrash":0},
"Sustained":[],"DelFiles":[{"inode":90,"length":5,"expire":7}],"Quotas":{"2":{"maxSpace":-1,"maxInodes":10}},"#;

fn attr(inode: u64, kind: &str) -> String {
    let length = if kind == "regular" { 10 } else { 0 };
    format!(
        r#""attr":{{"inode":{inode},"type":"{kind}","mode":420,"uid":5,"gid":6,"atime":1,"mtime":2,"ctime":3,"nlink":9,"length":{length}}}"#
    )
}

fn dir(inode: u64, entries: &str) -> String {
    format!("{{{},\"entries\":{{{entries}}}}}", attr(inode, "directory"))
}

fn file(inode: u64, more: &str) -> String {
    format!("{{{}{more}}}", attr(inode, "regular"))
}

fn dump(entries: &str) -> String {
    format!("{HEAD}\"FSTree\":{}}}", dir(1, entries))
}

/// Returns an empty store in memory.
async fn empty() -> Arc<dyn Engine> {
    connect(&format!("memkv://{}", uuid::Uuid::new_v4())).await.unwrap()
}

async fn load(text: &str) -> Result<Arc<dyn Engine>> {
    let engine = empty().await;
    prepare(engine.as_ref()).await?;
    let input = Box::new(std::io::Cursor::new(text.to_owned()));
    import(&Loader::new(Arc::clone(&engine), 2), input, Arc::default()).await?;
    Ok(engine)
}

async fn stored(engine: &Arc<dyn Engine>, ino: u64) -> Attr {
    match engine.read(&[Key::Attr(Ino(ino))]).await.unwrap().pop() {
        Some(Record::Attr(Some(attr))) => attr,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn links_usage_and_references_are_counted_anew() {
    let chunk = r#","chunks":[{"index":0,"slices":[{"id":70,"size":10,"len":10}]}]"#;
    let below = format!("\"a\":{},\"b\":{}", file(3, chunk), file(4, chunk));
    let text = dump(&format!("\"d\":{},\"e\":{}", dir(2, &below), file(3, chunk)));
    let engine = load(&text).await.unwrap();
    let (root, linked) = (stored(&engine, 1).await, stored(&engine, 3).await);
    assert_eq!((root.nlink, root.kind, root.parent), (3, FileKind::Dir, Ino(1)));
    assert_eq!((linked.nlink, linked.parent, linked.length), (2, Ino::NONE, 10));
    let keys = [
        Key::Parents(Ino(3)),
        Key::SliceRef(crate::meta::SliceId(70), 10),
        Key::Quota(QuotaKey::Dir(Ino(2))),
    ];
    let mut records = engine.read(&keys).await.unwrap();
    let quota = Quota { max_space: -1, max_inodes: 10, used_space: 8192, used_inodes: 2 };
    assert_eq!(records.pop(), Some(Record::Quota(Some(quota))));
    assert_eq!(records.pop(), Some(Record::SliceRef(2)));
    assert_eq!(records.pop(), Some(Record::Parents(vec![(Ino(1), 1), (Ino(2), 1)])));
    for (counter, value) in [
        (Counter::UsedSpace, 3 * 4096),
        (Counter::TotalInodes, 3),
        // As dumped: ids are not used again.
        (Counter::NextInode, 100),
        (Counter::NextChunk, 71),
        (Counter::NextSession, 3),
        (Counter::UnfinishedLoad, 0),
    ] {
        assert_eq!(engine.counter(counter).await.unwrap(), value, "{counter:?}");
    }
    assert_eq!(engine.deleted_files(i64::MAX, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn fields_may_come_in_any_order_and_unknown_ones_are_skipped() {
    let entry = format!("{{\"new\":[{{}}],\"symlink\":\"a%20b\",{}}}", attr(3, "symlink"));
    let engine = load(&dump(&format!("\"l\":{entry}"))).await.unwrap();
    let target = engine.read(&[Key::Symlink(Ino(3))]).await.unwrap().pop();
    assert_eq!(target, Some(Record::Symlink(Some("a b".into()))));
    assert_eq!(stored(&engine, 3).await.length, 3);
}

#[tokio::test]
async fn the_top_of_a_subdirectory_becomes_the_root() {
    let text = format!("{HEAD}\"FSTree\":{}}}", dir(57, &format!("\"a\":{}", file(58, ""))));
    let engine = load(&text).await.unwrap();
    assert!(stored(&engine, 1).await.is_dir());
    assert_eq!(stored(&engine, 58).await.parent, Ino::ROOT);
}

#[tokio::test]
async fn impossible_dumps_are_refused_with_the_reason() {
    let twice = format!("\"a\":{0},\"b\":{0}", dir(2, ""));
    let looped = format!("\"a\":{}", dir(2, &format!("\"b\":{}", dir(2, ""))));
    let two_kinds = format!("\"a\":{},\"b\":{{{}}}", file(2, ""), attr(2, "fifo"));
    let slice = |slice: &str| {
        format!("\"a\":{}", file(2, &format!(",\"chunks\":[{{\"index\":0,\"slices\":[{slice}]}}]")))
    };
    for (entries, reason) in [
        (twice, "directory 2 comes twice"),
        (looped, "directory 2 comes twice"),
        (two_kinds, "inode 2"),
        (format!("\"a\":{}", dir(1, "")), "inode 1 cannot have a name"),
        (format!("\"a\":{}", file(0, "")), "inode 0 cannot have a name"),
        (format!("\"a\":{}", file(u64::MAX, "")), "cannot have a name"),
        (format!("\"a\":{}", dir(Ino::TRASH.0 + 5, "")), "can only be in the trash"),
        (format!("\"a/b\":{}", file(2, "")), "a/b"),
        (format!("\"a%00\":{}", file(2, "")), "invalid argument"),
        (format!("\"%2E%2E\":{}", file(2, "")), "invalid argument"),
        (format!("\"\":{}", file(2, "")), "invalid argument"),
        (format!("\"{}\":{}", "x".repeat(256), file(2, "")), "name too long"),
        (format!("\"b\":{0},\"a\":{1},\"b\":{1}", file(2, ""), file(3, "")), "second one"),
        ("\"a\":{}".to_owned(), "without attr"),
        ("\"a\":null".to_owned(), "expected '{'"),
        ("\"a\":{\"entries\":{}}".to_owned(), "attr must come before entries"),
        (format!("\"a\":{{{},\"entries\":{{}}}}", attr(2, "fifo")), "is no directory"),
        (format!("\"a\":{{{}}}", attr(2, "door")), "unknown type"),
        (slice(r#"{"id":1,"size":1,"len":4294967295}"#), "is impossible"),
        (slice(r#"{"id":18446744073709551615,"size":1,"len":1}"#), "is impossible"),
        (slice(r#"{"id":-1,"size":1,"len":1}"#), "byte "),
    ] {
        let error = load(&dump(&entries)).await.err().unwrap_or_else(|| panic!("{entries}"));
        assert!(error.to_string().contains(reason), "{entries}: {error}");
    }
}

#[tokio::test]
async fn a_deep_tree_needs_no_stack() {
    let depth = 50_000;
    let mut text = format!("{HEAD}\"FSTree\":{{{}", attr(1, "directory"));
    for ino in 2..depth {
        text.push_str(",\"entries\":{\"a\":{");
        text.push_str(&attr(ino, "directory"));
    }
    for _ in 2..depth {
        text.push_str("}}");
    }
    text.push_str("}}");
    let engine = load(&text).await.unwrap();
    assert_eq!(stored(&engine, depth - 1).await.parent, Ino(depth - 2));
}

#[tokio::test]
async fn a_store_with_an_unfinished_load_is_cleaned_only_when_that_load_has_ended() {
    let engine = empty().await;
    prepare(engine.as_ref()).await.unwrap();
    let error = prepare(engine.as_ref()).await.unwrap_err();
    assert!(error.to_string().contains("run this again in"), "{error}");
    engine.put_stored(vec![Stored::Counter(Counter::UnfinishedLoad, 1)]).await.unwrap();
    engine.put_stored(vec![Stored::Symlink(Ino(7), "x".into())]).await.unwrap();
    prepare(engine.as_ref()).await.unwrap();
    let left = engine.read(&[Key::Symlink(Ino(7))]).await.unwrap().pop();
    assert_eq!(left, Some(Record::Symlink(None)));
    assert!(engine.load_setting().await.unwrap().is_none());
}
