//! The CSI driver is killed, restarted and replaced while pods use their volumes.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::csi::{Node, mounts_below};
use crate::support::command::{kill_group, poll, run};
use crate::support::fixture::PATIENCE;
use crate::support::timeout::{MOUNTED, within};

/// The keeper of a node.
pub struct Keeper {
    process: Child,
    socket: PathBuf,
}

impl Keeper {
    pub fn start(node: &Node) -> Self {
        let socket = node.path("keeper/k.sock");
        let mut keeper = Self { process: spawn(&socket), socket };
        keeper.wait();
        keeper
    }

    fn wait(&mut self) {
        assert!(poll(PATIENCE, || self.socket.exists()), "the keeper does not start");
    }

    pub fn option(&self) -> [&str; 2] {
        ["--keeper", self.socket.to_str().unwrap()]
    }

    fn restart(&mut self) {
        kill_group(&mut self.process);
        let _ = fs::remove_file(&self.socket);
        self.process = spawn(&self.socket);
        self.wait();
    }
}

fn spawn(socket: &std::path::Path) -> Child {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(env!("CARGO_BIN_EXE_jfs-keeper"));
    command.arg("--socket").arg(socket).process_group(0).spawn().unwrap()
}

impl Drop for Keeper {
    fn drop(&mut self) {
        kill_group(&mut self.process);
    }
}

/// A program in a pod that has a file open and appends lines to it. It is a process of its own: one
/// that starts the driver must not hold files of the mount, which it flushes when it executes the
/// driver.
struct Pod(Child);

impl Pod {
    fn start(file: &std::path::Path) -> Self {
        let script = r#"exec 3>>"$1"
            while read -r line; do echo "$line" >&3 && sync "$1" && echo done || echo failed; done"#;
        let mut command = Command::new("sh");
        command.args(["-c", script, "pod"]).arg(file);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    #[track_caller]
    fn append(&mut self, line: &str) {
        self.0.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = [0; 5];
        self.0.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"done\n");
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A node whose driver has a keeper.
fn node(environment: &[(&str, &str)]) -> (Node, Keeper) {
    let mut node = Node::start();
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    node.environment = environment.iter().map(owned).collect();
    let keeper = Keeper::start(&node);
    assert!(node.stop());
    node.restart(&keeper.option());
    (node, keeper)
}

#[test]
fn pods_go_on_when_the_driver_is_killed_or_restarted() {
    pods_go_on(&[]);
}

#[test]
fn pods_go_on_without_resend() {
    pods_go_on(&[("JFS_NO_RESEND", "1")]);
}

fn pods_go_on(environment: &'static [(&'static str, &'static str)]) {
    within(MOUNTED, move || {
        let (mut node, keeper) = node(environment);
        let (one, two) = (node.publication("pvc-1", "one"), node.publication("pvc-1", "two"));
        let other = node.publication("pvc-2", "other");
        for publication in [&one, &two, &other] {
            node.publish(publication).unwrap();
        }
        let path = one.target.join("f");
        let mut pod = Pod::start(&path);
        let mut expected = String::new();
        for round in 0..4 {
            pod.append(&format!("round {round}"));
            let _ = writeln!(expected, "round {round}");
            if round % 2 == 0 {
                node.kill();
            } else {
                assert!(node.stop(), "{}", node.log());
            }
            node.restart(&keeper.option());
            assert_eq!(fs::read_to_string(&path).unwrap(), expected, "{}", node.log());
            fs::write(other.target.join("g"), &expected).unwrap();
            assert_eq!(fs::read_to_string(two.target.join("f")).unwrap(), expected);
            assert!(!node.condition("pvc-1", &one.target).0);
        }
        pod.append("end");
        drop(pod);
        // The driver knows the volumes as if it had published them itself.
        node.publish(&one).unwrap();
        for (volume, target) in [("pvc-1", &one), ("pvc-1", &two), ("pvc-2", &other)] {
            node.unpublish(volume, &target.target).unwrap();
        }
        assert!(mounts_below(&node.path("")).is_empty(), "{}", node.log());
        assert!(!node.log().contains("published again"), "{}", node.log());
        assert!(!node.log().contains("does not survive"), "{}", node.log());
    });
}

#[test]
fn a_driver_that_crashes_starts_again_within_its_container() {
    within(MOUNTED, || {
        let mut node = Node::start();
        let keeper = Keeper::start(&node);
        assert!(node.stop());
        let mut options = keeper.option().to_vec();
        options.push("--restart-after-crash");
        node.restart(&options);
        let pv = node.publication("pvc-1", "one");
        node.publish(&pv).unwrap();
        let mut pod = Pod::start(&pv.target.join("f"));
        let mut expected = String::new();
        for round in 0..3 {
            pod.append(&format!("round {round}"));
            let _ = writeln!(expected, "round {round}");
            let before = node.log().matches("serving at unix:").count();
            let driver = child_of(node.pid());
            Command::new("kill").arg("-9").arg(driver.to_string()).status().unwrap();
            let serves_again = || node.log().matches("serving at unix:").count() > before;
            assert!(poll(PATIENCE, serves_again), "{}", node.log());
        }
        pod.append("end");
        expected.push_str("end\n");
        assert_eq!(fs::read_to_string(pv.target.join("f")).unwrap(), expected);
        drop(pod);
        node.unpublish("pvc-1", &pv.target).unwrap();
        assert!(node.stop(), "{}", node.log());
    });
}

/// Returns the only child of a process.
fn child_of(pid: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.trim().parse().unwrap()
}

#[test]
fn a_driver_that_is_replaced_stands_by_and_follows_if_the_new_one_dies() {
    within(MOUNTED, || {
        let mut node = Node::start();
        let keeper = Keeper::start(&node);
        assert!(node.stop());
        let pod = |uid: &str| vec![("POD_UID".to_owned(), uid.to_owned())];
        node.environment = pod("one");
        node.restart(&keeper.option());
        let pv = node.publication("pvc-1", "one");
        node.publish(&pv).unwrap();
        let mut program = Pod::start(&pv.target.join("f"));
        program.append("first");
        node.environment = pod("two");
        let mut old = node.surge(&keeper.option());
        assert!(poll(PATIENCE, || node.log().contains("standing by")), "{}", node.log());
        program.append("second");
        assert_eq!(old.try_wait().unwrap(), None, "{}", node.log());
        // The new driver knows the volume.
        node.publish(&pv).unwrap();
        node.kill();
        let serves_again = || node.log().contains("is gone: serving again");
        assert!(poll(PATIENCE, serves_again), "{}", node.log());
        program.append("third");
        assert_eq!(fs::read(pv.target.join("f")).unwrap(), b"first\nsecond\nthird\n");
        drop(program);
        kill_group(&mut old);
        node.restart(&keeper.option());
        node.unpublish("pvc-1", &pv.target).unwrap();
    });
}

#[test]
fn a_keeper_that_comes_back_holds_the_mounts_again() {
    within(MOUNTED, || {
        let (mut node, mut keeper) = node(&[]);
        let pv = node.publication("pvc-1", "one");
        node.publish(&pv).unwrap();
        let protected = |node: &Node| {
            let page = metrics(node);
            let line = page.lines().find(|line| line.starts_with("juicefs_volume_protected{"));
            line.is_some_and(|line| line.ends_with(" 1"))
        };
        assert!(protected(&node), "{}", metrics(&node));
        keeper.restart();
        assert!(poll(PATIENCE, || node.log().contains("holds the mounts again")), "{}", node.log());
        assert!(protected(&node));
        let mut pod = Pod::start(&pv.target.join("f"));
        pod.append("before");
        node.kill();
        node.restart(&keeper.option());
        pod.append("after");
        assert_eq!(fs::read(pv.target.join("f")).unwrap(), b"before\nafter\n");
        drop(pod);
        node.unpublish("pvc-1", &pv.target).unwrap();
    });
}

/// As in a rollout whose new pod starts while the keeper is being replaced: the driver that still
/// serves goes on.
#[test]
fn a_driver_that_starts_beside_another_and_is_refused_leaves_its_mounts_alone() {
    within(MOUNTED, || {
        let node = Node::start();
        let one = node.publication("pvc-1", "one");
        node.publish(&one).unwrap();
        let mounted = mounts_below(&node.path("state"));
        assert_eq!(mounted.len(), 1);
        let mut second = Command::new(env!("CARGO_BIN_EXE_jfs-csi"));
        second.args(["--endpoint", node.path("csi.sock").to_str().unwrap(), "--nodeid", "node-1"]);
        second.args(["--http", "127.0.0.1:0", "--health", "127.0.0.1:0", "--state-dir"]);
        second.arg(node.path("state"));
        let refused = run(second, PATIENCE).refused();
        let said = refused.stderr + &refused.stdout;
        assert!(said.contains("another process is listening"), "{said}");
        assert_eq!(mounts_below(&node.path("state")), mounted);
        // Another pod gets the same volume, and not an empty directory.
        let two = node.publication("pvc-1", "two");
        node.publish(&two).unwrap();
        fs::write(one.target.join("f"), "text").unwrap();
        assert_eq!(fs::read(two.target.join("f")).unwrap(), b"text");
    });
}

/// A new driver that cannot serve a volume waits, for hours maybe, until no other one serves.
#[test]
fn a_volume_that_was_published_while_the_next_driver_waited_goes_on() {
    within(MOUNTED, || {
        let mut node = Node::start();
        let keeper = Keeper::start(&node);
        assert!(node.stop());
        let [option, socket] = keeper.option();
        node.restart(&[option, socket, "--allow-mount-options=suid"]);
        let mut refused = node.publication("pvc-1", "one");
        refused.flags = vec!["suid".to_owned()];
        node.publish(&refused).unwrap();
        let mut old = node.surge(&keeper.option());
        let waits = || node.log().contains("waiting until no other process serves");
        assert!(poll(PATIENCE, waits), "{}", node.log());
        let late = node.publication("pvc-2", "two");
        node.publish(&late).unwrap();
        let mut pod = Pod::start(&late.target.join("f"));
        pod.append("before");
        kill_group(&mut old);
        pod.append("after");
        assert!(poll(PATIENCE, || node.is_ready()), "{}", node.log());
        assert_eq!(fs::read(late.target.join("f")).unwrap(), b"before\nafter\n");
        drop(pod);
        node.unpublish("pvc-2", &late.target).unwrap();
    });
}

#[test]
fn without_a_keeper_the_driver_works_and_says_that_mounts_are_not_protected() {
    within(MOUNTED, || {
        let mut node = Node::start();
        assert!(node.stop());
        let missing = node.path("no-keeper.sock");
        node.restart(&["--keeper", missing.to_str().unwrap()]);
        assert!(node.log().contains("mounts end with this process"), "{}", node.log());
        let pv = node.publication("pvc-1", "one");
        node.publish(&pv).unwrap();
        assert!(metrics(&node).contains("juicefs_volume_protected{"));
        fs::write(pv.target.join("f"), "text").unwrap();
        node.unpublish("pvc-1", &pv.target).unwrap();
    });
}

fn metrics(node: &Node) -> String {
    let mut stream = std::net::TcpStream::connect(node.address("/metrics")).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}
