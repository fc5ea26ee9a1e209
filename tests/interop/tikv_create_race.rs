//! On TiKV the Go client does not lock what it only reads: a file that it creates in a directory that is
//! removed at the same moment is orphaned. Shows what its tools do about it.

use std::fs;
use std::thread;
use std::time::Duration;

use jfs::meta::Options;
use jfs::meta::record::Counter;

use crate::script::runner::runtime;
use crate::support::command::poll;
use crate::support::tikv::{TikvFault, TikvServer};
use crate::support::timeout::{MOUNTED, within};
use crate::support::tree::Tree;
use crate::test_volume::{Client, Store, TestVolume, clean};

/// How long the create is delayed: enough for the removal on a busy machine.
const HELD: Duration = Duration::from_secs(5);

#[test]
fn a_file_made_by_go_in_a_directory_that_we_remove_is_lost_and_stays_counted() {
    within(MOUNTED, || {
        let volume = TestVolume::formatted(Store::Tikv, Client::Go, &["--trash-days", "0"]);
        let server = TikvServer::shared();
        // Without an update of the directory's times, it writes nothing that the removal writes.
        let mount = volume.go.mount(&["--skip-dir-mtime", "1h"]);
        fs::create_dir(mount.path().join("d")).unwrap();
        fs::write(mount.path().join("warm"), "has allocated ids").unwrap();
        let runtime = runtime();
        let ours = runtime.block_on(volume.open(Options::default()));
        let dir = runtime.block_on(ours.meta.ino("/d"));

        let of_dir = [b"A".as_slice(), &dir.0.to_le_bytes()].concat();
        let entry = [&of_dir[..], b"Df"].concat();
        let fault = TikvFault { on: "KvPrewrite", what: "delay", times: 1, delay: HELD };
        server.inject(&volume.url, &entry, &fault);
        let prewrites = || server.calls().get("KvPrewrite").copied().unwrap_or(0);
        let before = prewrites();
        let path = mount.path().join("d/f");
        let maker = thread::spawn(move || fs::File::create(path).map(drop));
        assert!(poll(HELD / 2, || prewrites() > before), "the create never writes");
        runtime.block_on(ours.meta.rm_dir("/d")).expect("an empty directory");
        maker.join().unwrap().expect("the create is not refused");
        mount.unmount();
        runtime.block_on(async {
            ours.meta.idle().await;
            ours.meta.close().await.unwrap();
        });

        let is_lost = || server.dump(&volume.url).contains_key(&entry);
        let inodes = || {
            runtime.block_on(async {
                let meta = volume.connect().await;
                let inodes = meta.engine().counter(Counter::TotalInodes).await.unwrap();
                meta.close().await.unwrap();
                inodes
            })
        };
        assert!(is_lost(), "an entry without a directory");
        assert_eq!(inodes(), 2, "the existing file and the lost one");
        // It only checks what is reachable from the root, and finds no error.
        for options in [&[][..], &["--path", "/", "--recursive", "--repair"]] {
            clean(volume.go.run("fsck", options));
            assert_eq!(inodes(), 2, "{options:?}");
        }
        volume.repair();
        assert_eq!(
            inodes(),
            1,
            "with the usage of directories, that of the volume is counted anew"
        );
        clean(volume.go.run("gc", &["--delete"]));
        assert!(is_lost(), "gc does not remove it");
    });
}
