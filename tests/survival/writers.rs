//! Programs that work on one mount over many hand-overs: none of them sees an error or a wrong byte.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::fcntl::{Flock, FlockArg};

use crate::kept_mount::KeptMount;
use crate::support::fixture::{Fixture, long};
use crate::{on_both, without_resend};

on_both! { programs_go_on_over_hand_overs }
without_resend! { programs_go_on_over_hand_overs }

fn programs_go_on_over_hand_overs(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = KeptMount::start(fixture, &[]);
    let root = mount.path();
    let over = AtomicBool::new(false);
    let is_over = || over.load(Ordering::Relaxed);
    let lines = thread::scope(|scope| {
        let appender = scope.spawn(|| {
            let mut file =
                OpenOptions::new().append(true).create(true).open(root.join("log")).unwrap();
            let mut line = 0_u32;
            while !is_over() {
                writeln!(file, "{line}").unwrap();
                line += 1;
                if line.is_multiple_of(10) {
                    file.sync_data().unwrap();
                }
            }
            line
        });
        scope.spawn(|| {
            // Random places of one file, checked against memory.
            let path = root.join("random");
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(&path)
                .unwrap();
            let (mut expected, mut state) = (vec![0_u8; 1 << 20], 9_u64);
            file.write_all_at(&expected, 0).unwrap();
            while !is_over() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = usize::try_from((state >> 33) % ((1 << 20) - 5000)).unwrap();
                let part = vec![u8::try_from(state >> 56).unwrap(); 5000];
                file.write_all_at(&part, at as u64).unwrap();
                expected[at..at + 5000].copy_from_slice(&part);
                let mut found = vec![0; 9000.min(expected.len() - at)];
                file.read_exact_at(&mut found, at as u64).unwrap();
                assert!(found == expected[at..at + found.len()]);
            }
            drop(file);
            assert!(fs::read(&path).unwrap() == expected);
        });
        scope.spawn(|| {
            // Two descriptors take turns with a lock.
            let open = || File::create(root.join("lock")).unwrap();
            let (mut one, mut two) = (open(), open());
            while !is_over() {
                let held = Flock::lock(one, FlockArg::LockExclusive).map_err(|(_, e)| e).unwrap();
                let refused = Flock::lock(two, FlockArg::LockExclusiveNonblock);
                two = refused.err().unwrap().0;
                one = held.unlock().map_err(|(_, e)| e).unwrap();
            }
        });
        scope.spawn(|| {
            // A tree that is made and removed.
            while !is_over() {
                let dir = root.join("tree");
                for n in 0..5 {
                    fs::create_dir_all(dir.join(format!("{n}"))).unwrap();
                    fs::write(dir.join(format!("{n}/f")), "text").unwrap();
                }
                fs::remove_dir_all(&dir).unwrap();
            }
        });
        for _ in 0..if long() { 40 } else { 12 } {
            thread::sleep(std::time::Duration::from_millis(60));
            mount.replace_server();
        }
        over.store(true, Ordering::Relaxed);
        appender.join().unwrap()
    });
    let expected: Vec<String> = (0..lines).map(|line| line.to_string()).collect();
    let found = fs::read_to_string(root.join("log")).unwrap();
    assert_eq!(found.lines().collect::<Vec<_>>(), expected);
    mount.unmount();
    fixture.check();
}
