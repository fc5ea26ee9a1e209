//! Directories of claims of several namespaces.

use jfs::csi::proto::csi::CreateVolumeRequest;
use tonic::Code;

use crate::driver::{Driver, MIB, Place, volume};

/// A claim of a namespace, whose directory follows from this pattern.
fn claim(
    place: &Place,
    id: &str,
    (namespace, name): (&str, &str),
    pattern: &str,
) -> CreateVolumeRequest {
    let mut request = volume(place, id, MIB);
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
async fn two_namespaces_do_not_come_to_one_directory_by_accident() {
    let (driver, place) = (Driver::start().await, Place::new());
    let pattern = "${.pvc.namespace}-${.pvc.name}";
    driver.create(claim(&place, "one", ("a-b", "c"), pattern)).await.unwrap();
    let other = claim(&place, "two", ("a", "b-c"), pattern);
    let refused = driver.create(other.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let told = refused.message();
    assert!(told.contains("shareAcrossNamespaces") && !told.contains("a-b "), "{told}");

    // A repeat of what there is, and another claim of the same namespace, are fine.
    driver.create(claim(&place, "one", ("a-b", "c"), pattern)).await.unwrap();
    driver.create(claim(&place, "three", ("a-b", "x"), "a-b-c")).await.unwrap();

    let mut sharing = other;
    sharing.parameters.insert("shareAcrossNamespaces".to_owned(), "true".to_owned());
    let made = driver.create(sharing).await.unwrap();
    assert_eq!(made.volume_context["subPath"], "a-b-c");
}

#[tokio::test]
async fn a_claim_names_neither_a_part_of_anothers_volume_nor_what_is_around_it() {
    let (driver, place) = (Driver::start().await, Place::new());
    driver.create(claim(&place, "volume-one", ("web", "data"), "teams/web/data")).await.unwrap();
    let mut base = volume(&place, "two", MIB);
    base.parameters.insert("subdir".to_owned(), "base".to_owned());
    base.parameters.insert("csi.storage.k8s.io/pvc/namespace".to_owned(), "web".to_owned());
    driver.create(base).await.unwrap();
    // By the conventions of another driver, and nobody knows whose it is.
    let old = "pvc-0f7a2b1c-1234-4abc-9def-0123456789ab";
    place.meta().await.ensure_dir(old).await.unwrap();

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
        let refused = driver.create(claim(&place, "evil", ("evil", "x"), pattern)).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{pattern}: {refused}");
        assert!(!refused.message().contains("volume-one"), "{refused}");
    }
    driver.create(claim(&place, "evil", ("evil", "x"), "teams/evil")).await.unwrap();
}
