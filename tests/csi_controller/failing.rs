use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::net::TcpListener;
use tonic::Code;

use crate::driver::{Driver, MIB, Place, volume, within};

#[tokio::test]
async fn metadata_that_hangs_fails_the_call_in_time_and_no_other() {
    let (driver, good) = (Driver::start().await, Place::new());
    // Takes connections and never says a word.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut bad = Place::new();
    bad.secrets.insert("metaurl".to_owned(), format!("redis://:sesame@{address}/1"));
    let mut controller = driver.controller().await;
    let began = Instant::now();
    let hanging =
        controller.create_volume(within(volume(&bad, "bad", MIB), Duration::from_secs(3)));
    let other = async {
        let began = Instant::now();
        driver.create(volume(&good, "good", MIB)).await.unwrap();
        began.elapsed()
    };
    let (error, took) = tokio::join!(hanging, other);
    let error = error.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    assert!(matches!(error.code(), Code::Unavailable | Code::DeadlineExceeded), "{error}");
    assert!(error.message().contains(&address.to_string()), "{error}");
    assert!(!error.message().contains("sesame"), "{error}");
    assert!(took < Duration::from_millis(2500), "{took:?}");
}

#[tokio::test]
async fn metadata_that_is_not_there_is_named() {
    let driver = Driver::start().await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut place = Place::new();
    place.secrets.insert("metaurl".to_owned(), format!("redis://{free}/1"));
    let mut controller = driver.controller().await;
    let request = within(volume(&place, "one", MIB), Duration::from_secs(5));
    let error = controller.create_volume(request).await.unwrap_err();
    assert!(matches!(error.code(), Code::Unavailable | Code::DeadlineExceeded), "{error}");
    assert!(error.message().contains(&free.to_string()), "{error}");
}

#[tokio::test]
async fn a_secret_of_another_volume_or_without_a_volume_is_refused() {
    let (driver, place) = (Driver::start().await, Place::new());
    let mut empty = Place::new();
    empty.secrets.remove("bucket");
    let error = driver.create(volume(&empty, "one", MIB)).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
    driver.create(volume(&place, "one", MIB)).await.unwrap();
    let mut other = Place::new();
    other.secrets.insert("metaurl".to_owned(), place.url.clone());
    other.secrets.insert("name".to_owned(), "other".to_owned());
    let error = driver.create(volume(&other, "one", MIB)).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
    let mut none = volume(&place, "two", MIB);
    none.secrets.clear();
    assert_eq!(driver.create(none).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn calls_at_the_same_time_make_one_volume() {
    let (driver, place) = (Driver::start().await, Place::new());
    driver.create(volume(&place, "first", MIB)).await.unwrap();
    let calls = (0..20).map(|_| driver.create(volume(&place, "same", MIB)));
    let answers = join_all(calls).await;
    assert!(answers.iter().any(Result::is_ok));
    for answer in answers {
        match answer {
            Ok(made) => assert_eq!(made.volume_id, "same"),
            Err(error) => assert_eq!(error.code(), Code::Aborted, "{error}"),
        }
    }
    let calls = (0..20).map(|n| {
        let (driver, place) = (&driver, &place);
        async move { driver.create(volume(place, &format!("many-{n}"), MIB)).await }
    });
    assert!(join_all(calls).await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_second_driver_on_the_same_socket_is_refused() {
    let driver = Driver::start().await;
    let mut second = std::process::Command::new(env!("CARGO_BIN_EXE_jfs-csi"));
    second.arg("--endpoint").arg(format!("unix://{}", driver.socket.display()));
    second.args(["--mode", "controller", "--http", "127.0.0.1:0", "--health", "127.0.0.1:0"]);
    let ended = crate::support::command::run(second, Duration::from_secs(30)).refused();
    assert!(ended.stderr.contains("another process listens there"), "{ended}");
    assert!(driver.is_ready().await);
}
