//! Publishing volumes and taking them away.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use jfs::csi::proto::csi::volume_capability::access_mode::Mode;
use jfs::csi::proto::csi::{NodeExpandVolumeRequest, NodeGetInfoRequest};
use nix::errno::Errno;
use tonic::Code;

use crate::csi::{Node, mounts_below};
use crate::support::command::poll;
use crate::support::juicefs::Volume;
use crate::support::rig::PATIENCE;
use crate::support::timeout::{MOUNTED, within};

#[test]
fn a_volume_is_one_at_all_its_targets_and_gone_after_the_last() {
    within(MOUNTED, || {
        let node = Node::start();
        let (one, two) = (node.publication("pvc-1", "one"), node.publication("pvc-1", "two"));
        node.publish(&one).unwrap();
        fs::write(one.target.join("f"), "from one").unwrap();
        node.publish(&two).unwrap();
        assert_eq!(fs::read(two.target.join("f")).unwrap(), b"from one");
        assert_eq!(mounts_below(&node.path("state")).len(), 1, "one session");

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
        node.unpublish("never-heard-of", &node.target("nothing")).unwrap();
    });
}

#[test]
fn a_target_can_be_read_only_beside_one_that_is_not() {
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
fn a_volume_for_one_pod_is_not_for_two() {
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
fn a_static_volume_shows_its_directory_and_the_go_client_sees_what_is_in_it() {
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
fn a_volume_of_juicefs_csi_driver_is_published_as_it_is() {
    within(MOUNTED, || {
        let node = Node::start();
        let go = Volume::format(node.url(), &[]);
        let mount = go.mount(&[]);
        let dir = mount.path().join("pvc-0a1b");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(dir.join("f"), "old data").unwrap();
        drop(mount);
        // No storage in the Secret: the volume is there already.
        let mut pv = node.publication("pvc-0a1b", "web");
        pv.secrets.remove("storage");
        pv.secrets.remove("bucket");
        let pv = pv
            .secret("name", "volume")
            .attribute("juicefs/mount-cpu-limit", "5000m")
            .attribute("juicefs/mount-memory-limit", "5Gi")
            .attribute("juicefs/clean-cache", "true")
            .attribute("mountOptions", "cache-size=204800")
            .attribute("capacity", "1073741824")
            .attribute("storage.kubernetes.io/csiProvisionerIdentity", "1-csi.juicefs.com");
        node.publish(&pv).unwrap();
        assert_eq!(fs::read(pv.target.join("f")).unwrap(), b"old data");
        assert!(node.log().contains("juicefs/mount-cpu-limit: there is no mount pod"));
        let stat = nix::sys::statvfs::statvfs(&pv.target).unwrap();
        assert_eq!(stat.blocks() * stat.fragment_size(), 1 << 30, "df shows the quota");
    });
}

#[test]
fn what_is_over_the_quota_is_refused_where_the_pod_writes() {
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
fn the_group_of_a_pod_gets_the_root_of_its_volume() {
    within(MOUNTED, || {
        let node = Node::start();
        let mut pv = node.publication("pvc-1", "web");
        pv.group = "2345".to_owned();
        node.publish(&pv).unwrap();
        let root = fs::metadata(&pv.target).unwrap();
        assert_eq!((root.gid(), root.mode() & 0o2070), (2345, 0o2070));
        fs::write(pv.target.join("f"), "").unwrap();
        assert_eq!(fs::metadata(pv.target.join("f")).unwrap().gid(), 2345);
    });
}

#[test]
fn an_ephemeral_volume_goes_with_its_pod() {
    within(MOUNTED, || {
        let node = Node::start();
        // Whatever it names is not its own.
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
fn the_node_says_how_much_it_takes_and_a_volume_how_much_it_holds() {
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
fn a_wrong_request_is_refused_by_what_is_wrong_with_it() {
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
