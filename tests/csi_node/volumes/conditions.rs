//! The condition of a volume when something is wrong.

use std::fs;
use std::time::Duration;

use tonic::Code;

use crate::csi::Node;
use crate::driver::process::get;
use crate::support::command::poll;
use crate::support::connection::Connection;
use crate::support::redis::RedisServer;
use crate::support::timeout::{MOUNTED, within};

/// Returns the number of log lines that contain a text.
fn lines(node: &Node, what: &str) -> usize {
    node.log().lines().filter(|line| line.contains(what)).count()
}

#[test]
fn unreachable_metadata_is_reported_as_the_cause() {
    within(MOUNTED, || {
        let node = Node::start();
        let mut pv = node.publication("pvc-1", "web").secret("metaurl", "redis://127.0.0.1:1/1");
        pv.limit = Duration::from_secs(30);
        let refused = node.publish(&pv).unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        assert!(refused.message().contains("127.0.0.1:1"), "{refused}");
        assert!(!pv.target.exists());
        assert_eq!(node.stats("pvc-1", &pv.target).unwrap_err().code(), Code::NotFound);
    });
}

#[test]
fn metadata_that_becomes_unreachable_shows_in_the_condition_until_it_is_back() {
    within(MOUNTED, || {
        let mut redis = RedisServer::start();
        let node = Node::start_on(&redis.url(1));
        let pv = node.publication("pvc-1", "web");
        node.publish(&pv).unwrap();
        fs::write(pv.target.join("f"), "x").unwrap();
        redis.stop();
        let (abnormal, cause) = node.condition("pvc-1", &pv.target);
        assert!(abnormal && cause.contains("metadata unreachable"), "{cause}");
        let is_logged = || {
            node.condition("pvc-1", &pv.target);
            lines(&node, "the metadata cannot be reached") > 0
        };
        assert!(poll(Duration::from_mins(1), is_logged), "{}", node.log());
        redis.restart();
        let is_normal = || !node.condition("pvc-1", &pv.target).0;
        assert!(poll(Duration::from_mins(1), is_normal));
        assert_eq!(fs::read(pv.target.join("f")).unwrap(), b"x");
        assert_eq!(lines(&node, "the metadata cannot be reached"), 1, "{}", node.log());
        assert_eq!(lines(&node, "the metadata can be reached again"), 1, "{}", node.log());
    });
}

#[test]
fn a_failing_object_store_shows_in_the_condition() {
    within(MOUNTED, || {
        let node = Node::start();
        let mut pv = node.publication("pvc-1", "web");
        pv.flags = vec!["io-retries=1".to_owned()];
        node.publish(&pv).unwrap();
        // The bucket is no longer a directory.
        let (bucket, away) = (node.path("bucket"), node.path("away"));
        fs::rename(&bucket, &away).unwrap();
        fs::write(&bucket, "").unwrap();
        let _ = fs::write(pv.target.join("f"), vec![1; 1 << 20]);
        let (abnormal, cause) = node.condition("pvc-1", &pv.target);
        assert!(abnormal && cause.contains("object store failing"), "{cause}");
        fs::remove_file(&bucket).unwrap();
        fs::rename(&away, &bucket).unwrap();
        fs::write(pv.target.join("g"), vec![1; 1 << 20]).unwrap();
        assert_eq!(node.condition("pvc-1", &pv.target), (false, "mounted".to_owned()));
        assert_eq!(lines(&node, "the object store fails"), 1, "{}", node.log());
        assert_eq!(lines(&node, "the object store works again"), 1, "{}", node.log());
    });
}

#[test]
fn an_unusable_cache_directory_shows_in_the_condition() {
    within(MOUNTED, || {
        let mut node = Node::start();
        assert!(node.stop());
        node.restart(&["--allow-mount-options=cache-dir"]);
        fs::write(node.path("file"), "").unwrap();
        let mut pv = node.publication("pvc-1", "web");
        let dir = node.path("file/cache");
        pv.flags = vec![format!("cache-dir={}", dir.display())];
        node.publish(&pv).unwrap();
        let (abnormal, cause) = node.condition("pvc-1", &pv.target);
        assert!(abnormal && cause.contains("cache directory"), "{cause}");
        fs::write(pv.target.join("f"), "works without it").unwrap();
    });
}

#[test]
fn a_full_quota_shows_in_the_condition() {
    within(MOUNTED, || {
        let node = Node::start();
        let pv = node.publication("pvc-1", "web").attribute("capacity", "1048576");
        node.publish(&pv).unwrap();
        fs::write(pv.target.join("f"), vec![1; 1 << 20]).unwrap();
        let full = || node.condition("pvc-1", &pv.target).1.contains("full");
        assert!(poll(Duration::from_secs(30), full), "{:?}", node.condition("pvc-1", &pv.target));
        full();
        assert_eq!(lines(&node, "the volume is abnormal"), 1, "{}", node.log());
        let page = get(node.address("/metrics"), "/metrics");
        let is_shown =
            |line: &str| line.starts_with("juicefs_volume_abnormal{") && line.ends_with(" 1");
        assert!(page.lines().any(is_shown), "{page}");
        fs::remove_file(pv.target.join("f")).unwrap();
        assert!(poll(Duration::from_secs(30), || !full()), "{}", node.log());
        assert_eq!(lines(&node, "the volume is normal again"), 1, "{}", node.log());
    });
}

#[test]
fn a_lost_mount_is_mounted_again_when_it_is_published_again() {
    within(MOUNTED, || {
        let node = Node::start();
        let (one, two) = (node.publication("pvc-1", "one"), node.publication("pvc-1", "two"));
        node.publish(&one).unwrap();
        node.publish(&two).unwrap();
        fs::write(one.target.join("f"), "x").unwrap();
        let session = crate::csi::mounts_below(&node.path("state")).remove(0);
        Connection::of(&session).unwrap().abort();
        assert!(poll(Duration::from_secs(20), || node.condition("pvc-1", &one.target).0));
        node.publish(&one).unwrap();
        for target in [&one.target, &two.target] {
            assert_eq!(fs::read(target.join("f")).unwrap(), b"x");
        }
        let (abnormal, message) = node.condition("pvc-1", &one.target);
        assert!(!abnormal && message.contains("mounted again after a failure"), "{message}");
    });
}
