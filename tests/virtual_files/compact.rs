//! Compacting through `.control`.

use jfs::meta::Ino;

use crate::fixture::Fixture;

fn body(ino: Ino, threads: u16) -> Vec<u8> {
    [&ino.0.to_be_bytes()[..], &threads.to_be_bytes()].concat()
}

async fn slice_count(fixture: &Fixture, ino: Ino) -> usize {
    fixture.meta.read(ino, 0).await.unwrap().len()
}

#[tokio::test]
async fn every_file_of_a_tree_is_compacted() {
    for fixture in [Fixture::new().await, Fixture::sqlite().await] {
        let top = fixture.dir(Ino::ROOT, "top").await;
        let below = fixture.dir(top, "below").await;
        let files = [fixture.file(top, "f", b"0").await, fixture.file(below, "g", b"0").await];
        for ino in files {
            for at in 1..4 {
                fixture.write(ino, at * 10, b"x").await;
            }
            assert!(slice_count(&fixture, ino).await > 1);
        }
        let answer = fixture.ask(1008, &body(top, 3)).await;
        assert_eq!((answer.errno(), answer.last_progress()), (0, (2, 2)));
        for ino in files {
            assert_eq!(slice_count(&fixture, ino).await, 1);
        }
    }
}

#[tokio::test]
async fn one_file_is_compacted() {
    let fixture = Fixture::new().await;
    let ino = fixture.file(Ino::ROOT, "f", b"0").await;
    fixture.write(ino, 10, b"x").await;
    let answer = fixture.ask(1008, &body(ino, 0)).await;
    assert_eq!((answer.errno(), answer.last_progress()), (0, (1, 1)));
    assert_eq!(slice_count(&fixture, ino).await, 1);
    assert_eq!(fixture.ask(1008, &body(Ino(999), 1)).await.errno(), 2);
}
