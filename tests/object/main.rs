//! Object stores: one test body for all of them, S3 on the wire, through proxies and when it fails,
//! and encrypted objects with the real Go client.
#![cfg(test)]

#[allow(dead_code, reason = "each test program uses its own part of this")]
#[path = "../support/hostile.rs"]
mod hostile_server;
#[allow(dead_code, reason = "each test program uses its own part of this")]
#[path = "../support/s3.rs"]
mod s3;
#[path = "../support/mod.rs"]
mod support;

mod stores;

/// Runs each body on each store: `conformance::store::body`. A new store needs a line here and a
/// factory in `stores`.
macro_rules! on_every_store {
    ($($(#[doc = $doc:literal])* async fn $body:ident($store:ident) $block:block)*) => {
        $($(#[doc = $doc])* async fn $body($store: &dyn jfs::object::ObjectStore) $block)*

        on_store!(mem: $($body)*);
        on_store!(file: $($body)*);
        on_store!(s3: $($body)*);
        on_store!(minio: $($body)*);
        on_store!(prefixed_files: $($body)*);
        on_store!(sharded_files: $($body)*);
        on_store!(encrypted: $($body)*);
        on_store!(flaky: $($body)*);
    };
}

macro_rules! on_store {
    ($store:ident: $($body:ident)*) => {
        mod $store {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $body() {
                let made = $crate::stores::$store();
                made.store.create().await.expect("the bucket must be created");
                super::$body(made.store.as_ref()).await;
            })*
        }
    };
}

mod bit_flips;
mod conformance;
mod failures;
mod files;
mod format;
mod go_client;
mod host_style;
mod hostile;
mod minio;
mod proxied;
mod proxy;
mod tls;
mod wire;
