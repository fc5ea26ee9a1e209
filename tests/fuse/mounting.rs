//! Making a mount, and what can be in the way.

use std::fs;
use std::path::Path;

use jfs::fuse::{Mount, MountOptions, Session, Setup, Unmount, Way, Wishes, mounted_at, unmount};

use crate::rig::Rig;
use crate::synth::{Served, Synth};
use crate::timeout::{MOUNTED, on_timeout, within};

fn refused(point: &Path) -> String {
    Mount::new(point, &MountOptions::new("test")).unwrap_err().to_string()
}

#[test]
fn a_mount_is_shown_as_juicefs() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let mounted = mounted_at(rig.point()).unwrap();
        assert_eq!(
            (mounted.kind.as_str(), mounted.source.as_str()),
            ("fuse.juicefs", "JuiceFS:test")
        );
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|line| line.contains(rig.point().to_str().unwrap())).unwrap();
        for part in ["nosuid", "nodev", "default_permissions", "allow_other", "max_read=131072"] {
            assert!(line.contains(part), "{part} in {line}");
        }
    });
}

#[test]
fn a_mount_point_must_be_a_directory_that_exists() {
    let dir = tempfile::tempdir().unwrap();
    assert!(refused(&dir.path().join("nothing")).contains("does not exist"));
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(refused(&file).contains("not a directory"));
    assert!(refused(&file.join("below")).contains("not a directory"));
}

#[test]
fn a_place_that_is_taken_is_refused_with_what_is_there() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let refused = refused(rig.point());
        assert!(refused.contains("JuiceFS:test"), "{refused}");
        assert!(refused.contains("umount"), "{refused}");
    });
}

#[test]
fn a_dead_mount_is_refused_with_what_to_do() {
    within(MOUNTED, || {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().canonicalize().unwrap().join("mount");
        fs::create_dir_all(point.join("..").join("mount")).unwrap();
        let late = point.clone();
        on_timeout(move || drop(unmount(&late, Unmount::Force)));
        let (mount, device) = Mount::new(&point, &MountOptions::new("test")).unwrap();
        // Nobody will ever answer.
        drop(device);
        assert!(refused(&point).contains("umount -l"));
        assert!(refused(&point.join("below")).contains("umount -l"));
        drop(mount);
        assert!(mounted_at(&point).is_none());
    });
}

#[test]
fn the_program_of_the_distribution_mounts_as_well() {
    within(MOUNTED, || {
        let options = MountOptions { way: Some(Way::Fusermount), ..MountOptions::new("a,b") };
        let rig = Rig::with(&options, &Wishes::default());
        let mounted = mounted_at(rig.point()).unwrap();
        assert_eq!(
            (mounted.kind.as_str(), mounted.source.as_str()),
            ("fuse.juicefs", "JuiceFS:a,b")
        );
        fs::write(rig.path("f"), "content").unwrap();
        assert_eq!(rig.synth.content("f"), b"content");
    });
}

#[test]
fn what_the_program_of_the_distribution_says_is_passed_on() {
    let dir = tempfile::tempdir().unwrap();
    let more = vec!["no-such-option".to_owned()];
    let options = MountOptions { way: Some(Way::Fusermount), more, ..MountOptions::new("test") };
    let refused = Mount::new(dir.path(), &options).unwrap_err().to_string();
    assert!(refused.contains("no-such-option"), "{refused}");
}

#[test]
fn a_session_on_a_mount_that_is_gone_does_not_begin() {
    within(MOUNTED, || {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().canonicalize().unwrap();
        let (mut mount, device) = Mount::new(&point, &MountOptions::new("test")).unwrap();
        mount.unmount(Unmount::Force).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let served = std::sync::Arc::new(Served(Synth::new()));
        let handle = runtime.handle().clone();
        let begun = Session::start(device, served, &Wishes::default(), &Setup::default(), handle);
        assert!(begun.is_err());
    });
}
