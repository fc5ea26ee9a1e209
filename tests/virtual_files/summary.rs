//! Summaries of trees through `.control`.

use jfs::meta::Ino;
use serde_json::json;

use crate::fixture::Fixture;

fn body(ino: Ino, depth: u8, top: u8, strict: bool) -> Vec<u8> {
    [&ino.0.to_be_bytes()[..], &[depth, top, u8::from(strict)]].concat()
}

#[tokio::test]
async fn the_largest_entries_are_listed_and_the_rest_summed_up() {
    for fixture in [Fixture::new().await, Fixture::sqlite().await] {
        let top = fixture.dir(Ino::ROOT, "top").await;
        let big = fixture.dir(top, "big").await;
        let f = fixture.file(big, "f", &vec![1; 20000]).await;
        let g = fixture.file(big, "g", &[1; 5000]).await;
        fixture.file(top, "a", b"x").await;
        fixture.file(top, "b", b"x").await;
        for strict in [false, true] {
            let answer = fixture.ask(1007, &body(top, 2, 1, strict)).await;
            let (file, rest) = (20480, 8192);
            let all = file + rest + 4096;
            let expected = json!({
                "Errno": 0,
                "Tree": {
                    "Inode": top.0, "Path": "", "Type": 2, "Size": all + 3 * 4096, "Files": 4, "Dirs": 2,
                    "Children": [
                        {
                            "Inode": big.0, "Path": "big", "Type": 2, "Size": all, "Files": 2, "Dirs": 1,
                            "Children": [
                                {"Inode": f.0, "Path": "big/f", "Type": 1, "Size": file, "Files": 1, "Dirs": 0},
                                {"Inode": 0, "Path": "big/...", "Type": 1, "Size": rest, "Files": 1, "Dirs": 0},
                            ],
                        },
                        {"Inode": 0, "Path": "...", "Type": 1, "Size": 8192, "Files": 2, "Dirs": 0},
                    ],
                },
            });
            assert_eq!(answer.data(), &expected);
            assert_eq!(answer.last_progress(), (6, all + 3 * 4096));
            let _ = g;
        }
    }
}

#[tokio::test]
async fn nodes_below_the_depth_are_only_summed_up() {
    let fixture = Fixture::new().await;
    let top = fixture.dir(Ino::ROOT, "top").await;
    let below = fixture.dir(top, "below").await;
    let deeper = fixture.dir(below, "deeper").await;
    fixture.file(deeper, "f", b"x").await;
    for strict in [false, true] {
        let flat = fixture.ask(1007, &body(top, 0, 10, strict)).await;
        let expected =
            json!({"Inode": top.0, "Path": "", "Type": 2, "Size": 16384, "Files": 1, "Dirs": 3});
        assert_eq!(flat.data()["Tree"], expected);
        let one = fixture.ask(1007, &body(top, 1, 10, strict)).await;
        let child = json!([
            {"Inode": below.0, "Path": "below", "Type": 2, "Size": 12288, "Files": 1, "Dirs": 2},
        ]);
        assert_eq!(one.data()["Tree"]["Children"], child);
    }
}

#[tokio::test]
async fn a_missing_tree_has_an_errno() {
    let fixture = Fixture::new().await;
    let answer = fixture.ask(1007, &body(Ino(999), 3, 10, false)).await;
    assert_eq!((&answer.data()["Errno"], &answer.data()["Tree"]["Size"]), (&2.into(), &0.into()));
}

#[tokio::test]
async fn a_file_is_its_own_summary() {
    let fixture = Fixture::new().await;
    let ino = fixture.file(Ino::ROOT, "f", &[1; 5000]).await;
    let answer = fixture.ask(1007, &ino.0.to_be_bytes()).await;
    let expected =
        json!({"Inode": ino.0, "Path": "", "Type": 2, "Size": 8192, "Files": 1, "Dirs": 0});
    assert_eq!(answer.data()["Tree"], expected);
}
