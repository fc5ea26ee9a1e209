//! A real S3 server behind a failing network: flushed data is stored, and no wrong byte is read.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jfs::chunk::Budget;
use jfs::meta::Ino;
use jfs::object::{ObjectStore, Spec, open};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::fixture::{Client, noise};
use crate::s3::{Fault, S3Server};
use crate::support::volume::Volume;

const BLOCK: u32 = 64 << 10;
/// Bytes of each file: whole blocks and a part of one.
const SIZE: usize = 5 * BLOCK as usize + 1234;
const FILES: u64 = 6;
/// Requests of each half of the test that fail; the others succeed.
const DISTURBED: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_flushed_over_a_faulty_network_is_read_back_intact() {
    let server = S3Server::start();
    let objects = open(&Spec { retries: 10, ..server.spec("bucket") }).unwrap();
    let vol = Volume::memory().await;
    let here = client(&vol, &objects).await;

    server.fail(faults(1));
    let written = join_all((0..FILES).map(|number| write(&here, number))).await;
    drop(here);

    let fresh = client(&vol, &objects).await;
    server.fail(faults(2));
    join_all(written.into_iter().map(|(number, ino)| check(&fresh, number, ino))).await;
}

/// With little memory, so that most reads come from the server.
async fn client(vol: &Volume, objects: &Arc<dyn ObjectStore>) -> Client {
    Client::sized(vol.client().await, objects.clone(), BLOCK, Budget::new(8 * BLOCK as usize))
}

async fn write(here: &Client, number: u64) -> (u64, Ino) {
    let file = here.create(&format!("f{number}")).await;
    let ino = file.ino();
    for (index, part) in noise(SIZE, number).chunks(100_000).enumerate() {
        here.content.write(ino, index as u64 * 100_000, part).await.unwrap();
    }
    here.content.flush(ino).await.unwrap();
    (number, ino)
}

async fn check(fresh: &Client, number: u64, ino: Ino) {
    let reader = fresh.open(ino).await;
    // More than a block each: parts of a block are requested as ranges, which have no checksum.
    let mut found = Vec::new();
    while found.len() < SIZE {
        let pieces = reader.read(found.len() as u64, 4 * BLOCK).await.unwrap();
        for piece in &pieces {
            found.extend_from_slice(piece);
        }
    }
    assert!(found == noise(SIZE, number), "file {number} is not what was written");
}

/// Every kind of failure, in an order given by the seed.
fn faults(seed: u64) -> Vec<Fault> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut fault = || match random.random_range(0..20) {
        0 => Fault::Answer(503, "SlowDown"),
        1 => Fault::Answer(500, "InternalError"),
        2 => Fault::Cut(1000),
        3 => Fault::Short(1000),
        4 | 5 => Fault::WrongByte,
        6 => Fault::LoseAnswer,
        _ => Fault::Delay(Duration::from_millis(random.random_range(0..20))),
    };
    (0..DISTURBED).map(|_| fault()).collect()
}
