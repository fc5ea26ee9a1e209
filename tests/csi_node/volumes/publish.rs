//! Publishing and unpublishing volumes.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use jfs::csi::proto::csi::volume_capability::access_mode::Mode;
use jfs::csi::proto::csi::{NodeExpandVolumeRequest, NodeGetInfoRequest};
use nix::errno::Errno;
use tonic::Code;

use crate::csi::{Node, mounts_below};
use crate::support::command::poll;
use crate::support::fixture::PATIENCE;
use crate::support::juicefs::Volume;
use crate::support::timeout::{MOUNTED, within};

#[test]
fn all_targets_show_one_volume_until_the_last_is_unpublished() {
    within(MOUNTED, || {
        let node = Node::start();
        let (one, two) = (node.publication("pvc-1", "one"), node.publication("pvc-1", "two"));
        node.publish(&one).unwrap();
        fs::write(one.target.join("f"), "from one").unwrap();
        node.publish(&two).unwrap();
        assert_eq!(fs::read(two.target.join("f")).unwrap(), b"from one");
        assert_eq!(mounts_below(&node.path("state")).len(), 1, "one mount");

        node.unpublish("pvc-1", &one.target).unwrap();
        assert!(!one.target.exists());
        assert_eq!(fs::read(two.target.join("f")).unwrap(), b"from one");
        node.unpublish("pvc-1", &two.target).unwrap();
        assert!(mounts_below(&node.path("")).is_empty());
        assert_eq!(node.stats("pvc-1", &two.target).unwrap_err().code(), Code::NotFound);

        node.publish(&one).unwrap();
        assert_eq!(fs::read(one.target.join("f")).unwrap(), b"from one");
    });
}

#[test]
fn every_call_can_be_repeated() {
    within(MOUNTED, || {
        let node = Node::start();
        let one = node.publication("pvc-1", "one");
        for _ in 0..3 {
            node.publish(&one).unwrap();
        }
        assert_eq!(mounts_below(&node.path("pods")).len(), 1);
        for _ in 0..2 {
            node.unpublish("pvc-1", &one.target).unwrap();
        }
        node.unpublish("never-published", &node.target("nothing")).unwrap();
    });
}

#[test]
fn a_read_only_target_and_a_writable_one_coexist() {
    within(MOUNTED, || {
        let node = Node::start();
        let mut reader = node.publication("pvc-1", "reader");
        reader.mode = Mode::MultiNodeReaderOnly;
        let writer = node.publication("pvc-1", "writer");
        node.publish(&reader).unwrap();
        node.publish(&writer).unwrap();
        let refused = fs::write(reader.target.join("f"), "x").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::EROFS as i32));
        fs::write(writer.target.join("f"), "x").unwrap();
        assert_eq!(fs::read(reader.target.join("f")).unwrap(), b"x");

        let mut changed = writer.clone();
        changed.read_only = true;
        let refused = node.publish(&changed).unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    });
}

#[test]
fn a_volume_for_one_pod_is_refused_to_a_second() {
    within(MOUNTED, || {
        let node = Node::start();
        let mut one = node.publication("pvc-1", "one");
        one.mode = Mode::SingleNodeSingleWriter;
        let two = crate::csi::Publication { target: node.target("two"), ..one.clone() };
        node.publish(&one).unwrap();
        node.publish(&one).unwrap();
        let refused = node.publish(&two).unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(!two.target.exists());
        node.unpublish("pvc-1", &one.target).unwrap();
        node.publish(&two).unwrap();
    });
}

#[test]
fn a_static_volume_shows_its_directory_which_the_go_client_shares() {
    within(MOUNTED, || {
        let node = Node::start();
        let mut pv = node.publication("my-pv", "web");
        pv.context.clear();
        pv.flags = vec!["subdir=/team/data,cache-size=100M".to_owned(), "enable-xattr".to_owned()];
        node.publish(&pv).unwrap();
        fs::write(pv.target.join("f"), "for everybody").unwrap();
        let go = Volume::existing(node.url());
        let mount = go.mount(&[]);
        assert_eq!(fs::read(mount.path().join("team/data/f")).unwrap(), b"for everybody");
        fs::write(mount.path().join("team/data/g"), "from there").unwrap();
        assert_eq!(fs::read(pv.target.join("g")).unwrap(), b"from there");
    });
}

#[test]
fn a_volume_of_juicefs_csi_driver_is_published_unchanged() {
    within(MOUNTED, || {
        let node = Node::start();
        let go = Volume::format(node.url(), &[]);
        let mount = go.mount(&[]);
        let dir = mount.path().join("pvc-0a1b");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(dir.join("f"), "old data").unwrap();
        drop(mount);
        // No storage in the Secret: the file system exists.
        let mut pv = node.publication("pvc-0a1b", "web");
        pv.secrets.remove("storage");
        pv.secrets.remove("bucket");
        let pv = pv
            .secret("name", "volume")
            .attribute("juicefs/mount-cpu-limit", "5000m")
            .attribute("juicefs/mount-memory-limit", "5Gi")
            .attribute("juicefs/clean-cache", "true")
            .attribute("juicefs/controller-quota-set", "true")
            .attribute("mountOptions", "cache-size=204800")
            .attribute("capacity", "1073741824")
            .attribute("storage.kubernetes.io/csiProvisionerIdentity", "1-csi.juicefs.com");
        node.publish(&pv).unwrap();
        assert_eq!(fs::read(pv.target.join("f")).unwrap(), b"old data");
        assert!(node.log().contains("juicefs/mount-cpu-limit: there is no mount pod"));
        assert!(node.log().contains("not used: juicefs/controller-quota-set"));
        let stat = nix::sys::statvfs::statvfs(&pv.target).unwrap();
        assert_eq!(stat.blocks() * stat.fragment_size(), 1 << 30, "df shows the quota");
    });
}

#[test]
fn writes_beyond_the_quota_fail_in_the_pod() {
    within(MOUNTED, || {
        let node = Node::start();
        let pv = node.publication("pvc-1", "web").attribute("capacity", "1048576");
        node.publish(&pv).unwrap();
        let mut file = fs::File::create(pv.target.join("f")).unwrap();
        let block = vec![7_u8; 1 << 20];
        let written =
            (0..4).try_for_each(|_| file.write_all(&block).and_then(|()| file.sync_all()));
        assert_eq!(written.unwrap_err().raw_os_error(), Some(Errno::EDQUOT as i32));
        let stats = node.stats("pvc-1", &pv.target).unwrap();
        assert_eq!(stats.usage[0].total, 1 << 20);
    });
}

#[test]
fn the_fs_group_of_a_pod_gets_the_volume_and_its_content() {
    within(MOUNTED, || {
        let node = Node::start();
        let publication = |pod: &str, group: &str| crate::csi::Publication {
            group: group.to_owned(),
            ..node.publication("pvc-1", pod)
        };
        let first = publication("first", "1000");
        node.publish(&first).unwrap();
        let root = fs::metadata(&first.target).unwrap();
        assert_eq!((root.gid(), root.mode() & 0o2070), (1000, 0o2070));
        fs::create_dir(first.target.join("d")).unwrap();
        fs::write(first.target.join("d/f"), "").unwrap();
        fs::set_permissions(first.target.join("d/f"), fs::Permissions::from_mode(0o700)).unwrap();
        symlink("nothing", first.target.join("d/link")).unwrap();
        assert_eq!(fs::metadata(first.target.join("d/f")).unwrap().gid(), 1000);
        // A repeated publish, as kubelet does from time to time.
        chown(first.target.join("d/f"), None, Some(7)).unwrap();
        node.publish(&first).unwrap();
        assert_eq!(fs::metadata(first.target.join("d/f")).unwrap().gid(), 7);
        node.unpublish("pvc-1", &first.target).unwrap();

        let second = publication("second", "2000");
        node.publish(&second).unwrap();
        for (name, bits) in [("", 0o2070), ("d", 0o2070), ("d/f", 0o760), ("d/link", 0)] {
            let found = fs::symlink_metadata(second.target.join(name)).unwrap();
            assert_eq!((found.gid(), found.mode() & bits), (2000, bits), "{name:?}");
        }
        // Also beside another pod. A read-only pod changes nothing.
        let mut reader = publication("reader", "4000");
        reader.read_only = true;
        node.publish(&reader).unwrap();
        assert_eq!(fs::metadata(reader.target.join("d")).unwrap().gid(), 2000);
        let third = publication("third", "3000");
        node.publish(&third).unwrap();
        let given = || fs::metadata(third.target.join("d/f")).unwrap().gid() == 3000;
        assert!(
            poll(PATIENCE, given),
            "the group has not changed, though the kernel caches attributes only briefly"
        );
    });
}

#[test]
fn an_ephemeral_volume_is_deleted_with_its_pod() {
    within(MOUNTED, || {
        let mut node = Node::start();
        // It gets its own directory below the one that it names.
        assert!(node.stop());
        node.restart(&["--allow-inline-options=subPath"]);
        let scratch = node.publication("csi-1234", "web").attribute("subPath", "pvc-1");
        let scratch =
            scratch.attribute("csi.storage.k8s.io/ephemeral", "true").attribute("size", "10Mi");
        let beside = node.publication("pvc-1", "other");
        node.publish(&beside).unwrap();
        node.publish(&scratch).unwrap();
        fs::create_dir(scratch.target.join("d")).unwrap();
        fs::write(scratch.target.join("d/f"), "gone soon").unwrap();
        node.unpublish("csi-1234", &scratch.target).unwrap();

        let all = node.publication("whole", "all").attribute("subPath", "/");
        node.publish(&all).unwrap();
        assert!(poll(PATIENCE, || !all.target.join("pvc-1/csi-1234").exists()));
        assert!(all.target.join("pvc-1").exists());
    });
}

#[test]
fn the_node_reports_its_volume_limit_and_a_volume_its_usage() {
    within(MOUNTED, || {
        let node = Node::start();
        let info = node.block_on(node.node().node_get_info(NodeGetInfoRequest {})).unwrap();
        let info = info.into_inner();
        assert_eq!(info.node_id, "node-1");
        assert!(info.max_volumes_per_node > 1, "{}", info.max_volumes_per_node);

        let pv = node.publication("pvc-1", "web").attribute("capacity", "10485760");
        node.publish(&pv).unwrap();
        fs::write(pv.target.join("f"), vec![1; 1 << 20]).unwrap();
        assert!(
            poll(PATIENCE, || node.stats("pvc-1", &pv.target).unwrap().usage[0].used == 1 << 20)
        );
        let stats = node.stats("pvc-1", &pv.target).unwrap();
        assert_eq!((stats.usage[0].total, stats.usage[1].used), (10 << 20, 1));
        assert_eq!(node.condition("pvc-1", &pv.target), (false, "mounted".to_owned()));
        let request = NodeExpandVolumeRequest {
            volume_id: "pvc-1".to_owned(),
            volume_path: pv.target.display().to_string(),
            ..NodeExpandVolumeRequest::default()
        };
        node.block_on(node.node().node_expand_volume(request)).unwrap();
    });
}

#[test]
fn an_invalid_request_is_refused_by_what_is_wrong_with_it() {
    within(MOUNTED, || {
        let node = Node::start();
        let good = || node.publication("pvc-1", "web");
        let mut no_capability = good().request();
        no_capability.get_mut().volume_capability = None;
        let refused = node.block_on(node.node().node_publish_volume(no_capability)).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let flag = |flag: &str| crate::csi::Publication { flags: vec![flag.to_owned()], ..good() };
        for (publication, word) in [
            (good().secret("metaurl", "gopher://x/1"), "gopher"),
            (good().secret("colour", "red"), "colour"),
            (good().secret("token", "x"), "token"),
            (good().attribute("juicefs/mount-colour", "red"), "juicefs/mount-colour"),
            (flag("cache-size=much"), "much"),
            (flag("colour"), "colour"),
            (flag("writeback,cache-size=0"), "writeback"),
            (crate::csi::Publication { volume: String::new(), ..good() }, "volume id"),
            (crate::csi::Publication { target: "relative".into(), ..good() }, "relative"),
            (crate::csi::Publication { group: "wheel".to_owned(), ..good() }, "wheel"),
        ] {
            let refused = node.publish(&publication).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{word}: {refused}");
            assert!(refused.message().contains(word), "{word}: {refused}");
        }
        assert!(!node.target("web").exists());
    });
}

#[test]
fn a_target_outside_the_kubelets_directory_is_neither_created_nor_removed() {
    within(MOUNTED, || {
        let node = Node::start();
        let pv = node.publication("pvc-1", "web");
        node.publish(&pv).unwrap();
        let session = mounts_below(&node.path("state")).remove(0);
        std::os::unix::fs::symlink(node.path("state"), node.target("link")).unwrap();
        for target in [session, node.path("elsewhere"), node.target("link").join("mounts")] {
            let elsewhere = crate::csi::Publication { target: target.clone(), ..pv.clone() };
            let refused = node.publish(&elsewhere).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
            for volume in ["pvc-1", "never-heard-of"] {
                let refused = node.unpublish(volume, &target).unwrap_err();
                assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
            }
        }
        fs::write(pv.target.join("f"), "still served").unwrap();
        assert!(!node.path("elsewhere").exists());
    });
}

#[test]
fn a_quota_that_another_client_has_just_set_applies_from_the_first_byte() {
    within(MOUNTED, || {
        let node = Node::start();
        node.publish(&node.publication("pvc-0", "open")).unwrap();
        let go = Volume::existing(node.url());
        let mount = go.mount(&[]);
        fs::create_dir(mount.path().join("pvc-1")).unwrap();
        let limit = ["quota", "set", node.url(), "--path", "/pvc-1", "--capacity", "1"];
        crate::support::juicefs::juicefs(&limit).ok();
        let pv = node.publication("pvc-1", "web");
        node.publish(&pv).unwrap();
        let stat = nix::sys::statvfs::statvfs(&pv.target).unwrap();
        assert_eq!(stat.blocks() * stat.fragment_size(), 1 << 30, "df shows the quota");
        fs::write(pv.target.join("f"), vec![1; 1 << 20]).unwrap();
        let used = || {
            let stat = nix::sys::statvfs::statvfs(&pv.target).unwrap();
            (stat.blocks() - stat.blocks_free()) * stat.fragment_size()
        };
        assert!(poll(PATIENCE, || used() == 1 << 20), "{}", used());
    });
}

#[test]
fn data_written_to_an_open_file_is_soon_in_the_stats() {
    within(MOUNTED, || {
        let node = Node::start();
        // The file system is open already; without a refresh it would see a new quota at its next
        // heartbeat.
        node.publish(&node.publication("other", "other")).unwrap();
        let pv = node.publication("static", "web").attribute("capacity", "10Mi");
        node.publish(&pv).unwrap();
        let used = || {
            let usage = node.stats("static", &pv.target).unwrap().usage;
            assert_eq!(usage[0].total, 10 << 20);
            usage[0].used
        };
        assert_eq!(used(), 0);
        let mut log = fs::File::create(pv.target.join("log")).unwrap();
        for size in 1..=3 {
            log.write_all(&vec![7; 1 << 20]).unwrap();
            log.sync_data().unwrap();
            assert_eq!(used(), size << 20);
        }
        // Without an fsync, data is stored after a while, and counts then.
        log.write_all(&[7; 4096]).unwrap();
        assert!(poll(PATIENCE, || used() == (3 << 20) + 4096), "{}", used());
        drop(log);
    });
}
