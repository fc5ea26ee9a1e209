//! Servers that a tenant controls: whatever they send, the driver and the volumes of others keep
//! working.

use std::fs;
use std::time::Duration;

use crate::csi::Node;
use crate::hostile_server::{Harm, Hostile, ten_terabytes};
use crate::support::redis::RedisServer;
use crate::support::timeout::{MOUNTED, within};

/// Maximum memory of the driver in bytes.
const MAX_MEMORY: u64 = 512 << 20;

fn memory(node: &Node) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", node.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

/// Checks that a volume of another tenant works before and after `harm`.
fn other_volumes_survive(harm: impl FnOnce(&Node)) {
    let node = Node::start();
    let other = node.publication("pvc-well", "well");
    node.publish(&other).unwrap();
    fs::write(other.target.join("f"), "before").unwrap();
    let pid = node.pid();
    harm(&node);
    assert_eq!(fs::read(other.target.join("f")).unwrap(), b"before");
    fs::write(other.target.join("g"), vec![1; 1 << 20]).unwrap();
    assert_eq!(fs::read(other.target.join("g")).unwrap().len(), 1 << 20);
    assert!(node.is_ready() && node.pid() == pid, "{}", node.log());
    assert_eq!(node.condition("pvc-well", &other.target), (false, "mounted".to_owned()));
    let memory = memory(&node);
    assert!(memory < MAX_MEMORY, "{memory} bytes");
}

#[test]
fn a_bucket_that_promises_ten_terabytes_fails_only_its_own_volume() {
    within(MOUNTED, || {
        let bucket = Hostile::store(ten_terabytes());
        other_volumes_survive(|node| {
            let url = RedisServer::shared().fresh_url();
            let mut pv = node.publication("pvc-bad", "bad").secret("metaurl", &url);
            let secrets = [
                ("storage", "s3".to_owned()),
                ("bucket", format!("http://{}/bucket?region=x", bucket.address)),
                ("access-key", "a".to_owned()),
                ("secret-key", "b".to_owned()),
            ];
            pv.secrets.extend(secrets.map(|(key, value)| (key.to_owned(), value)));
            pv.flags = vec!["io-retries=0".to_owned()];
            pv.limit = Duration::from_secs(30);
            let refused = node.publish(&pv).unwrap_err();
            assert!(refused.message().contains("10000000000000"), "{refused}\n{}", node.log());
        });
    });
}

#[test]
fn a_redis_that_never_ends_its_reply_fails_only_its_own_volume() {
    within(MOUNTED, || {
        let harms: [(&[u8], &[u8]); 3] = [
            (b"$9223372036854775807\r\n", b"x"),
            (b"", b"*1\r\n"),
            (b"*1000000000\r\n", b":1\r\n"),
        ];
        let servers = harms.map(|(first, then)| {
            let (first, then) = (first.to_vec(), then.to_vec());
            Hostile::start(move |_| Harm::Endless { first: first.clone(), then: then.clone() })
        });
        other_volumes_survive(|node| {
            for server in &servers {
                let url = format!("redis://{}/1", server.address);
                let mut pv = node.publication("pvc-bad", "bad").secret("metaurl", &url);
                pv.limit = Duration::from_secs(30);
                let refused = node.publish(&pv).unwrap_err();
                assert!(refused.message().contains("does not answer as Redis does"), "{refused}");
            }
        });
    });
}
