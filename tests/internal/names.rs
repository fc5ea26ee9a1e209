//! What the virtual files are called and where they are.

use jfs::Error;
use jfs::meta::{Caller, Ino};
use nix::fcntl::OFlag;

use crate::scene::{Choice, Scene};

const LOG: Ino = Ino(0x7FFF_FFFF_0000_0001);
const CONTROL: Ino = Ino(0x7FFF_FFFF_0000_0002);
const STATS: Ino = Ino(0x7FFF_FFFF_0000_0003);
const CONFIG: Ino = Ino(0x7FFF_FFFF_0000_0004);

fn found(scene: &Scene, dir: Ino, name: &str) -> Option<Ino> {
    scene.internal.find(dir, name.as_bytes()).map(|(ino, _)| ino)
}

#[tokio::test]
async fn the_root_has_all_and_every_directory_has_control() {
    let scene = Scene::new().await;
    let all = [(".accesslog", LOG), (".control", CONTROL), (".stats", STATS), (".config", CONFIG)];
    for (name, ino) in all {
        assert_eq!(found(&scene, Ino::ROOT, name), Some(ino));
        assert!(scene.internal.is_reserved(Ino::ROOT, name.as_bytes()));
        assert!(!scene.internal.is_reserved(Ino(7), name.as_bytes()));
    }
    assert_eq!(found(&scene, Ino(7), ".control"), Some(CONTROL));
    assert_eq!(found(&scene, Ino(7), ".stats"), None);
    assert_eq!(found(&scene, Ino::ROOT, ".jfs.stats"), None);
    assert!(scene.internal.is_reserved(Ino::ROOT, b".trash"));
    assert!(!scene.internal.is_reserved(Ino::ROOT, b"stats"));
}

#[tokio::test]
async fn a_listing_shows_all_but_control() {
    let scene = Scene::new().await;
    let listed = scene.internal.listed();
    let names: Vec<String> = listed.iter().map(|(name, ..)| name.to_string()).collect();
    assert_eq!(names, [".accesslog", ".stats", ".config"]);
    let config = &listed[2].2;
    assert_eq!(config.length, scene.text(".config").await.len() as u64);
    assert_eq!((config.mode, config.nlink), (0o400, 1));
}

#[tokio::test]
async fn names_may_have_a_prefix() {
    let scene = Scene::with(Choice { prefix: true, ..Choice::default() }).await;
    assert_eq!(found(&scene, Ino(7), ".jfs.control"), Some(CONTROL));
    assert_eq!(found(&scene, Ino::ROOT, ".control"), None);
    assert!(scene.internal.is_reserved(Ino::ROOT, b".jfs.trash"));
}

#[tokio::test]
async fn a_mount_of_a_directory_does_not_show_the_trash() {
    let scene = Scene::with(Choice { subdir: "/a/b", ..Choice::default() }).await;
    assert_eq!(scene.internal.trash_name(), None);
    assert!(!scene.internal.is_reserved(scene.root, b".trash"));
}

#[tokio::test]
async fn only_control_is_written_to() {
    let scene = Scene::new().await;
    for ino in [LOG, STATS, CONFIG] {
        let refused = scene.internal.open(&Caller::root(), ino, OFlag::O_RDWR).err();
        assert!(matches!(refused, Some(Error::AccessDenied)), "{refused:?}");
    }
    assert!(scene.internal.open(&Caller::root(), CONTROL, OFlag::O_RDWR).is_ok());
    let lost = scene.internal.reopen(CONTROL, OFlag::O_RDWR).err();
    assert!(matches!(lost, Some(Error::BadHandle)), "{lost:?}");
    assert!(scene.internal.reopen(STATS, OFlag::O_RDONLY).is_ok());
    let unknown = scene.internal.open(&Caller::root(), Ino(7), OFlag::O_RDONLY).err();
    assert!(matches!(unknown, Some(Error::NotFound)), "{unknown:?}");
    assert!(matches!(scene.open(".stats").write(0, b"x"), Err(Error::BadHandle)));
}
