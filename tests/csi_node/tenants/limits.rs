//! What one volume, or one tenant, can take of shared resources.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use jfs::csi::proto::csi::NodeGetInfoRequest;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tonic::Code;

use super::memory_load::anonymous;
use crate::csi::Node;
use crate::support::timeout::{MOUNTED, within};

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}

/// Opens a file until that fails, at most `most` times.
fn open(path: &Path, most: usize) -> (Vec<File>, Option<Errno>) {
    let mut files = Vec::new();
    for _ in 0..most {
        match File::open(path) {
            Ok(file) => files.push(file),
            Err(error) => return (files, Some(errno(&error))),
        }
    }
    (files, None)
}

#[test]
fn the_access_log_has_few_readers() {
    within(MOUNTED, || {
        let node = Node::start();
        let pv = node.publication("pvc-1", "web");
        node.publish(&pv).unwrap();
        let (readers, refused) = open(&pv.target.join(".accesslog"), 500);
        assert!(readers.len() < 100, "{} readers", readers.len());
        assert_eq!(refused, Some(Errno::ENFILE));
        drop(readers);
        fs::write(pv.target.join("f"), "x").unwrap();
    });
}

#[test]
fn incomplete_requests_take_a_bounded_amount_of_memory() {
    within(MOUNTED, || {
        let node = Node::start();
        let (pv, other) = (node.publication("pvc-1", "web"), node.publication("pvc-2", "other"));
        node.publish(&pv).unwrap();
        node.publish(&other).unwrap();
        let mut open = Vec::new();
        let mut accepted = 0;
        let refused = 'all: loop {
            assert!(open.len() < 500, "the number of requests is not limited");
            let file = File::options().write(true).open(pv.target.join(".control"));
            let mut file = match file {
                Ok(file) => file,
                Err(error) => break errno(&error),
            };
            // A warmup request with 32 MiB of paths that is never completed.
            file.write_all(&[&1004_u32.to_be_bytes()[..], &(32_u32 << 20).to_be_bytes()].concat())
                .unwrap();
            for _ in 0..31 {
                if let Err(error) = file.write_all(&vec![b'x'; 1 << 20]) {
                    break 'all errno(&error);
                }
                accepted += 1;
            }
            open.push(file);
        };
        assert!([Errno::ENOMEM, Errno::ENFILE].contains(&refused), "{refused}");
        assert!(accepted <= 16, "{accepted} MiB were accepted");
        // Other volumes are not affected, and the limit is temporary.
        fs::write(other.target.join("f"), vec![1; 5 << 20]).unwrap();
        assert_eq!(fs::read_dir(&other.target).unwrap().count(), 1);
        drop(open);
        fs::write(pv.target.join("f"), "x").unwrap();
    });
}

#[test]
fn opening_too_many_files_is_refused_for_that_volume_only() {
    within(MOUNTED, || {
        let node = Node::start();
        let (pv, other) = (node.publication("pvc-1", "web"), node.publication("pvc-2", "other"));
        node.publish(&pv).unwrap();
        node.publish(&other).unwrap();
        fs::write(pv.target.join("f"), "x").unwrap();
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
        let (files, refused) = open(&pv.target.join("f"), 60_000);
        assert_eq!(refused, Some(Errno::ENFILE), "{} files are open", files.len());
        assert!(files.len() > 1000, "{} files", files.len());
        assert_eq!(errno(&fs::read_dir(&pv.target).unwrap_err()), Errno::ENFILE);
        fs::write(other.target.join("f"), "x").unwrap();
        drop(files);
        assert_eq!(fs::read_to_string(pv.target.join("f")).unwrap(), "x");
    });
}

#[test]
fn a_listing_that_pauses_is_complete_when_it_continues() {
    within(MOUNTED, || {
        let node = Node::start();
        let pv = node.publication("pvc-1", "web");
        node.publish(&pv).unwrap();
        let dir = pv.target.join("dir");
        fs::create_dir(&dir).unwrap();
        for i in 0..6000 {
            File::create(dir.join(format!("{i:060}"))).unwrap();
        }
        let before = anonymous(node.pid());
        // They would need a hundred times the available memory.
        let mut listings: Vec<_> = (0..60).map(|_| fs::read_dir(&dir).unwrap()).collect();
        for listing in &mut listings {
            listing.next().unwrap().unwrap();
        }
        let held = anonymous(node.pid()).saturating_sub(before);
        assert!(held < 32 << 20, "{held} bytes for {} listings", listings.len());
        for listing in listings {
            let mut names: Vec<_> = listing.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), 5999);
        }
    });
}

#[test]
fn no_more_volumes_are_published_than_announced() {
    within(MOUNTED, || {
        let mut node = Node::start_with_options(&["--max-volumes", "2"]);
        let most = |node: &Node| {
            let mut client = node.node();
            let info = node.block_on(client.node_get_info(NodeGetInfoRequest {}));
            info.unwrap().into_inner().max_volumes_per_node
        };
        assert_eq!(most(&node), 2);
        let pvs = ["a", "b", "c"].map(|name| node.publication(name, name));
        node.publish(&pvs[0]).unwrap();
        node.publish(&pvs[1]).unwrap();
        let refused = node.publish(&pvs[2]).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("--max-volumes"), "{refused}");
        // Another target of a published volume does not count, nor does a repeated call.
        node.publish(&pvs[1]).unwrap();
        let mut second = pvs[1].clone();
        second.target = node.target("second");
        node.publish(&second).unwrap();
        node.unpublish("a", &pvs[0].target).unwrap();
        node.publish(&pvs[2]).unwrap();
        // Published volumes stay, even after a restart with a lower limit.
        node.kill();
        node.restart(&["--max-volumes", "1"]);
        node.publish(&pvs[1]).unwrap();
        node.publish(&pvs[2]).unwrap();
        assert_eq!(node.publish(&pvs[0]).unwrap_err().code(), Code::ResourceExhausted);
    });
}

#[test]
fn a_damaged_record_affects_no_other_volume() {
    within(MOUNTED, || {
        let mut node = Node::start();
        let pv = node.publication("pvc-1", "web");
        node.publish(&pv).unwrap();
        fs::write(pv.target.join("f"), "x").unwrap();
        node.kill();
        let published = node.path("state/published");
        fs::write(
            published.join("bad.json"),
            r#"{"volume": "", "point": "", "session": 0, "targets": []}"#,
        )
        .unwrap();
        fs::write(published.join("worse.json"), "\0\0\0").unwrap();
        node.restart(&[]);
        assert!(node.log().contains("bad.json") && node.log().contains("worse.json"));
        assert!(published.join("bad.damaged").exists() && published.join("worse.damaged").exists());
        node.publish(&pv).unwrap();
        assert_eq!(fs::read_to_string(pv.target.join("f")).unwrap(), "x");
    });
}
