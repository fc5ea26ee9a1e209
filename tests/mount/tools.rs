//! The Go client's tools on our mount, and ours on either.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixture::{KIB, MIB, bytes, names, open};
use crate::on_both;
use crate::support::command::{Finished, kill_group, poll, run};
use crate::support::fixture::{Client, Fixture, Mounted, PATIENCE, ours};
use crate::support::juicefs::{self, juicefs};
use crate::support::mount::is_mounted;

on_both! {
    info_shows_the_same_as_on_a_mount_of_the_go_client,
    info_shows_inodes_and_locks,
    rmr_removes_a_tree_and_the_kernel_sees_it_at_once,
    rmr_of_another_user_is_checked,
    warmup_fills_checks_and_empties_the_cache,
    clone_makes_a_copy_and_the_kernel_sees_it_at_once,
    summary_shows_the_same_as_on_a_mount_of_the_go_client,
    compact_joins_slices,
    stats_are_read,
    profile_reads_the_access_log,
    debug_collects_what_it_can,
    umount_ends_the_mount,
    tools_find_the_mount_from_within_a_directory,
    names_with_a_prefix_are_found,
    our_tools_read_both_mounts,
    our_rmr_removes_on_both_mounts,
}

/// Creates a tree with a file of several slices and blocks, a hole, a link and sub-directories.
fn make_tree(mount: &Mounted) {
    fs::create_dir_all(mount.at("top/below/deeper")).unwrap();
    fs::write(mount.at("top/big"), bytes(1, 9 * MIB)).unwrap();
    let file = open(mount.at("top/big"));
    file.write_all_at(&bytes(2, 100 * KIB), 3 * MIB).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(b"behind a hole", 70 * MIB).unwrap();
    drop(file);
    fs::write(mount.at("top/small"), "small").unwrap();
    fs::write(mount.at("top/empty"), "").unwrap();
    fs::write(mount.at("top/below/one"), bytes(3, 5 * KIB)).unwrap();
    fs::write(mount.at("top/below/deeper/two"), bytes(4, 50 * KIB)).unwrap();
    fs::hard_link(mount.at("top/small"), mount.at("top/below/linked")).unwrap();
    std::os::unix::fs::symlink("small", mount.at("top/soft")).unwrap();
}

/// Returns the output of one of the Go client's tools for a path, without the mount point.
#[track_caller]
fn tells(mount: &Mounted, arguments: &[&str], path: &str) -> String {
    let at = mount.at(path);
    let at = at.to_str().unwrap();
    let told = juicefs(&[arguments, &[at]].concat()).ok();
    told.stdout.replace(mount.path().to_str().unwrap(), "MOUNT")
}

/// Sorts the lines: names of one file, and files of one size, have no order.
fn sorted(told: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = told.lines().map(|line| line.trim_end_matches(',')).collect();
    lines.sort_unstable();
    lines
}

/// Directory usage is stored some seconds later.
fn settle(fixture: &Fixture) {
    drop(fixture.mount_by(Client::Go, &[]));
}

fn info_shows_the_same_as_on_a_mount_of_the_go_client(fixture: &Fixture) {
    let mount = fixture.start();
    make_tree(&mount);
    drop(mount);
    settle(fixture);
    let (here, there) = (fixture.mount_by(Client::Ours, &[]), fixture.mount_by(Client::Go, &[]));
    let paths = ["", "top", "top/big", "top/small", "top/empty", "top/soft", "top/below"];
    for path in paths {
        for options in [&[][..], &["-r"], &["-r", "--strict"], &["--raw"]] {
            let command = [&["info"], options].concat();
            let (ours, theirs) = (tells(&here, &command, path), tells(&there, &command, path));
            assert_eq!(sorted(&ours), sorted(&theirs), "{options:?} {path}");
        }
    }
    let told = tells(&here, &["info"], "top/big");
    assert!(told.contains("volume/chunks/0/0/"), "{told}");
}

fn info_shows_inodes_and_locks(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "text").unwrap();
    let file = open(mount.at("f"));
    file.lock().unwrap();
    let mut command = juicefs::command(&["info", "-i"]);
    command.arg(file.metadata().unwrap().ino().to_string()).current_dir(mount.path());
    let told = run(command, PATIENCE).ok().stdout;
    assert!(told.contains("path: /f"), "{told}");
    assert!(told.contains("flocks:") && told.contains('W'), "{told}");
    drop(file);
    let missing = juicefs(&["info", mount.at("nothing").to_str().unwrap()]);
    assert!(missing.stderr.contains("no such file"), "{missing}");
}

fn rmr_removes_a_tree_and_the_kernel_sees_it_at_once(fixture: &Fixture) {
    fixture.format(&["--trash-days", "1"]);
    // The kernel would cache names for a minute.
    let kept = ["--entry-cache", "60", "--dir-entry-cache", "60", "--attr-cache", "60"];
    let mount = fixture.mount(&kept);
    for top in ["a", "b"] {
        for number in 0..30 {
            let dir = mount.at(format!("{top}/{number}"));
            fs::create_dir_all(&dir).unwrap();
            for file in 0..10 {
                fs::write(dir.join(file.to_string()), "x").unwrap();
            }
        }
    }
    assert!(mount.at("a/5/5").exists());
    let (a, b) = (mount.at("a"), mount.at("b"));
    juicefs(&["rmr", a.to_str().unwrap()]).ok();
    assert_eq!(names(mount.path()), ["b"]);
    assert!(!a.exists());
    juicefs(&["rmr", "--skip-trash", "-p", "3", b.to_str().unwrap()]).ok();
    assert_eq!(names(mount.path()), [""; 0]);
    // The tree removed first is in the trash: 300 files, 30 directories and the top.
    let hours = fs::read_dir(mount.at(".trash")).unwrap();
    let kept: usize = hours.map(|hour| fs::read_dir(hour.unwrap().path()).unwrap().count()).sum();
    assert_eq!(kept, 331);
    juicefs(&["rmr", b.to_str().unwrap()]).refused();
}

fn rmr_of_another_user_is_checked(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir_all(mount.at("d/e")).unwrap();
    // With the raw protocol, since the tool has to be run by that user.
    let refused = as_nobody(&["rmr"], &mount.at("d"));
    assert!(refused.stderr.contains("permission denied"), "{refused}");
    assert!(mount.at("d/e").exists());
}

/// Runs one of the Go client's tools as a user without privileges.
fn as_nobody(arguments: &[&str], path: &Path) -> Finished {
    // The program may be in a directory that only root can read.
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let copy = folder.path().join("juicefs");
    fs::copy(juicefs::binary(), &copy).unwrap();
    for open in [folder.path(), &copy] {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for above in path.ancestors().skip(1).filter(|above| above.starts_with(std::env::temp_dir())) {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(above).unwrap().permissions().mode();
        if mode & 0o005 != 0o005 {
            fs::set_permissions(above, fs::Permissions::from_mode(mode | 0o055)).unwrap();
        }
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(&copy).args(arguments).arg(path).env("HOME", folder.path());
    run(command, PATIENCE)
}

/// Returns the last line of `warmup --check`: files, bytes, and how much is cached.
#[track_caller]
fn checked(path: &Path) -> String {
    let found = juicefs(&["warmup", "--check", path.to_str().unwrap()]).ok();
    let line = found.stderr.lines().find(|line| line.contains("files checked"));
    let line = line.unwrap_or_else(|| panic!("{found}"));
    let line = line.split_once("check cache: ").unwrap().1;
    // It is followed by the source line in the tool.
    line.split(" [").next().unwrap().to_owned()
}

fn warmup_fills_checks_and_empties_the_cache(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("d/f"), bytes(1, 5 * MIB)).unwrap();
    fs::write(mount.at("d/g"), bytes(2, MIB)).unwrap();
    let dir = mount.at("d");
    let warmup = |option: &str| juicefs(&["warmup", option, dir.to_str().unwrap()]).ok();
    warmup("--evict");
    assert_eq!(checked(&dir), "2 files checked, 0 B of 6.0 MiB (0.0%) cached");
    let warm = juicefs(&["warmup", dir.to_str().unwrap()]).ok();
    assert!(warm.stderr.contains("warmup cache: 2 files (6.0 MiB bytes)"), "{warm}");
    assert_eq!(checked(&dir), "2 files checked, 6.0 MiB of 6.0 MiB (100.0%) cached");
    juicefs(&["warmup", "--evict", mount.at("d/g").to_str().unwrap()]).ok();
    assert_eq!(checked(&dir), "2 files checked, 5.0 MiB of 6.0 MiB (83.3%) cached");
    warmup("--background");
    let all = "2 files checked, 6.0 MiB of 6.0 MiB (100.0%) cached";
    assert!(poll(PATIENCE, || checked(&dir) == all), "{}", checked(&dir));
}

fn clone_makes_a_copy_and_the_kernel_sees_it_at_once(fixture: &Fixture) {
    fixture.format(&[]);
    // The kernel would cache for a minute that the name does not exist.
    let mount = fixture.mount(&["--negative-entry-cache", "60", "--attr-cache", "60"]);
    make_tree(&mount);
    let copy = mount.at("copy");
    assert!(!copy.exists());
    let (top, to) = (mount.at("top"), copy.to_str().unwrap());
    juicefs(&["clone", "-p", top.to_str().unwrap(), to]).ok();
    assert_eq!(names(mount.path()), ["copy", "top"]);
    let mut same = Command::new("diff");
    same.args(["-r", "--no-dereference"]).arg(&top).arg(&copy);
    run(same, PATIENCE).ok();
    // From now on the two are independent.
    fs::write(mount.at("copy/small"), "other").unwrap();
    assert_eq!(fs::read(mount.at("top/small")).unwrap(), b"small");
    let again = juicefs(&["clone", top.to_str().unwrap(), to]).refused();
    assert!(again.stderr.contains("already exists"), "{again}");
    drop(mount);
    fixture.check();
}

fn summary_shows_the_same_as_on_a_mount_of_the_go_client(fixture: &Fixture) {
    let mount = fixture.start();
    make_tree(&mount);
    drop(mount);
    settle(fixture);
    let (here, there) = (fixture.mount_by(Client::Ours, &[]), fixture.mount_by(Client::Go, &[]));
    for options in [
        &["--csv"][..],
        &["--csv", "--strict"],
        &["--csv", "-d", "1"],
        &["--csv", "-d", "0"],
        &["--csv", "-e", "2"],
        &[],
    ] {
        let command = [&["summary"], options].concat();
        let (ours, theirs) = (tells(&here, &command, "top"), tells(&there, &command, "top"));
        assert_eq!(sorted(&ours), sorted(&theirs), "{options:?}");
    }
    assert!(tells(&here, &["summary", "--csv"], "top").contains("below/"));
}

fn compact_joins_slices(fixture: &Fixture) {
    let mount = fixture.start();
    let path = mount.at("d/f");
    fs::create_dir(mount.at("d")).unwrap();
    let file = open(&path);
    for number in 0..4 {
        file.write_all_at(&bytes(number, 10 * KIB), number * 10 * KIB).unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    let slices = || {
        let told = ours_tells(&["info", "--raw", "--json"], &path);
        let told: Value = serde_json::from_str(&told).unwrap();
        told[0]["Chunks"].as_array().unwrap().len()
    };
    assert!(slices() > 1);
    let before = fs::read(&path).unwrap();
    let done = juicefs(&["compact", mount.at("d").to_str().unwrap()]).ok();
    assert!(done.stderr.contains("success"), "{done}");
    assert_eq!(slices(), 1);
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[track_caller]
fn ours_tells(arguments: &[&str], path: &Path) -> String {
    let mut command = ours();
    command.args(arguments).arg(path);
    run(command, PATIENCE).ok().stdout
}

fn stats_are_read(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), bytes(1, 3 * MIB)).unwrap();
    let point = mount.path().to_str().unwrap();
    let told = juicefs(&["stats", point, "--schema", "tufmco", "-l", "1", "-c", "2"]).ok();
    let lines: Vec<&str> = told.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{told}");
    assert!(lines[0].contains("-fuse-") && lines[1].contains("ops"), "{told}");
    // The tool reads these metrics, and they include the operations above.
    let stats = fs::read_to_string(mount.at(".stats")).unwrap();
    let value = |name: &str| -> f64 {
        let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in\n{stats}")).parse().unwrap()
    };
    for name in [
        "juicefs_cpu_usage",
        "juicefs_memory",
        "juicefs_uptime",
        "juicefs_fuse_ops_durations_histogram_seconds_total",
        "juicefs_fuse_ops_total_write",
        "juicefs_meta_ops_durations_histogram_seconds_total",
        "juicefs_meta_ops_total_Write",
        "juicefs_transaction_durations_histogram_seconds_total",
        "juicefs_object_request_durations_histogram_seconds_PUT_total",
        "juicefs_used_inodes",
        "juicefs_total_space",
    ] {
        assert!(value(name) > 0.0, "{name} in\n{stats}");
    }
    let written = 3.0 * 1024.0 * 1024.0;
    assert!((value("juicefs_fuse_written_size_bytes_sum") - written).abs() < 0.5);
    assert!((value("juicefs_object_request_data_bytes_PUT") - written).abs() < 0.5);
    for name in ["juicefs_used_buffer_size_bytes", "juicefs_blockcache_hit_bytes"] {
        assert!(value(name) >= 0.0);
    }
}

/// Reads the access log into a file until it is dropped.
struct Listening(std::process::Child);

impl Listening {
    fn start(mount: &Mounted, into: &Path) -> Self {
        let log = fs::File::open(mount.at(".accesslog")).unwrap();
        let mut command = Command::new("cat");
        command.stdin(log).stdout(fs::File::create(into).unwrap());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        kill_group(&mut self.0);
    }
}

fn profile_reads_the_access_log(fixture: &Fixture) {
    let mount = fixture.start();
    let log = fixture.folder().join("access.log");
    let listening = Listening::start(&mount, &log);
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("d/f"), "text").unwrap();
    fs::read(mount.at("d/f")).unwrap();
    let logged = || fs::read_to_string(&log).unwrap_or_default();
    let all = ["mkdir (1,d,", "lookup (", "create (", "write (", "flush (", "release (", "read ("];
    assert!(poll(PATIENCE, || all.iter().all(|op| logged().contains(op))), "{}", logged());
    drop(listening);
    let line = logged().lines().find(|line| line.contains(" mkdir (")).unwrap().to_owned();
    // 2026.11.16 20:00:00.123456 [uid:0,gid:0,pid:7] mkdir (1,d,...): (2,[drwxr-xr-x:...]) - OK <0.000123>
    assert!(line.contains(" [uid:0,gid:0,pid:") && line.contains(" - OK <0."), "{line}");
    let told = juicefs(&["profile", log.to_str().unwrap(), "--interval", "0"]).ok().stdout;
    for op in ["mkdir", "create", "write", "lookup"] {
        assert!(told.lines().any(|line| line.starts_with(op)), "{told}");
    }
    assert!(live_profile(&mount).contains("getattr"));
}

/// Returns the output of the tool while it runs on the mount.
fn live_profile(mount: &Mounted) -> String {
    let mut command = juicefs::command(&["profile", "--interval", "1"]);
    command.arg(mount.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let reading = thread::spawn(move || {
        let mut text = String::new();
        let _ = output.read_to_string(&mut text);
        text
    });
    let until = Instant::now() + Duration::from_secs(6);
    while Instant::now() < until {
        let _ = fs::metadata(mount.at("d/f"));
        fs::File::open(mount.at("d/f")).unwrap().metadata().unwrap();
        thread::sleep(Duration::from_millis(100));
    }
    let _ = child.stdin.take().map(|mut stdin| stdin.flush());
    kill_group(&mut child);
    reading.join().unwrap()
}

fn debug_collects_what_it_can(fixture: &Fixture) {
    let mount = fixture.start();
    let into = fixture.folder().join("collected");
    let mut command = juicefs::command(&["debug", "--stats-sec", "1", "--trace-sec", "1"]);
    command.args(["--profile-sec", "1", "--out-dir"]).arg(&into).arg(mount.path());
    // It inspects processes and ports, which is slow on a busy machine.
    let done = run(command, Duration::from_secs(90)).ok();
    assert!(done.stdout.contains("Mount Command:"), "{done}");
    let found: Vec<PathBuf> =
        fs::read_dir(&into).unwrap().map(|entry| entry.unwrap().path()).collect();
    let folder = found.iter().find(|path| path.is_dir()).unwrap_or_else(|| panic!("{done}"));
    assert!(found.iter().any(|path| path.extension().is_some_and(|end| end == "zip")), "{done}");
    let config: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("config.txt")).unwrap()).unwrap();
    assert_eq!(config["Format"]["Name"], "volume");
    let stats = fs::read_to_string(folder.join("stats.txt")).unwrap();
    assert!(stats.contains("juicefs_uptime "), "{stats}");
}

fn umount_ends_the_mount(fixture: &Fixture) {
    for options in [&[][..], &["--flush"], &["--force"]] {
        if !fixture.bucket().exists() {
            fixture.format(&[]);
        }
        let mount = fixture.mount(&[]);
        fs::write(mount.at("f"), "text").unwrap();
        let point = mount.path().to_owned();
        let command = [&["umount"], options, &[point.to_str().unwrap()]].concat();
        assert!(poll(PATIENCE, || juicefs(&command).status.success()), "{}", juicefs(&command));
        assert!(poll(PATIENCE, || !is_mounted(&point)));
        mount.ended();
    }
    let mount = fixture.mount(&[]);
    assert_eq!(fs::read(mount.at("f")).unwrap(), b"text");
}

fn tools_find_the_mount_from_within_a_directory(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir_all(mount.at("a/b")).unwrap();
    fs::write(mount.at("a/b/f"), "text").unwrap();
    let mut command = juicefs::command(&["info", "f"]);
    command.current_dir(mount.at("a/b"));
    let told = run(command, PATIENCE).ok().stdout;
    assert!(told.contains("path: /a/b/f"), "{told}");
    // A file of that name in a directory does not confuse the tools.
    assert!(!names(mount.at("a/b")).contains(&".control".to_owned()));
}

fn names_with_a_prefix_are_found(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = fixture.mount(&["--prefix-internal"]);
    fs::write(mount.at("f"), "text").unwrap();
    assert!(tells(&mount, &["info"], "f").contains("path: /f"));
    assert!(ours_tells(&["info"], &mount.at("f")).contains("path: /f"));
    juicefs(&["stats", mount.path().to_str().unwrap(), "-c", "1"]).ok();
    ours_tells(&["stats", "-c", "1"], mount.path());
    juicefs(&["rmr", mount.at("f").to_str().unwrap()]).ok();
    assert!(!mount.at("f").exists());
}

fn our_tools_read_both_mounts(fixture: &Fixture) {
    let mount = fixture.start();
    make_tree(&mount);
    drop(mount);
    settle(fixture);
    let (here, there) = (fixture.mount_by(Client::Ours, &[]), fixture.mount_by(Client::Go, &[]));
    let without_place = |mount: &Mounted, arguments: &[&str], path: &str| {
        let told = ours_tells(arguments, &mount.at(path));
        told.replace(mount.path().to_str().unwrap(), "MOUNT")
    };
    for arguments in [&["info", "--json"][..], &["info", "-r", "--json"], &["info", "--raw"]] {
        for path in ["top", "top/big", "top/small"] {
            let (ours, theirs) =
                (without_place(&here, arguments, path), without_place(&there, arguments, path));
            assert_eq!(sorted(&ours), sorted(&theirs));
        }
    }
    for mount in [&here, &there] {
        let told = ours_tells(&["stats", "-c", "2"], mount.path());
        assert_eq!(told.lines().count(), 4, "{told}");
        assert!(!told.contains('\x1b'), "{told}");
        let told = ours_tells(&["stats", "-c", "1", "--json"], mount.path());
        let told: Value = serde_json::from_str(&told).unwrap();
        assert!(told["usage"]["mem"].as_f64().unwrap() > 0.0, "{told}");
    }
    let mut outside = ours();
    outside.args(["info"]).arg(fixture.folder());
    let refused = run(outside, PATIENCE).refused();
    assert!(refused.stderr.contains("is not in a JuiceFS mount"), "{refused}");
}

fn our_rmr_removes_on_both_mounts(fixture: &Fixture) {
    fixture.format(&[]);
    for client in [Client::Ours, Client::Go] {
        let mount = fixture.mount_by(client, &[]);
        make_tree(&mount);
        let told = ours_tells(&["rmr"], &mount.at("top"));
        // 5 files, 2 links and 3 directories.
        assert!(told.ends_with("top: removed 10 entries\n"), "{told}");
        assert_eq!(names(mount.path()), [""; 0]);
    }
}
