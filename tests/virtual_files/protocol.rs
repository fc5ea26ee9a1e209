//! The bytes of requests and replies.

use jfs::meta::Ino;

use crate::fixture::{Fixture, reply, request};

#[tokio::test]
async fn an_info_has_exactly_these_bytes() {
    let fixture = Fixture::sqlite().await;
    let dir = fixture.dir(Ino::ROOT, "d").await;
    assert_eq!(dir, Ino(2));
    let handle = fixture.open(".control");
    // As the Go client's tools send it for inode 2.
    let asked = b"\0\0\x03\xed\0\0\0\x0b\0\0\0\0\0\0\0\x02\0\0\0";
    handle.write(0, asked).unwrap();
    reply(&handle, asked.len() as u64).await;
    let all = handle.read(0, 4096).await.unwrap();
    let json = br#"{"Ino":2,"Failed":false,"Reason":"","Summary":{"Length":0,"Size":4096,"Files":0,"Dirs":1},"Paths":["/d"],"Chunks":null,"Objects":null,"PLocks":[],"FLocks":[],"Tier":{"ID":0,"StorageClass":"","Tag":""},"RestoreStatus":""}"#;
    let length = u32::try_from(json.len()).unwrap().to_be_bytes();
    let progress = b"\xfe\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0";
    let expected = [&asked[..], progress, b"\xff", &length, json].concat();
    assert_eq!(all, expected);
}

#[tokio::test]
async fn a_request_in_several_writes_gets_a_reply_once_it_is_complete() {
    let fixture = Fixture::new().await;
    let handle = fixture.open(".control");
    let asked = request(1005, b"\0\0\0\0\0\0\0\x01\0\0\0");
    for byte in &asked[..asked.len() - 1] {
        handle.write(0, &[*byte]).unwrap();
    }
    assert_eq!(handle.read(0, 4096).await.unwrap(), "");
    handle.write(0, &asked[asked.len() - 1..]).unwrap();
    let answer = reply(&handle, asked.len() as u64).await;
    assert_eq!(answer.data()["Paths"][0], "/");
}

#[tokio::test]
async fn one_handle_handles_one_request_after_the_other() {
    let fixture = Fixture::new().await;
    let handle = fixture.open(".control");
    let mut off = 0;
    for _ in 0..3 {
        let asked = request(1005, b"\0\0\0\0\0\0\0\x01");
        handle.write(off, &asked).unwrap();
        off += asked.len() as u64;
        assert_eq!(reply(&handle, off).await.data()["Ino"], 1);
        off += handle.read(off, 1 << 20).await.unwrap().len() as u64;
    }
}

#[tokio::test]
async fn an_unknown_or_malformed_request_gets_an_errno() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.ask(1001, b"").await.errno(), 22);
    assert_eq!(fixture.ask(1999, b"abc").await.errno(), 22);
    assert_eq!(fixture.ask(1005, b"\0\0\x01").await.errno(), 22);
    let handle = fixture.open(".control");
    let longer = [request(1005, b"\0\0\0\0\0\0\0\x01"), vec![9; 5]].concat();
    handle.write(0, &longer).unwrap();
    assert_eq!(reply(&handle, longer.len() as u64).await.errno(), 5);
}
