//! `mount.juicefs`, as mount(8) runs it.

use std::os::unix::fs::symlink;
use std::process::Command;

use super::fixture::{CliFixture, LIMIT, config, exit_status};
use super::support::command::{Finished, run};
use super::support::mount::is_mounted;
use super::support::timeout::{MOUNTED, within};

#[track_caller]
fn helper(fixture: &CliFixture, words: &[&str]) -> Finished {
    let program = fixture.path("mount.juicefs");
    if !program.exists() {
        symlink(env!("CARGO_BIN_EXE_jfs-mount"), &program).unwrap();
    }
    let mut command = Command::new(program);
    fixture.prepare(&mut command);
    command.args(words);
    run(command, LIMIT)
}

#[test]
fn an_fstab_line_is_mounted_in_the_background() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let url = fixture.redis_volume(&[]);
        let point = fixture.point().display().to_string();
        let cache = fixture.path("cache").display().to_string();
        let log = fixture.path("log").display().to_string();
        let options = format!(
            "rw,_netdev,nofail,x-systemd.automount,attrcacheto=3,cache-dir={cache},log={log},noatime"
        );
        helper(&fixture, &[&url, &point, "-o", &options]).ok();
        assert!(is_mounted(&fixture.point()));
        let shown = config(&fixture.point());
        assert_eq!(shown["AttrTimeout"], 3_000_000_000_u64);
        assert!(shown["FuseOpts"]["Options"].to_string().contains("noatime"));
        fixture.unmount();
    });
}

#[test]
fn failures_have_the_exit_statuses_that_mount_expects() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let point = fixture.point().display().to_string();
        let log = format!("log={}", fixture.path("log").display());
        let failed = helper(&fixture, &["redis://127.0.0.1:1/0", &point, "-o", &log]);
        assert_eq!(exit_status(&failed), 32, "{failed}");
        for words in [&["redis://h/1"][..], &["redis://h/1", &point, "-o", "colour"]] {
            let refused = helper(&fixture, words);
            assert_eq!(exit_status(&refused), 1, "{refused}");
        }
        helper(&fixture, &["redis://h/1", &point, "-f"]).ok();
        assert!(!is_mounted(&fixture.point()));
    });
}
