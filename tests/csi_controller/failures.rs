use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::net::TcpListener;
use tonic::Code;

use crate::driver::{Driver, FileSystem, MIB, volume, within};

#[tokio::test]
async fn hanging_metadata_fails_its_own_call_in_time_and_no_other() {
    let (driver, good) = (Driver::start().await, FileSystem::new());
    // Accepts connections and never responds.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut bad = FileSystem::new();
    bad.secrets.insert("metaurl".to_owned(), format!("redis://:sesame@{address}/1"));
    let mut controller = driver.controller().await;
    let started = Instant::now();
    let hanging =
        controller.create_volume(within(volume(&bad, "bad", MIB), Duration::from_secs(3)));
    let other = async {
        let started = Instant::now();
        driver.create(volume(&good, "good", MIB)).await.unwrap();
        started.elapsed()
    };
    let (error, took) = tokio::join!(hanging, other);
    let error = error.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    assert!(matches!(error.code(), Code::Unavailable | Code::DeadlineExceeded), "{error}");
    assert!(error.message().contains(&address.to_string()), "{error}");
    assert!(!error.message().contains("sesame"), "{error}");
    assert!(took < Duration::from_millis(2500), "{took:?}");
}

#[tokio::test]
async fn unreachable_metadata_is_named_in_the_error() {
    let driver = Driver::start().await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut file_system = FileSystem::new();
    file_system.secrets.insert("metaurl".to_owned(), format!("redis://{free}/1"));
    let mut controller = driver.controller().await;
    let request = within(volume(&file_system, "one", MIB), Duration::from_secs(5));
    let error = controller.create_volume(request).await.unwrap_err();
    assert!(matches!(error.code(), Code::Unavailable | Code::DeadlineExceeded), "{error}");
    assert!(error.message().contains(&free.to_string()), "{error}");
}

#[tokio::test]
async fn a_secret_of_another_or_no_file_system_is_refused() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    let mut empty = FileSystem::new();
    empty.secrets.remove("bucket");
    let error = driver.create(volume(&empty, "one", MIB)).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
    driver.create(volume(&file_system, "one", MIB)).await.unwrap();
    let mut other = FileSystem::new();
    other.secrets.insert("metaurl".to_owned(), file_system.url.clone());
    other.secrets.insert("name".to_owned(), "other".to_owned());
    let error = driver.create(volume(&other, "one", MIB)).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
    let mut none = volume(&file_system, "two", MIB);
    none.secrets.clear();
    assert_eq!(driver.create(none).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn concurrent_calls_create_one_volume() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    driver.create(volume(&file_system, "first", MIB)).await.unwrap();
    let calls = (0..20).map(|_| driver.create(volume(&file_system, "same", MIB)));
    let responses = join_all(calls).await;
    assert!(responses.iter().any(Result::is_ok));
    for response in responses {
        match response {
            Ok(created) => assert_eq!(created.volume_id, "same"),
            Err(error) => assert_eq!(error.code(), Code::Aborted, "{error}"),
        }
    }
    let calls = (0..20).map(|n| {
        let (driver, file_system) = (&driver, &file_system);
        async move { driver.create(volume(file_system, &format!("many-{n}"), MIB)).await }
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
    assert!(ended.stderr.contains("another process is listening on it"), "{ended}");
    assert!(driver.is_ready().await);
}
