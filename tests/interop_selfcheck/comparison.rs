//! The parts of the comparison that can be tested without a volume.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{panic, thread};

use serde_json::{Value, json};

use super::support::command::run;
use super::support::normalise::diff;
use super::support::normalise::keyspace::{Keyspace, Stored, normalise};
use super::support::timeout::{on_timeout, within};

#[test]
fn a_body_within_the_limit_returns_its_value() {
    assert_eq!(within(Duration::from_secs(5), || 7), 7);
}

#[test]
fn a_body_that_hangs_fails_and_is_cleaned_up() {
    static CLEANED: AtomicBool = AtomicBool::new(false);
    let failed = panic::catch_unwind(|| {
        within(Duration::from_millis(50), || {
            on_timeout(|| CLEANED.store(true, Ordering::SeqCst));
            thread::sleep(Duration::from_secs(2));
        });
    });
    assert!(failed.is_err());
    assert!(CLEANED.load(Ordering::SeqCst));
}

#[test]
#[should_panic(expected = "as it was")]
fn a_panic_of_the_body_is_propagated() {
    within(Duration::from_secs(5), || panic!("as it was"));
}

#[test]
#[should_panic(expected = "still running after")]
fn a_program_that_hangs_fails_the_test() {
    let mut sleep = std::process::Command::new("sleep");
    sleep.arg("600");
    run(sleep, Duration::from_millis(50));
}

#[test]
fn differences_name_their_path() {
    let one = json!({ "a": [1, { "b": 2 }], "c": "same", "d": 0 });
    let two = json!({ "a": [1, { "b": 3 }], "c": "same", "e": 0 });
    let expected = ["/a[1]/b: 2 != 3", "/d: 0 only on the left", "/e: 0 only on the right"];
    assert_eq!(diff(&one, &two), expected);
    assert!(diff(&one, &one).is_empty());
}

fn log_of(line: &str) -> Value {
    let lines = Stored::List(vec![line.as_bytes().to_vec()]);
    normalise(&Keyspace::from([("txnLog".to_owned(), lines)]))["txnLog"].clone()
}

#[test]
fn a_log_line_is_normalised_without_clock_session_and_ids() {
    for (line, shown) in [
        (
            "1794789868.461127873|CREATE(2,cl,0,0,1,438,18,,linux,true):12|(1,2)",
            "CREATE(ino1,cl,0,0,1,438,18,,linux,t):ino2",
        ),
        (
            "1794789868.465282202|UNLINK(2,cl,9223372032828243969,false,false):12|(1,4)",
            "UNLINK(ino1,cl,hour1,false,t):ino2",
        ),
        ("1794789868.465282202|RMDIR(2,a|b,0):12|(1,5)", "RMDIR(ino1,a|b,none):ino2"),
        ("1794789868.465282202|SETQUOTA(0,2,-1,100)|(1,6)", "SETQUOTA(0,ino1,-1,100)"),
        ("1794789868.465282202|SETQUOTA(1,2,-1,100)|(1,6)", "SETQUOTA(1,2,-1,100)"),
    ] {
        assert_eq!(log_of(line), json!([shown]));
    }
}

#[test]
fn a_counter_below_an_id_in_use_is_a_difference() {
    let volume = |counter: &str, entry: u8| {
        let entry = vec![1, 0, 0, 0, 0, 0, 0, 0, entry];
        normalise(&Keyspace::from([
            ("nextinode".to_owned(), Stored::Text(counter.into())),
            ("d1".to_owned(), Stored::Hash([(b"file".to_vec(), entry)].into())),
        ]))
    };
    assert!(diff(&volume("1024", 2), &volume("2048", 77)).is_empty());
    assert_eq!(
        diff(&volume("1024", 9), &volume("8", 9)),
        ["/nextinode: \"ahead of every inode\" != \"8, behind inode 9\""]
    );
}
