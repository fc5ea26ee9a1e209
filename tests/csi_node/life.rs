//! The program: its pages, its registration, its socket.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::csi::Node;
use crate::support::command::{poll, run};
use crate::support::timeout::{MOUNTED, within};

/// The address that the log names for the pages.
fn pages(node: &Node) -> String {
    let log = node.log();
    let at = log.rfind("http://127.0.0.1:").expect("the log names the address");
    log[at + 7..].split('/').next().unwrap().trim().to_owned()
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn health_and_the_figures_of_all_volumes_are_on_one_port() {
    within(MOUNTED, || {
        let node = Node::start();
        let address = pages(&node);
        assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
        assert!(get(&address, "/readyz").starts_with("HTTP/1.1 200"));
        for i in 1..=2 {
            let pv = node
                .publication(&format!("pvc-{i}"), &format!("pod-{i}"))
                .attribute("csi.storage.k8s.io/pod.name", &format!("web-{i}"))
                .attribute("csi.storage.k8s.io/pvc/name", "data");
            node.publish(&pv).unwrap();
            fs::write(pv.target.join("f"), "x").unwrap();
        }
        let page = get(&address, "/metrics");
        let line =
            |words: &[&str]| page.lines().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(
            line(&[
                "juicefs_fuse_written_size_bytes",
                "volume_id=\"pvc-1\"",
                "pod=\"web-1\"",
                "pvc=\"data\""
            ]),
            "{page}"
        );
        assert!(line(&["juicefs_object_request_durations", "vol_name=\"vol\""]), "{page}");
        let types: Vec<&str> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let mut once = types.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(types.len(), once.len(), "every family is there once");
    });
}

#[test]
fn a_socket_in_use_is_not_taken_and_one_left_behind_is() {
    within(MOUNTED, || {
        let mut node = Node::start();
        let mut second = Command::new(env!("CARGO_BIN_EXE_jfs-csi"));
        second.args(["--endpoint", &format!("unix://{}", node.path("csi.sock").display())]);
        second.args(["--nodeid", "n", "--http", "127.0.0.1:0", "--state-dir"]);
        second.arg(node.path("state2"));
        let refused = run(second, Duration::from_secs(30)).refused();
        let said = refused.stderr + &refused.stdout;
        assert!(said.contains("csi.sock"), "{said}");
        assert!(node.is_ready());
        node.kill();
        node.restart(&[]);
    });
}

#[test]
fn the_driver_registers_itself_with_kubelet() {
    within(MOUNTED, || {
        let mut node = Node::start();
        assert!(node.stop());
        fs::create_dir(node.path("registry")).unwrap();
        let registry = node.path("registry").display().to_string();
        node.restart(&[
            "--kubelet-registration-path",
            "/var/lib/kubelet/plugins/csi.juicefs.com/csi.sock",
            "--plugin-registry-dir",
            &registry,
        ]);
        let socket = node.path("registry/csi.juicefs.com-reg.sock");
        assert!(poll(Duration::from_secs(20), || socket.exists()));
    });
}
