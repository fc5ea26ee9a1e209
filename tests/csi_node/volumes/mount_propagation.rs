//! The driver in its own mount namespace, as in a container, and how its mounts propagate.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use tempfile::TempDir;

use crate::csi::{Node, mounts_below};
use crate::support::command::kill_group;
use crate::support::timeout::{MOUNTED, within};

/// Simulates a container with `mountPropagation: HostToContainer`: a mount namespace with a copy of
/// a target that receives its mounts.
struct Container {
    process: Child,
    folder: TempDir,
}

impl Container {
    fn start(target: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = "mount --rbind \"$1\" \"$2\" && mount --make-rslave \"$2\" && echo up && exec sleep 600";
        let mut process = Command::new("unshare")
            .args(["--mount", "--propagation", "unchanged", "sh", "-c", script, "sh"])
            .args([target, folder.path()])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut output = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut output).unwrap();
        assert_eq!(output, "up\n");
        Self { process, folder }
    }

    /// Returns the path of a file of the volume, as the container sees it.
    fn file(&self, name: &str) -> PathBuf {
        let root = format!("/proc/{}/root", self.process.id());
        Path::new(&root).join(self.folder.path().strip_prefix("/").unwrap()).join(name)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        kill_group(&mut self.process);
    }
}

#[track_caller]
fn assert_refused(done: io::Result<()>, errno: Errno) {
    assert_eq!(done.unwrap_err().raw_os_error(), Some(errno as i32));
}

#[test]
fn a_read_only_target_is_read_only_on_the_host() {
    within(MOUNTED, || {
        let node = Node::start_in_own_namespace();
        let writer = node.publication("pvc-1", "writer");
        let mut reader = node.publication("pvc-1", "reader");
        reader.read_only = true;
        node.publish(&writer).unwrap();
        node.publish(&reader).unwrap();
        fs::write(writer.target.join("f"), "x").unwrap();
        assert_eq!(fs::read(reader.target.join("f")).unwrap(), b"x");
        assert_refused(fs::write(reader.target.join("f"), "y"), Errno::EROFS);
        let container = Container::start(&reader.target);
        assert_refused(fs::write(container.file("f"), "y"), Errno::EROFS);
    });
}

#[test]
fn containers_with_host_to_container_propagation_survive_a_crash_of_the_driver() {
    within(MOUNTED, || {
        let mut node = Node::start_in_own_namespace();
        let one = node.publication("pvc-1", "one");
        let mut two = node.publication("pvc-1", "two");
        two.read_only = true;
        node.publish(&one).unwrap();
        node.publish(&two).unwrap();
        let (writer, reader) = (Container::start(&one.target), Container::start(&two.target));
        fs::write(writer.file("f"), "first").unwrap();
        for text in ["second", "third", "fourth"] {
            node.kill();
            node.restart(&[]);
            assert_refused(fs::read(writer.file("f")).map(drop), Errno::ENOTCONN);
            node.publish(&one).unwrap();
            node.publish(&two).unwrap();
            fs::write(writer.file("f"), text).unwrap();
            assert_eq!(fs::read_to_string(reader.file("f")).unwrap(), text);
            assert_refused(fs::write(reader.file("f"), "no"), Errno::EROFS);
            // Nothing remains beneath, neither here nor in the driver's namespace.
            assert_eq!(fs::read_to_string(one.target.join("f")).unwrap(), text);
            assert_eq!(mounts_below(&node.path("pods")).len(), 2);
            let table = fs::read_to_string(format!("/proc/{}/mountinfo", node.pid())).unwrap();
            let pods = node.path("pods").display().to_string();
            assert_eq!(table.lines().filter(|line| line.contains(&pods)).count(), 2, "{table}");
        }
        node.unpublish("pvc-1", &one.target).unwrap();
        node.unpublish("pvc-1", &two.target).unwrap();
        assert!(mounts_below(&node.path("")).is_empty());
    });
}

#[test]
fn dead_mounts_at_a_target_are_removed_when_it_is_published() {
    within(MOUNTED, || {
        let node = Node::start_in_own_namespace();
        for layers in [1, 3, 12] {
            let pv = node.publication("pvc-1", &format!("pod-{layers}"));
            fs::create_dir(&pv.target).unwrap();
            for _ in 0..layers {
                let none: Option<&Path> = None;
                mount(none, &pv.target, Some("tmpfs"), MsFlags::empty(), none).unwrap();
            }
            node.publish(&pv).unwrap();
            fs::write(pv.target.join("f"), "x").unwrap();
            assert_eq!(mounts_below(&node.path("pods")).len(), 1, "{layers}");
            node.unpublish("pvc-1", &pv.target).unwrap();
            assert!(mounts_below(&node.path("pods")).is_empty(), "{layers}");
        }
    });
}
