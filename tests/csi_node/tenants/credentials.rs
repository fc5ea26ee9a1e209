//! Keys: changed ones are used, wrong ones are refused, and none is ever shown.

use std::fs;
use std::process::Command;
use std::time::Duration;

use tonic::Code;

use crate::csi::{Node, Publication};
use crate::s3::{ACCESS_KEY, OTHER_ACCESS_KEY, OTHER_SECRET_KEY, S3Server, SECRET_KEY};
use crate::support::command::{poll, run};
use crate::support::timeout::{MOUNTED, within};

fn on_s3(node: &Node, server: &S3Server, (access, secret): (&str, &str)) -> Publication {
    node.publication("pvc-1", "web")
        .secret("storage", "s3")
        .secret("bucket", &server.bucket("bucket"))
        .secret("access-key", access)
        .secret("secret-key", secret)
}

fn used_keys(server: &S3Server) -> Vec<String> {
    let seen = server.seen();
    let puts = seen.iter().filter(|one| one.method == "PUT" && one.path.contains("chunks"));
    puts.map(|one| one.header("authorization").to_owned()).collect()
}

fn warnings(node: &Node) -> usize {
    node.log().lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).count()
}

#[test]
fn changed_keys_are_used_without_a_new_mount() {
    within(MOUNTED, || {
        let (node, server) = (Node::start(), S3Server::start());
        let old = on_s3(&node, &server, (ACCESS_KEY, SECRET_KEY));
        node.publish(&old).unwrap();
        let file = fs::File::create(old.target.join("open")).unwrap();
        fs::write(old.target.join("f"), "by the old keys").unwrap();
        assert!(used_keys(&server).iter().all(|key| key.contains(ACCESS_KEY)));

        let new = on_s3(&node, &server, (OTHER_ACCESS_KEY, OTHER_SECRET_KEY));
        node.publish(&new).unwrap();
        let by_new_keys = || {
            fs::write(new.target.join("g"), "by the new keys").unwrap();
            used_keys(&server).iter().any(|key| key.contains(OTHER_ACCESS_KEY))
        };
        assert!(poll(Duration::from_secs(30), by_new_keys));
        file.sync_all().unwrap();
    });
}

#[test]
fn wrong_keys_are_refused_and_the_volume_keeps_its_working_keys() {
    within(MOUNTED, || {
        let (node, server) = (Node::start(), S3Server::start());
        let good = on_s3(&node, &server, (ACCESS_KEY, SECRET_KEY));
        node.publish(&good).unwrap();
        let bad = on_s3(&node, &server, (ACCESS_KEY, "not the secret"));
        let before = warnings(&node);
        let refused = node.publish(&bad).unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(!refused.message().contains("not the secret"), "{refused}");
        // The message is always the same, so that Kubernetes counts one event instead of creating
        // many.
        assert!(refused.message().contains("cannot put a test object"), "{refused}");
        assert_eq!(node.publish(&bad).unwrap_err().message(), refused.message());
        assert_eq!(warnings(&node), before + 2, "one for each attempt: {}", node.log());
        fs::write(good.target.join("f"), "still there").unwrap();
        let mut fresh = bad.clone();
        fresh.volume = "pvc-2".to_owned();
        fresh.target = node.target("fresh");
        node.publish(&fresh).unwrap_err();
        assert!(!fresh.target.exists());
    });
}

#[test]
fn a_secret_for_another_file_system_is_refused() {
    within(MOUNTED, || {
        let node = Node::start();
        node.publish(&node.publication("pvc-1", "web")).unwrap();
        let other = node.publication("pvc-2", "other").secret("name", "another");
        let refused = node.publish(&other).unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("another"), "{refused}");
    });
}

#[test]
fn no_secret_is_in_the_log_the_records_or_the_process_table() {
    within(MOUNTED, || {
        let (mut node, server) = (Node::start(), S3Server::start());
        let pv = on_s3(&node, &server, (ACCESS_KEY, SECRET_KEY))
            .secret("envs", r#"{"META_PASSWORD": "sesame"}"#);
        // Redis has no password, so this fails, and the error has the address.
        node.publish(&pv).unwrap_err();
        let pv = on_s3(&node, &server, (ACCESS_KEY, SECRET_KEY));
        node.publish(&pv).unwrap();
        let mut places = vec![node.log(), fs::read_to_string(pv.target.join(".config")).unwrap()];
        for entry in fs::read_dir(node.path("state/published")).unwrap() {
            places.push(fs::read_to_string(entry.unwrap().path()).unwrap());
        }
        let mut ps = Command::new("ps");
        ps.args(["-o", "args=", "-p", &node.pid().to_string()]);
        places.push(run(ps, Duration::from_secs(20)).ok().stdout);
        places
            .push(fs::read_to_string(format!("/proc/{}/environ", node.pid())).unwrap_or_default());
        node.stop();
        places.push(node.log());
        for secret in [SECRET_KEY, "sesame"] {
            assert!(places.iter().all(|text| !text.contains(secret)), "{secret}");
        }
    });
}
