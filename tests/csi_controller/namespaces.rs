//! The directories of claims in several namespaces.

use jfs::csi::proto::csi::CreateVolumeRequest;
use tonic::Code;

use crate::driver::{Driver, FileSystem, MIB, volume};

/// A claim whose directory follows from a pattern.
fn claim(
    file_system: &FileSystem,
    id: &str,
    (namespace, name): (&str, &str),
    pattern: &str,
) -> CreateVolumeRequest {
    let mut request = volume(file_system, id, MIB);
    for (key, value) in [
        ("pathPattern", pattern),
        ("csi.storage.k8s.io/pvc/name", name),
        ("csi.storage.k8s.io/pvc/namespace", namespace),
    ] {
        request.parameters.insert(key.to_owned(), value.to_owned());
    }
    request
}

#[tokio::test]
async fn two_namespaces_do_not_share_a_directory_by_accident() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    let pattern = "${.pvc.namespace}-${.pvc.name}";
    driver.create(claim(&file_system, "one", ("a-b", "c"), pattern)).await.unwrap();
    let other = claim(&file_system, "two", ("a", "b-c"), pattern);
    let refused = driver.create(other.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let message = refused.message();
    assert!(message.contains("shareAcrossNamespaces") && !message.contains("a-b "), "{message}");

    // A repeated call, and another claim of the same namespace, succeed.
    driver.create(claim(&file_system, "one", ("a-b", "c"), pattern)).await.unwrap();
    driver.create(claim(&file_system, "three", ("a-b", "x"), "a-b-c")).await.unwrap();

    let mut sharing = other;
    sharing.parameters.insert("shareAcrossNamespaces".to_owned(), "true".to_owned());
    let created = driver.create(sharing).await.unwrap();
    assert_eq!(created.volume_context["subPath"], "a-b-c");
}

#[tokio::test]
async fn a_claim_gets_neither_a_part_nor_a_parent_of_anothers_volume() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    driver
        .create(claim(&file_system, "volume-one", ("web", "data"), "teams/web/data"))
        .await
        .unwrap();
    let mut base = volume(&file_system, "two", MIB);
    base.parameters.insert("subdir".to_owned(), "base".to_owned());
    base.parameters.insert("csi.storage.k8s.io/pvc/namespace".to_owned(), "web".to_owned());
    driver.create(base).await.unwrap();
    // A volume of another driver, whose namespace is unknown.
    let old = "pvc-0f7a2b1c-1234-4abc-9def-0123456789ab";
    file_system.meta().await.ensure_dir(old).await.unwrap();

    let old_part = format!("{old}/private");
    for pattern in [
        "teams/web/data",
        "teams/web/data/private",
        "teams/web",
        "teams",
        "base",
        "base/two",
        old,
        &old_part,
    ] {
        let refused = driver.create(claim(&file_system, "evil", ("evil", "x"), pattern)).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{pattern}: {refused}");
        assert!(!refused.message().contains("volume-one"), "{refused}");
    }
    driver.create(claim(&file_system, "evil", ("evil", "x"), "teams/evil")).await.unwrap();
}
