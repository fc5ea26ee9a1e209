//! The limit: the same objects moved by the SDK's client, with as many requests in flight as helps.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use jfs::object::Spec;

use crate::baseline::plain_s3::{self, Plan};
use crate::distant_s3::DistantS3;
use crate::table::Measured;
use crate::workload::{BLOCK, MIB, Work};

/// More in flight made no distance that was tried faster.
const AT_ONCE: usize = 64;

/// Does the same as a mount, as far as the store is concerned. `None` if there is nothing to
/// compare.
pub fn run(work: Work, server: &DistantS3, large: usize) -> Result<Option<Measured>> {
    let spec = Spec::new("s3", &server.bucket());
    let client = plain_s3::client(&spec, "bench", "benchbench");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bytes = large * MIB;
    let start = Instant::now();
    match work {
        Work::Read | Work::Mapped | Work::Ranges => {
            let mut keys = server.keys(BLOCK);
            keys.truncate(bytes / BLOCK);
            let bucket = "bucket".to_owned();
            let plan = Plan::Blocks(AT_ONCE);
            runtime.block_on(plain_s3::read(client, bucket, Arc::from(keys), plan));
        }
        Work::Write => {
            let bodies: Vec<_> =
                (0..bytes / BLOCK).map(|_| bytes::Bytes::from(vec![0x5A; BLOCK])).collect();
            let bucket = "bucket".to_owned();
            runtime.block_on(plain_s3::write(client, bucket, Arc::from(bodies), AT_ONCE));
        }
        _ => return Ok(None),
    }
    Ok(Some(Measured { rate: large as f64 / start.elapsed().as_secs_f64(), cpu: None }))
}
