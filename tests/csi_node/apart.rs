//! The driver in a mount namespace of its own, as in a container, and what others see of its mounts.

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

/// Stands for a container with `mountPropagation: HostToContainer`: a mount namespace in which a copy of a
/// target follows it.
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
        let mut said = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "up\n");
        Self { process, folder }
    }

    /// A file of the volume, as the container sees it.
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
fn refused(done: io::Result<()>, errno: Errno) {
    assert_eq!(done.unwrap_err().raw_os_error(), Some(errno as i32));
}

#[test]
fn a_read_only_target_is_read_only_on_the_host() {
    within(MOUNTED, || {
        let node = Node::start_apart();
        let writer = node.publication("pvc-1", "writer");
        let mut reader = node.publication("pvc-1", "reader");
        reader.read_only = true;
        node.publish(&writer).unwrap();
        node.publish(&reader).unwrap();
        fs::write(writer.target.join("f"), "x").unwrap();
        assert_eq!(fs::read(reader.target.join("f")).unwrap(), b"x");
        refused(fs::write(reader.target.join("f"), "y"), Errno::EROFS);
        let container = Container::start(&reader.target);
        refused(fs::write(container.file("f"), "y"), Errno::EROFS);
    });
}

#[test]
fn containers_that_follow_the_host_go_on_after_the_driver_has_died() {
    within(MOUNTED, || {
        let mut node = Node::start_apart();
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
            refused(fs::read(writer.file("f")).map(drop), Errno::ENOTCONN);
            node.publish(&one).unwrap();
            node.publish(&two).unwrap();
            fs::write(writer.file("f"), text).unwrap();
            assert_eq!(fs::read_to_string(reader.file("f")).unwrap(), text);
            refused(fs::write(reader.file("f"), "no"), Errno::EROFS);
            // Nothing is left beneath, here and where the driver is.
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
fn whatever_lies_dead_at_a_target_is_gone_after_it_is_published() {
    within(MOUNTED, || {
        let node = Node::start_apart();
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
