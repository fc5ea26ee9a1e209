//! Mounting, and what prevents it.

use std::fs;
use std::path::Path;

use jfs::fuse::{
    InitOptions, Mount, MountMethod, MountOptions, Session, SessionOptions, Unmount, mounted_at,
    unmount,
};

use crate::fixture::Fixture;
use crate::memory_fs::{MemoryFileSystem, MemoryFs};
use crate::timeout::{MOUNTED, on_timeout, within};

fn refused(point: &Path) -> String {
    Mount::new(point, &MountOptions::new("test")).unwrap_err().to_string()
}

#[test]
fn a_mount_is_shown_as_juicefs() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let mounted = mounted_at(fixture.point()).unwrap();
        assert_eq!(
            (mounted.kind.as_str(), mounted.source.as_str()),
            ("fuse.juicefs", "JuiceFS:test")
        );
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line =
            table.lines().find(|line| line.contains(fixture.point().to_str().unwrap())).unwrap();
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
fn an_occupied_mount_point_is_refused_with_the_current_mount() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let refused = refused(fixture.point());
        assert!(refused.contains("JuiceFS:test"), "{refused}");
        assert!(refused.contains("umount"), "{refused}");
    });
}

#[test]
fn a_dead_mount_is_refused_with_a_hint() {
    within(MOUNTED, || {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().canonicalize().unwrap().join("mount");
        fs::create_dir_all(point.join("..").join("mount")).unwrap();
        let late = point.clone();
        on_timeout(move || drop(unmount(&late, Unmount::Force)));
        let (mount, device) = Mount::new(&point, &MountOptions::new("test")).unwrap();
        // Nobody will ever reply.
        drop(device);
        assert!(refused(&point).contains("umount -l"));
        assert!(refused(&point.join("below")).contains("umount -l"));
        drop(mount);
        assert!(mounted_at(&point).is_none());
    });
}

#[test]
fn fusermount_mounts_as_well() {
    within(MOUNTED, || {
        let options =
            MountOptions { method: Some(MountMethod::Fusermount), ..MountOptions::new("a,b") };
        let fixture = Fixture::with(&options, &InitOptions::default());
        let mounted = mounted_at(fixture.point()).unwrap();
        assert_eq!(
            (mounted.kind.as_str(), mounted.source.as_str()),
            ("fuse.juicefs", "JuiceFS:a,b")
        );
        fs::write(fixture.path("f"), "content").unwrap();
        assert_eq!(fixture.fs.content("f"), b"content");
    });
}

#[test]
fn errors_of_fusermount_are_passed_on() {
    let dir = tempfile::tempdir().unwrap();
    let more = vec!["no-such-option".to_owned()];
    let options =
        MountOptions { method: Some(MountMethod::Fusermount), more, ..MountOptions::new("test") };
    let refused = Mount::new(dir.path(), &options).unwrap_err().to_string();
    assert!(refused.contains("no-such-option"), "{refused}");
}

#[test]
fn a_session_on_a_removed_mount_does_not_start() {
    within(MOUNTED, || {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().canonicalize().unwrap();
        let (mut mount, device) = Mount::new(&point, &MountOptions::new("test")).unwrap();
        mount.unmount(Unmount::Force).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let served = std::sync::Arc::new(MemoryFileSystem(MemoryFs::new()));
        let handle = runtime.handle().clone();
        let begun = Session::start(
            device,
            served,
            &InitOptions::default(),
            &SessionOptions::default(),
            handle,
        );
        assert!(begun.is_err());
    });
}
