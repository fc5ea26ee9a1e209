//! What a restarted driver takes over from its predecessor.

use std::fs;

use nix::errno::Errno;

use crate::csi::{Node, mounts_below};
use crate::support::timeout::{MOUNTED, within};

#[test]
fn after_a_crash_volumes_are_known_and_mounted_again_when_published() {
    within(MOUNTED, || {
        let mut node = Node::start();
        let (one, two) = (node.publication("pvc-1", "one"), node.publication("pvc-1", "two"));
        let other = node.publication("pvc-2", "other");
        for publication in [&one, &two, &other] {
            node.publish(publication).unwrap();
        }
        fs::write(one.target.join("f"), "kept").unwrap();
        node.kill();
        node.restart(&[]);
        // A dead mount is better than a pod that writes into a directory of the node.
        let dead = fs::read(one.target.join("f")).unwrap_err();
        assert_eq!(dead.raw_os_error(), Some(Errno::ENOTCONN as i32));
        assert!(
            mounts_below(&node.path("state")).is_empty(),
            "mounts without a server are removed"
        );
        let (abnormal, message) = node.condition("pvc-1", &one.target);
        assert!(abnormal && message.contains("published again"), "{message}");

        node.publish(&one).unwrap();
        assert_eq!(fs::read(one.target.join("f")).unwrap(), b"kept");
        assert_eq!(fs::read(two.target.join("f")).unwrap(), b"kept", "its other targets as well");
        assert_eq!(mounts_below(&node.path("pods")).len(), 3);
        // A volume that is no longer needed.
        node.unpublish("pvc-2", &other.target).unwrap();
        assert!(!other.target.exists());
        node.unpublish("pvc-1", &one.target).unwrap();
        node.unpublish("pvc-1", &two.target).unwrap();
        assert!(mounts_below(&node.path("")).is_empty());
        assert_eq!(fs::read_dir(node.path("state/published")).unwrap().count(), 0);
    });
}

#[test]
fn a_driver_that_is_stopped_stores_everything_first() {
    within(MOUNTED, || {
        let mut node = Node::start();
        let pv = node.publication("pvc-1", "web");
        node.publish(&pv).unwrap();
        let content = vec![7; 9 << 20];
        let file = pv.target.join("f");
        // Open, and never flushed by its writer.
        let mut open = fs::File::create(&file).unwrap();
        std::io::Write::write_all(&mut open, &content).unwrap();
        assert!(node.stop(), "{}", node.log());
        drop(open);
        assert!(!node.log().contains("not all"), "{}", node.log());
        node.restart(&[]);
        node.publish(&pv).unwrap();
        assert_eq!(fs::read(&file).unwrap(), content);
    });
}
