//! One suite for every engine: each body is written once and runs on all of them.
//!
//! The bodies test the contract in `meta::engine`. The particulars of one engine (its bytes, its
//! commands) are tested in the engine's own module.
#![cfg(test)]

#[path = "../support/redis.rs"]
#[allow(dead_code, reason = "this test program uses a part of it")]
mod redis;
#[path = "../support/tikv.rs"]
#[allow(dead_code, reason = "this test program uses a part of it")]
mod tikv;

mod fixtures;
mod stores;

/// Runs each body on each engine: `module::engine::body`. A new engine needs a line here and a
/// function in `stores`.
macro_rules! on_every_engine {
    ($($(#[doc = $doc:literal])* async fn $body:ident($store:ident) $block:block)*) => {
        $($(#[doc = $doc])* async fn $body($store: &$crate::stores::TestStore) $block)*

        on_engine!(memory: $($body)*);
        on_engine!(memory_with_conflicts: $($body)*);
        on_engine!(sqlite: $($body)*);
        on_engine!(redis: $($body)*);
        on_engine!(tikv: $($body)*);
        on_engine!(tikv_in_regions: $($body)*);
    };
}

macro_rules! on_engine {
    ($engine:ident: $($body:ident)*) => {
        mod $engine {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $body() {
                super::$body(&$crate::stores::$engine().await).await;
            })*
        }
    };
}

mod acls;
mod changelog;
mod chunks;
mod commits;
mod contention;
mod counters;
mod dir_stats;
mod garbage;
mod guards;
mod listing;
mod locks;
mod nodes;
mod quotas;
mod scans;
mod sessions;
mod settings;
mod slices;
