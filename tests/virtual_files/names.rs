//! The names of the virtual files, and where they exist.

use jfs::Error;
use jfs::meta::{Caller, Ino};
use nix::fcntl::OFlag;

use crate::fixture::{Fixture, FixtureOptions};

const LOG: Ino = Ino(0x7FFF_FFFF_0000_0001);
const CONTROL: Ino = Ino(0x7FFF_FFFF_0000_0002);
const STATS: Ino = Ino(0x7FFF_FFFF_0000_0003);
const CONFIG: Ino = Ino(0x7FFF_FFFF_0000_0004);

fn found(fixture: &Fixture, dir: Ino, name: &str) -> Option<Ino> {
    fixture.virtual_files.find(dir, name.as_bytes()).map(|(ino, _)| ino)
}

#[tokio::test]
async fn the_root_has_all_virtual_files_and_every_directory_has_control() {
    let fixture = Fixture::new().await;
    let all = [(".accesslog", LOG), (".control", CONTROL), (".stats", STATS), (".config", CONFIG)];
    for (name, ino) in all {
        assert_eq!(found(&fixture, Ino::ROOT, name), Some(ino));
        assert!(fixture.virtual_files.is_reserved(Ino::ROOT, name.as_bytes()));
        assert!(!fixture.virtual_files.is_reserved(Ino(7), name.as_bytes()));
    }
    assert_eq!(found(&fixture, Ino(7), ".control"), Some(CONTROL));
    assert_eq!(found(&fixture, Ino(7), ".stats"), None);
    assert_eq!(found(&fixture, Ino::ROOT, ".jfs.stats"), None);
    assert!(fixture.virtual_files.is_reserved(Ino::ROOT, b".trash"));
    assert!(!fixture.virtual_files.is_reserved(Ino::ROOT, b"stats"));
}

#[tokio::test]
async fn a_listing_shows_all_but_control() {
    let fixture = Fixture::new().await;
    let listed = fixture.virtual_files.listed();
    let names: Vec<String> = listed.iter().map(|(name, ..)| name.to_string()).collect();
    assert_eq!(names, [".accesslog", ".stats", ".config"]);
    let config = &listed[2].2;
    assert_eq!(config.length, fixture.text(".config").await.len() as u64);
    assert_eq!((config.mode, config.nlink), (0o400, 1));
}

#[tokio::test]
async fn names_may_have_a_prefix() {
    let fixture = Fixture::with(FixtureOptions { prefix: true, ..FixtureOptions::default() }).await;
    assert_eq!(found(&fixture, Ino(7), ".jfs.control"), Some(CONTROL));
    assert_eq!(found(&fixture, Ino::ROOT, ".control"), None);
    assert!(fixture.virtual_files.is_reserved(Ino::ROOT, b".jfs.trash"));
}

#[tokio::test]
async fn a_mount_of_a_directory_does_not_show_the_trash() {
    let fixture =
        Fixture::with(FixtureOptions { subdir: "/a/b", ..FixtureOptions::default() }).await;
    assert_eq!(fixture.virtual_files.trash_name(), None);
    assert!(!fixture.virtual_files.is_reserved(fixture.root, b".trash"));
}

#[tokio::test]
async fn only_control_is_written_to() {
    let fixture = Fixture::new().await;
    for ino in [LOG, STATS, CONFIG] {
        let refused = fixture.virtual_files.open(&Caller::root(), ino, OFlag::O_RDWR).err();
        assert!(matches!(refused, Some(Error::AccessDenied)), "{refused:?}");
    }
    assert!(fixture.virtual_files.open(&Caller::root(), CONTROL, OFlag::O_RDWR).is_ok());
    let lost = fixture.virtual_files.reopen(CONTROL, OFlag::O_RDWR).err();
    assert!(matches!(lost, Some(Error::BadHandle)), "{lost:?}");
    assert!(fixture.virtual_files.reopen(STATS, OFlag::O_RDONLY).is_ok());
    let unknown = fixture.virtual_files.open(&Caller::root(), Ino(7), OFlag::O_RDONLY).err();
    assert!(matches!(unknown, Some(Error::NotFound)), "{unknown:?}");
    assert!(matches!(fixture.open(".stats").write(0, b"x"), Err(Error::BadHandle)));
}
