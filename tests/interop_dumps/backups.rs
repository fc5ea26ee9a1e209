//! Backups of metadata that mounts make, beside those of the Go client.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::fixture::{dump_by, fill, load_by, without_counters};
use crate::support::command::poll;
use crate::support::fixture::{Client, Fixture};
use crate::support::timeout::within;

/// The shortest interval there is; clients look every half minute.
const OFTEN: [&str; 2] = ["--backup-meta", "5m"];
const PATIENCE: Duration = Duration::from_mins(2);
const LIMIT: Duration = Duration::from_mins(5);

fn folder(fixture: &Fixture) -> PathBuf {
    fixture.bucket().join("volume/meta")
}

fn backups(fixture: &Fixture) -> BTreeSet<String> {
    let names = fs::read_dir(folder(fixture)).into_iter().flatten();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn name(at: DateTime<Utc>) -> String {
    format!("dump-{}.json.gz", at.format("%Y-%m-%d-%H%M%S"))
}

#[test]
fn a_backup_of_a_mount_is_loaded_by_both_clients() {
    within(LIMIT, || {
        let fixture = Fixture::sqlite();
        fill(&fixture);
        let mounts = [fixture.mount_with_jobs(&OFTEN), fixture.mount_with_jobs(&OFTEN)];
        assert!(poll(PATIENCE, || !backups(&fixture).is_empty()), "no backup was made");
        drop(mounts);
        // Both have looked by now, or will see that there is one.
        let found = backups(&fixture);
        assert_eq!(found.len(), 1, "{found:?}");
        let file = folder(&fixture).join(found.first().unwrap());
        let expected = without_counters(&dump_by(false, fixture.url(), &[]));
        for is_ours in [true, false] {
            let loaded = Fixture::sqlite();
            load_by(is_ours, loaded.url(), &file, &[]).ok();
            let mut found = without_counters(&dump_by(false, loaded.url(), &[]));
            let mut expected = expected.clone();
            for dump in [&mut found, &mut expected] {
                // Sessions that end remove what they had open.
                dump.as_object_mut().unwrap().remove("Sustained");
            }
            assert_eq!(found, expected, "ours: {is_ours}");
        }
    });
}

#[test]
fn both_clients_keep_the_same_old_backups() {
    within(LIMIT, || {
        let now = Utc::now();
        let ages = (0..72)
            .map(TimeDelta::hours)
            .chain((12..100).map(|sixths| TimeDelta::hours(6 * sixths)))
            .chain((20..110).map(|days| TimeDelta::days(3 * days)))
            .chain((40..120).map(|weeks| TimeDelta::weeks(weeks)));
        // Not close to the edge of any time span, because the clients do not look at the same second.
        let names: BTreeSet<String> =
            ages.map(|age| name(now - age - TimeDelta::minutes(30))).collect();
        let fixtures = [Fixture::sqlite(), Fixture::sqlite()];
        for fixture in &fixtures {
            fixture.format(&[]);
            fs::create_dir_all(folder(fixture)).unwrap();
            for name in &names {
                fs::write(folder(fixture).join(name), "").unwrap();
            }
        }
        let [ours, go] = &fixtures;
        let ours_mount = ours.mount_with_jobs(&OFTEN);
        let go_mount = go.go.mount_with_jobs(&OFTEN);
        let kept = |fixture: &Fixture| -> BTreeSet<String> {
            backups(fixture).intersection(&names).cloned().collect()
        };
        let is_done = || kept(ours).len() < names.len() && kept(ours) == kept(go);
        let done = poll(PATIENCE, is_done);
        assert!(done, "ours: {:?}\nGo client's: {:?}", kept(ours), kept(go));
        assert!(kept(ours).len() < names.len() / 2 && kept(ours).len() > 72);
        drop((ours_mount, go_mount));
    });
}

#[test]
fn a_backup_of_one_client_is_enough_for_the_other() {
    within(LIMIT, || {
        let fixture = Fixture::sqlite();
        fixture.format(&[]);
        let first = fixture.go.mount_with_jobs(&OFTEN);
        assert!(poll(PATIENCE, || !backups(&fixture).is_empty()), "no backup was made");
        drop(first);
        let made = backups(&fixture);
        let second = fixture.mount_with_jobs(&OFTEN);
        // It looks every half a minute.
        std::thread::sleep(Duration::from_secs(40));
        assert_eq!(backups(&fixture), made);
        second.unmount();
    });
}

#[test]
fn a_read_only_mount_and_one_without_jobs_make_no_backups() {
    within(LIMIT, || {
        let fixture = Fixture::sqlite();
        fixture.format(&[]);
        let read_only = fixture.mount_with_jobs(&["--backup-meta", "5m", "--read-only"]);
        let jobless = fixture.mount_by(Client::Ours, &OFTEN);
        for mount in [&read_only, &jobless] {
            let stats = fs::read_to_string(mount.at(".stats")).unwrap();
            assert!(!stats.contains("backup"), "{stats}");
        }
        let making = fixture.mount_with_jobs(&[]);
        assert!(!fs::read_to_string(making.at(".stats")).unwrap().contains("backup"));
        let making = fixture.mount_with_jobs(&["--backup-meta", "1h"]);
        assert!(
            fs::read_to_string(making.at(".stats")).unwrap().contains("last_successful_backup")
        );
    });
}
