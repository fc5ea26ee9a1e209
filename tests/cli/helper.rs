//! `mount.juicefs`, as mount(8) calls it.

use std::os::unix::fs::symlink;
use std::process::Command;

use super::rig::{LIMIT, Rig, code, config};
use super::support::command::{Finished, run};
use super::support::mount::is_mounted;
use super::support::timeout::{MOUNTED, within};

#[track_caller]
fn helper(rig: &Rig, words: &[&str]) -> Finished {
    let program = rig.path("mount.juicefs");
    if !program.exists() {
        symlink(env!("CARGO_BIN_EXE_jfs-mount"), &program).unwrap();
    }
    let mut command = Command::new(program);
    rig.prepare(&mut command);
    command.args(words);
    run(command, LIMIT)
}

#[test]
fn a_line_of_the_table_is_mounted_in_the_background() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let url = rig.redis_volume(&[]);
        let point = rig.point().display().to_string();
        let cache = rig.path("cache").display().to_string();
        let log = rig.path("log").display().to_string();
        let options = format!(
            "rw,_netdev,nofail,x-systemd.automount,attrcacheto=3,cache-dir={cache},log={log},noatime"
        );
        helper(&rig, &[&url, &point, "-o", &options]).ok();
        assert!(is_mounted(&rig.point()));
        let shown = config(&rig.point());
        assert_eq!(shown["AttrTimeout"], 3_000_000_000_u64);
        assert!(shown["FuseOpts"]["Options"].to_string().contains("noatime"));
        rig.unmount();
    });
}

#[test]
fn failures_have_the_numbers_that_mount_expects() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let point = rig.point().display().to_string();
        let log = format!("log={}", rig.path("log").display());
        let failed = helper(&rig, &["redis://127.0.0.1:1/0", &point, "-o", &log]);
        assert_eq!(code(&failed), 32, "{failed}");
        for words in [&["redis://h/1"][..], &["redis://h/1", &point, "-o", "colour"]] {
            let refused = helper(&rig, words);
            assert_eq!(code(&refused), 1, "{refused}");
        }
        helper(&rig, &["redis://h/1", &point, "-f"]).ok();
        assert!(!is_mounted(&rig.point()));
    });
}
