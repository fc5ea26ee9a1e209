//! Names, attributes, extended attributes.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, StatxFlags, XattrFlags, getxattr,
    getxattr_query, listxattr, mknodat, removexattr, renameat_with, setxattr, statvfs, statx,
};
use rustix::io::Errno;

use crate::fixture::Fixture;
use crate::timeout::{MOUNTED, within};

#[test]
fn a_file_is_created_renamed_linked_and_removed() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        fs::write(fixture.path("a"), "content").unwrap();
        fs::rename(fixture.path("a"), fixture.path("b")).unwrap();
        fs::hard_link(fixture.path("b"), fixture.path("c")).unwrap();
        assert_eq!(fs::metadata(fixture.path("c")).unwrap().nlink(), 2);
        fs::remove_file(fixture.path("b")).unwrap();
        assert_eq!(fs::read(fixture.path("c")).unwrap(), b"content");
        assert!(!fixture.path("a").exists());
        assert_eq!(fixture.fs.content("c"), b"content");
    });
}

#[test]
fn rename_flags_arrive() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        fixture.file("a", b"a");
        fixture.file("b", b"b");
        let rename = |flags| renameat_with(CWD, fixture.path("a"), CWD, fixture.path("b"), flags);
        assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename(RenameFlags::EXCHANGE).unwrap();
        assert_eq!((fixture.fs.content("a"), fixture.fs.content("b")), (b"b".into(), b"a".into()));
    });
}

#[test]
fn directories_are_created_and_removed_when_empty() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        fs::create_dir(fixture.path("d")).unwrap();
        fs::write(fixture.path("d/f"), "").unwrap();
        let full = fs::remove_dir(fixture.path("d")).unwrap_err();
        assert_eq!(full.raw_os_error(), Some(Errno::NOTEMPTY.raw_os_error()));
        fs::remove_file(fixture.path("d/f")).unwrap();
        fs::remove_dir(fixture.path("d")).unwrap();
        assert!(!fixture.path("d").exists());
    });
}

#[test]
fn a_symlink_has_its_target() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        fixture.file("f", b"found");
        symlink("f", fixture.path("l")).unwrap();
        assert_eq!(fs::read_link(fixture.path("l")).unwrap().to_str(), Some("f"));
        assert_eq!(fs::read(fixture.path("l")).unwrap(), b"found");
    });
}

#[test]
fn special_nodes_keep_their_type() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        mknodat(CWD, fixture.path("p"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
        let found = fs::symlink_metadata(fixture.path("p")).unwrap();
        assert!(found.file_type().is_fifo());
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
    });
}

#[test]
fn attributes_are_set_and_shown() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let file = fixture.open("f");
        file.set_len(12345).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o4711)).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567, 891);
        file.set_modified(time).unwrap();
        std::os::unix::fs::chown(fixture.path("f"), Some(12), Some(34)).unwrap();
        let found = fs::metadata(fixture.path("f")).unwrap();
        assert_eq!((found.len(), found.uid(), found.gid()), (12345, 12, 34));
        assert_eq!(found.modified().unwrap(), time);
        assert_eq!(found.blocks(), 25);
    });
}

#[test]
fn statx_shows_the_time_of_birth() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        fixture.file("f", b"1234");
        let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let found = statx(CWD, fixture.path("f"), AtFlags::empty(), mask).unwrap();
        assert_eq!((found.stx_btime.tv_sec, found.stx_size), (42, 4));
    });
}

#[test]
fn a_temporary_file_has_no_name_until_it_is_linked() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file = rustix::fs::open(fixture.point(), flags, Mode::from(0o600)).unwrap();
        rustix::io::write(&file, b"late").unwrap();
        assert_eq!(fs::read_dir(fixture.point()).unwrap().count(), 0);
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        rustix::fs::linkat(CWD, link, CWD, fixture.path("f"), AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(fs::read(fixture.path("f")).unwrap(), b"late");
    });
}

#[test]
fn extended_attributes_follow_the_rules_of_their_calls() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        fixture.file("f", b"");
        let path = fixture.path("f");
        let mut large = [0; 4096];
        setxattr(&path, "user.a", b"one", XattrFlags::empty()).unwrap();
        setxattr(&path, "user.b", b"", XattrFlags::CREATE).unwrap();
        assert_eq!(setxattr(&path, "user.b", b"", XattrFlags::CREATE), Err(Errno::EXIST));
        assert_eq!(getxattr(&path, "user.a", &mut large), Ok(3));
        assert_eq!(&large[..3], b"one");
        assert_eq!(getxattr(&path, "user.a", &mut [0; 2]), Err(Errno::RANGE));
        assert_eq!(getxattr_query(&path, "user.a"), Ok(3));
        assert_eq!(listxattr(&path, &mut large), Ok(14));
        assert_eq!(&large[..14], b"user.a\0user.b\0");
        removexattr(&path, "user.a").unwrap();
        assert_eq!(getxattr(&path, "user.a", &mut large), Err(Errno::NODATA));
    });
}

#[test]
fn a_large_attribute_arrives_whole() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        fixture.file("f", b"");
        let value: Vec<u8> = (0..65536_u32).map(|n| n.to_le_bytes()[1]).collect();
        setxattr(fixture.path("f"), "user.large", &value, XattrFlags::empty()).unwrap();
        let mut found = vec![0; 65536];
        assert_eq!(getxattr(fixture.path("f"), "user.large", &mut found), Ok(65536));
        assert!(found == value);
    });
}

#[test]
fn statfs_shows_the_space_of_the_volume() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let space = statvfs(fixture.point()).unwrap();
        assert_eq!((space.f_bsize, space.f_blocks, space.f_bavail), (4096, 1000, 500));
        assert_eq!((space.f_files, space.f_namemax), (77, 255));
    });
}

#[test]
fn the_kernel_forgets_nodes_it_looked_up() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        for n in 0..100 {
            let name = format!("f{n}");
            fixture.file(&name, b"");
            fs::metadata(fixture.path(&name)).unwrap();
            fs::remove_file(fixture.path(&name)).unwrap();
        }
        crate::fixture::eventually("forgets", || {
            fixture.fs.seen.forgotten.load(std::sync::atomic::Ordering::SeqCst) >= 100
        });
    });
}
