//! Names, attributes, extended attributes.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, StatxFlags, XattrFlags, getxattr,
    getxattr_query, listxattr, mknodat, removexattr, renameat_with, setxattr, statvfs, statx,
};
use rustix::io::Errno;

use crate::rig::Rig;
use crate::timeout::{MOUNTED, within};

#[test]
fn a_file_is_made_renamed_linked_and_removed() {
    within(MOUNTED, || {
        let rig = Rig::new();
        fs::write(rig.path("a"), "content").unwrap();
        fs::rename(rig.path("a"), rig.path("b")).unwrap();
        fs::hard_link(rig.path("b"), rig.path("c")).unwrap();
        assert_eq!(fs::metadata(rig.path("c")).unwrap().nlink(), 2);
        fs::remove_file(rig.path("b")).unwrap();
        assert_eq!(fs::read(rig.path("c")).unwrap(), b"content");
        assert!(!rig.path("a").exists());
        assert_eq!(rig.synth.content("c"), b"content");
    });
}

#[test]
fn rename_flags_arrive() {
    within(MOUNTED, || {
        let rig = Rig::new();
        rig.file("a", b"a");
        rig.file("b", b"b");
        let rename = |flags| renameat_with(CWD, rig.path("a"), CWD, rig.path("b"), flags);
        assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename(RenameFlags::EXCHANGE).unwrap();
        assert_eq!((rig.synth.content("a"), rig.synth.content("b")), (b"b".into(), b"a".into()));
    });
}

#[test]
fn directories_are_made_and_removed_when_empty() {
    within(MOUNTED, || {
        let rig = Rig::new();
        fs::create_dir(rig.path("d")).unwrap();
        fs::write(rig.path("d/f"), "").unwrap();
        let full = fs::remove_dir(rig.path("d")).unwrap_err();
        assert_eq!(full.raw_os_error(), Some(Errno::NOTEMPTY.raw_os_error()));
        fs::remove_file(rig.path("d/f")).unwrap();
        fs::remove_dir(rig.path("d")).unwrap();
        assert!(!rig.path("d").exists());
    });
}

#[test]
fn a_symlink_leads_to_its_target() {
    within(MOUNTED, || {
        let rig = Rig::new();
        rig.file("f", b"found");
        symlink("f", rig.path("l")).unwrap();
        assert_eq!(fs::read_link(rig.path("l")).unwrap().to_str(), Some("f"));
        assert_eq!(fs::read(rig.path("l")).unwrap(), b"found");
    });
}

#[test]
fn special_nodes_keep_their_type() {
    within(MOUNTED, || {
        let rig = Rig::new();
        mknodat(CWD, rig.path("p"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
        let found = fs::symlink_metadata(rig.path("p")).unwrap();
        assert!(found.file_type().is_fifo());
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
    });
}

#[test]
fn attributes_are_set_and_shown() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let file = rig.open("f");
        file.set_len(12345).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o4711)).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567, 891);
        file.set_modified(time).unwrap();
        std::os::unix::fs::chown(rig.path("f"), Some(12), Some(34)).unwrap();
        let found = fs::metadata(rig.path("f")).unwrap();
        assert_eq!((found.len(), found.uid(), found.gid()), (12345, 12, 34));
        assert_eq!(found.modified().unwrap(), time);
        assert_eq!(found.blocks(), 25);
    });
}

#[test]
fn the_time_of_birth_is_shown_to_who_asks() {
    within(MOUNTED, || {
        let rig = Rig::new();
        rig.file("f", b"1234");
        let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let found = statx(CWD, rig.path("f"), AtFlags::empty(), mask).unwrap();
        assert_eq!((found.stx_btime.tv_sec, found.stx_size), (42, 4));
    });
}

#[test]
fn a_temporary_file_has_no_name_until_it_is_linked() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file = rustix::fs::open(rig.point(), flags, Mode::from(0o600)).unwrap();
        rustix::io::write(&file, b"late").unwrap();
        assert_eq!(fs::read_dir(rig.point()).unwrap().count(), 0);
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        rustix::fs::linkat(CWD, link, CWD, rig.path("f"), AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(fs::read(rig.path("f")).unwrap(), b"late");
    });
}

#[test]
fn extended_attributes_follow_the_rules_of_their_calls() {
    within(MOUNTED, || {
        let rig = Rig::new();
        rig.file("f", b"");
        let path = rig.path("f");
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
        let rig = Rig::new();
        rig.file("f", b"");
        let value: Vec<u8> = (0..65536_u32).map(|n| n.to_le_bytes()[1]).collect();
        setxattr(rig.path("f"), "user.large", &value, XattrFlags::empty()).unwrap();
        let mut found = vec![0; 65536];
        assert_eq!(getxattr(rig.path("f"), "user.large", &mut found), Ok(65536));
        assert!(found == value);
    });
}

#[test]
fn the_space_of_the_volume_is_shown() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let space = statvfs(rig.point()).unwrap();
        assert_eq!((space.f_bsize, space.f_blocks, space.f_bavail), (4096, 1000, 500));
        assert_eq!((space.f_files, space.f_namemax), (77, 255));
    });
}

#[test]
fn the_kernel_forgets_what_it_looked_up() {
    within(MOUNTED, || {
        let rig = Rig::new();
        for n in 0..100 {
            let name = format!("f{n}");
            rig.file(&name, b"");
            fs::metadata(rig.path(&name)).unwrap();
            fs::remove_file(rig.path(&name)).unwrap();
        }
        crate::rig::eventually("forgets", || {
            rig.synth.seen.forgotten.load(std::sync::atomic::Ordering::SeqCst) >= 100
        });
    });
}
