//! What the driver shows over HTTP and in the virtual files of volumes, and to whom.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::csi::Node;
use crate::support::command::run;
use crate::support::juicefs;
use crate::support::timeout::{MOUNTED, within};

/// The time limit of a healthy endpoint on a busy machine. Kubelet's is shorter.
const PATIENCE: Duration = Duration::from_secs(20);

fn request(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap_or_else(|error| panic!("{path}: {error}"));
    response
}

fn assert_healthy(node: &Node) {
    let health = node.address("/healthz");
    assert!(request(health, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(request(health, "/readyz").starts_with("HTTP/1.1 200"));
}

#[test]
fn probes_are_answered_while_clients_hold_many_connections() {
    within(MOUNTED, || {
        let node = Node::start();
        node.publish(&node.publication("pvc-1", "web")).unwrap();
        let (metrics, health) = (node.address("/metrics"), node.address("/healthz"));
        let mut held = Vec::new();
        for _ in 0..300 {
            for address in [metrics, health] {
                // Sends nothing, half a request, or a request without reading the response.
                for text in ["", "GET /met", "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"] {
                    let mut stream = TcpStream::connect(address).unwrap();
                    // It may be closed already, as there are too many.
                    let _ = stream.write_all(text.as_bytes());
                    held.push(stream);
                }
            }
        }
        assert_healthy(&node);
        let page = request(metrics, "/metrics");
        assert!(page.contains("volume_id=\"pvc-1\""), "{page}");
        let open = fs::read_dir(format!("/proc/{}/fd", node.pid())).unwrap().count();
        assert!(open < 200, "{open} descriptors are open");
        drop(held);
        assert_healthy(&node);
        assert!(request(health, "/metrics").starts_with("HTTP/1.1 404"));
        assert!(request(metrics, "/healthz").starts_with("HTTP/1.1 404"));
    });
}

#[test]
fn virtual_files_show_only_their_own_volume() {
    within(MOUNTED, || {
        let node = Node::start();
        let (mine, other) = (node.publication("pvc-1", "mine"), node.publication("pvc-2", "other"));
        node.publish(&mine).unwrap();
        node.publish(&other).unwrap();
        fs::write(other.target.join("theirs"), vec![1; 5 << 20]).unwrap();
        let names: Vec<_> = fs::read_dir(&mine.target).unwrap().collect();
        assert!(names.is_empty(), "listing the volume shows {names:?}");

        let config = fs::read_to_string(mine.target.join(".config")).unwrap();
        let folder = node.path("").display().to_string();
        for word in ["Bucket", "AccessKey", "UUID", "Pid", "Mountpoint", "CacheDir", "Sid", &folder]
        {
            assert!(!config.contains(word), "{word} in {config}");
        }
        assert!(config.contains("\"BlockSize\""), "{config}");
        let stats = fs::read_to_string(mine.target.join(".stats")).unwrap();
        for word in ["used_space", "used_inodes", "quota", "object_request", "pvc-2"] {
            assert!(!stats.contains(word), "{word} in {stats}");
        }
        assert!(stats.contains("juicefs_fuse_ops"), "{stats}");
        let log = fs::metadata(mine.target.join(".accesslog")).unwrap();
        assert_eq!(log.permissions().mode() & 0o777, 0o400);

        // The JuiceFS tools find what they need.
        fs::write(mine.target.join("f"), "x").unwrap();
        let point = mine.target.display().to_string();
        for words in [
            &["info", &format!("{point}/f")][..],
            &["warmup", &point],
            &["rmr", &format!("{point}/f")],
        ] {
            run(juicefs::command(words), Duration::from_mins(1)).ok();
        }
        assert!(!mine.target.join("f").exists());
    });
}

#[test]
fn virtual_files_can_be_disabled() {
    within(MOUNTED, || {
        let node = Node::start_with_options(&["--virtual-files", "none"]);
        let pv = node.publication("pvc-1", "web");
        node.publish(&pv).unwrap();
        for name in [".config", ".stats", ".accesslog", ".control"] {
            assert!(!pv.target.join(name).exists(), "{name}");
            fs::write(pv.target.join(name), name).unwrap();
            assert_eq!(fs::read_to_string(pv.target.join(name)).unwrap(), name);
        }
    });
}
