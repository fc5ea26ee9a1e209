//! Extended attributes and access control lists.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{XattrFlags, getxattr, lgetxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;

use crate::fixture::{SOMEBODY, as_user, refused};
use crate::on_both;
use crate::support::command::run;
use crate::support::fixture::{Client, Fixture, Mounted, PATIENCE};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

on_both! {
    attributes_are_set_listed_and_removed,
    xattr_create_and_xattr_replace_are_honoured,
    buffers_that_are_too_small_are_reported,
    attributes_of_a_symlink_are_its_own,
    names_are_in_a_namespace,
    trusted_names_are_for_root,
    a_change_of_xattrs_updates_the_times,
    an_immutable_file_keeps_its_attributes,
    without_the_option_there_are_no_xattrs,
    an_acl_grants_and_denies,
    an_acl_and_the_mode_agree,
    a_default_acl_is_inherited,
    acls_match_getfacl_and_setfacl,
    a_volume_without_acls_has_none,
}

fn attributes_are_set_listed_and_removed(fixture: &Fixture) {
    let mount = with_xattrs(fixture);
    fs::write(mount.at("f"), "").unwrap();
    let path = mount.at("f");
    for (name, value) in [("user.one", &b"value"[..]), ("user.two", b"\0\xff"), ("trusted.t", b"x")]
    {
        setxattr(&path, name, value, XattrFlags::empty()).unwrap();
        assert_eq!(get(&path, name).unwrap(), value);
    }
    let big = vec![7; 60_000];
    setxattr(&path, "user.big", &big, XattrFlags::empty()).unwrap();
    assert_eq!(get(&path, "user.big").unwrap(), big);
    assert_eq!(list(&path), ["trusted.t", "user.big", "user.one", "user.two"]);
    removexattr(&path, "user.one").unwrap();
    assert_eq!(refused(get(&path, "user.one")), Errno::NODATA);
    assert_eq!(refused(removexattr(&path, "user.one")), Errno::NODATA);
    assert_eq!(list(&path), ["trusted.t", "user.big", "user.two"]);
}

fn xattr_create_and_xattr_replace_are_honoured(fixture: &Fixture) {
    let mount = with_xattrs(fixture);
    fs::write(mount.at("f"), "").unwrap();
    let set = |value: &[u8], flags| setxattr(mount.at("f"), "user.a", value, flags);
    assert_eq!(refused(set(b"1", XattrFlags::REPLACE)), Errno::NODATA);
    set(b"1", XattrFlags::CREATE).unwrap();
    assert_eq!(refused(set(b"2", XattrFlags::CREATE)), Errno::EXIST);
    assert_eq!(get(&mount.at("f"), "user.a").unwrap(), b"1");
    set(b"2", XattrFlags::REPLACE).unwrap();
    assert_eq!(get(&mount.at("f"), "user.a").unwrap(), b"2");
}

fn buffers_that_are_too_small_are_reported(fixture: &Fixture) {
    let mount = with_xattrs(fixture);
    let path = mount.at("f");
    fs::write(&path, "").unwrap();
    setxattr(&path, "user.a", b"0123456789", XattrFlags::empty()).unwrap();
    assert_eq!(refused(getxattr(&path, "user.a", &mut [0_u8; 9][..])), Errno::RANGE);
    assert_eq!(refused(listxattr(&path, &mut [0_u8; 6][..])), Errno::RANGE);
    // The tool reads the length first.
    let mut tool = Command::new("getfattr");
    tool.args(["--absolute-names", "--dump"]).arg(&path);
    let said = run(tool, PATIENCE).ok().stdout;
    assert!(said.contains("user.a=\"0123456789\""), "{said}");
}

fn attributes_of_a_symlink_are_its_own(fixture: &Fixture) {
    let mount = with_xattrs(fixture);
    fs::write(mount.at("f"), "").unwrap();
    symlink("f", mount.at("s")).unwrap();
    let link = mount.at("s");
    rustix::fs::lsetxattr(&link, "trusted.a", b"link", XattrFlags::empty()).unwrap();
    let mut value = [0; 4];
    assert_eq!(lgetxattr(&link, "trusted.a", &mut value).unwrap(), 4);
    assert_eq!(refused(get(&link, "trusted.a")), Errno::NODATA);
}

fn names_are_in_a_namespace(fixture: &Fixture) {
    let mount = with_xattrs(fixture);
    let path = mount.at("f");
    fs::write(&path, "").unwrap();
    for name in ["plain", "users.a", "system.a", "com.apple.a"] {
        let set = setxattr(&path, name, b"x", XattrFlags::empty());
        assert_eq!(refused(set), Errno::OPNOTSUPP, "{name}");
        assert_eq!(refused(get(&path, name)), Errno::OPNOTSUPP, "{name}");
        assert_eq!(refused(removexattr(&path, name)), Errno::OPNOTSUPP, "{name}");
    }
    assert_eq!(refused(setxattr(&path, "user.", b"x", XattrFlags::empty())), Errno::INVAL);
    mount.unmount();
    // Attributes that another client created can be read and removed.
    let go = fixture.mount_by(Client::Go, &["--enable-xattr"]);
    setxattr(go.at("f"), "plain", b"x", XattrFlags::empty()).unwrap();
    go.unmount();
    let mount = fixture.mount(&["--enable-xattr"]);
    assert_eq!(list(&mount.at("f")), ["plain"]);
    assert_eq!(get(&mount.at("f"), "plain").unwrap(), b"x");
    removexattr(mount.at("f"), "plain").unwrap();
    assert_eq!(list(&mount.at("f")), [""; 0]);
}

fn trusted_names_are_for_root(fixture: &Fixture) {
    let mount = with_xattrs(fixture);
    let path = mount.at("f");
    fs::write(&path, "").unwrap();
    setxattr(&path, "user.u", b"x", XattrFlags::empty()).unwrap();
    setxattr(&path, "trusted.t", b"x", XattrFlags::empty()).unwrap();
    assert_eq!(list(&path), ["trusted.t", "user.u"]);
    assert_eq!(as_user(SOMEBODY, || list(&path)), ["user.u"]);
}

fn a_change_of_xattrs_updates_the_times(fixture: &Fixture) {
    let mount = with_xattrs(fixture);
    let path = mount.at("f");
    fs::write(&path, "").unwrap();
    let times = || {
        let found = fs::metadata(&path).unwrap();
        ((found.ctime(), found.ctime_nsec()), (found.mtime(), found.mtime_nsec()))
    };
    let before = times();
    setxattr(&path, "user.a", b"x", XattrFlags::empty()).unwrap();
    let set = times();
    assert!(set.0 > before.0 && set.1 == before.1);
    removexattr(&path, "user.a").unwrap();
    assert!(times().0 > set.0);
}

fn an_immutable_file_keeps_its_attributes(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = fixture.mount(&["--enable-xattr", "--enable-ioctl"]);
    let path = mount.at("f");
    fs::write(&path, "").unwrap();
    setxattr(&path, "user.a", b"x", XattrFlags::empty()).unwrap();
    let chattr = |how: &str| {
        let mut tool = Command::new("chattr");
        tool.arg(how).arg(&path);
        run(tool, PATIENCE).ok();
    };
    for flag in ["i", "a"] {
        chattr(&format!("+{flag}"));
        assert_eq!(refused(setxattr(&path, "user.a", b"y", XattrFlags::empty())), Errno::PERM);
        assert_eq!(refused(removexattr(&path, "user.a")), Errno::PERM);
        chattr(&format!("-{flag}"));
    }
    assert_eq!(get(&path, "user.a").unwrap(), b"x");
}

fn without_the_option_there_are_no_xattrs(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "").unwrap();
    let set = setxattr(mount.at("f"), "user.a", b"1", XattrFlags::empty());
    assert_eq!(refused(set), Errno::OPNOTSUPP);
    assert_eq!(refused(get(&mount.at("f"), "user.a")), Errno::OPNOTSUPP);
}

fn an_acl_grants_and_denies(fixture: &Fixture) {
    let mount = with_acls(fixture);
    let path = mount.at("f");
    fs::write(&path, "text").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(as_user(SOMEBODY, || refused(fs::read(&path))), Errno::ACCESS);
    set_acl(
        &path,
        ACCESS,
        &[(1, 6, None), (2, 4, Some(SOMEBODY)), (4, 0, None), (16, 4, None), (32, 0, None)],
    );
    as_user(SOMEBODY, || {
        assert_eq!(fs::read(&path).unwrap(), b"text");
        assert_eq!(refused(fs::write(&path, "")), Errno::ACCESS);
    });
    assert_eq!(as_user(SOMEBODY + 1, || refused(fs::read(&path))), Errno::ACCESS);
    // The mask removes what the entry grants.
    set_acl(
        &path,
        ACCESS,
        &[(1, 6, None), (2, 7, Some(SOMEBODY)), (4, 0, None), (16, 1, None), (32, 4, None)],
    );
    assert_eq!(as_user(SOMEBODY, || refused(fs::read(&path))), Errno::ACCESS);
    assert_eq!(as_user(SOMEBODY + 1, || fs::read(&path).unwrap()), b"text");
    removexattr(&path, ACCESS).unwrap();
    assert_eq!(refused(get(&path, ACCESS)), Errno::NODATA);
}

fn an_acl_and_the_mode_agree(fixture: &Fixture) {
    let mount = with_acls(fixture);
    let path = mount.at("f");
    fs::write(&path, "").unwrap();
    let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
    // An ACL equivalent to a mode is stored as the mode.
    set_acl(&path, ACCESS, &[(1, 7, None), (4, 5, None), (32, 1, None)]);
    assert_eq!(mode(), 0o751);
    assert_eq!(refused(get(&path, ACCESS)), Errno::NODATA);
    set_acl(
        &path,
        ACCESS,
        &[(1, 6, None), (4, 4, None), (8, 6, Some(77)), (16, 6, None), (32, 4, None)],
    );
    // The group bits of the mode show the mask.
    assert_eq!(mode(), 0o664);
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let rule = acl(&[(1, 6, None), (4, 4, None), (8, 6, Some(77)), (16, 4, None), (32, 0, None)]);
    assert_eq!(get(&path, ACCESS).unwrap(), rule);
}

fn a_default_acl_is_inherited(fixture: &Fixture) {
    let mount = with_acls(fixture);
    fs::create_dir(mount.at("d")).unwrap();
    let rule = [(1, 7, None), (2, 7, Some(SOMEBODY)), (4, 5, None), (16, 7, None), (32, 0, None)];
    set_acl(&mount.at("d"), DEFAULT, &rule);
    fs::create_dir(mount.at("d/sub")).unwrap();
    fs::write(mount.at("d/f"), "").unwrap();
    assert_eq!(get(&mount.at("d/sub"), DEFAULT).unwrap(), acl(&rule));
    assert_eq!(get(&mount.at("d/sub"), ACCESS).unwrap(), acl(&rule));
    // A file created with 0666 does not become executable.
    let file = [(1, 6, None), (2, 7, Some(SOMEBODY)), (4, 5, None), (16, 6, None), (32, 0, None)];
    assert_eq!(get(&mount.at("d/f"), ACCESS).unwrap(), acl(&file));
    assert_eq!(refused(get(&mount.at("d/f"), DEFAULT)), Errno::NODATA);
    assert_eq!(fs::metadata(mount.at("d/f")).unwrap().mode() & 0o777, 0o660);
    let set = setxattr(mount.at("d/f"), DEFAULT, &acl(&rule), XattrFlags::empty());
    assert_eq!(refused(set), Errno::ACCESS);
}

fn acls_match_getfacl_and_setfacl(fixture: &Fixture) {
    let mount = with_acls(fixture);
    fs::create_dir(mount.at("d")).unwrap();
    let tool = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).arg(mount.at("d"));
        run(command, PATIENCE).ok().stdout
    };
    tool("setfacl", &["-m", "u:4000:rwx,g:77:r-x,m::rwx"]);
    tool("setfacl", &["-d", "-m", "u:4000:r-x"]);
    let said = tool("getfacl", &["--absolute-names", "--numeric", "--omit-header"]);
    let lines: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
    let access =
        ["user::rwx", "user:4000:rwx", "group::r-x", "group:77:r-x", "mask::rwx", "other::r-x"];
    let default = [
        "default:user::rwx",
        "default:user:4000:r-x",
        "default:group::r-x",
        "default:mask::r-x",
        "default:other::r-x",
    ];
    assert_eq!(lines, [&access[..], &default].concat());
    tool("setfacl", &["-b", "-k"]);
    let said = tool("getfacl", &["--absolute-names", "--numeric", "--omit-header", "--skip-base"]);
    assert_eq!(said.trim(), "");
}

fn a_volume_without_acls_has_none(fixture: &Fixture) {
    let mount = with_xattrs(fixture);
    fs::write(mount.at("f"), "").unwrap();
    let rule = acl(&[(1, 7, None), (4, 5, None), (32, 1, None)]);
    let set = setxattr(mount.at("f"), ACCESS, &rule, XattrFlags::empty());
    assert_eq!(refused(set), Errno::OPNOTSUPP);
}

fn with_xattrs(fixture: &Fixture) -> Mounted {
    fixture.format(&[]);
    fixture.mount(&["--enable-xattr"])
}

fn with_acls(fixture: &Fixture) -> Mounted {
    fixture.format(&["--enable-acl"]);
    fixture.mount(&["--enable-xattr"])
}

fn get(path: &Path, name: &str) -> rustix::io::Result<Vec<u8>> {
    let mut value = vec![0; 1 << 16];
    let length = getxattr(path, name, &mut value[..])?;
    value.truncate(length);
    Ok(value)
}

fn list(path: &Path) -> Vec<String> {
    let mut names = vec![0; 1 << 16];
    let length = listxattr(path, &mut names[..]).unwrap();
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<String> =
        names.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect();
    names.sort();
    names
}

#[track_caller]
fn set_acl(path: &Path, which: &str, entries: &[(u16, u16, Option<u32>)]) {
    setxattr(path, which, &acl(entries), XattrFlags::empty()).unwrap();
}

/// Encodes an ACL as `setfacl` does: version 2, then tag, permissions and id of each entry.
fn acl(entries: &[(u16, u16, Option<u32>)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.unwrap_or(u32::MAX).to_le_bytes());
    }
    bytes
}
