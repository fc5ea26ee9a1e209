//! Who owns, over real connections.

use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use jfs::Error;
use jfs::keeper::server::{Server, Timing};
use jfs::keeper::{KeeperClient, KeeperEvent};

use super::fixture::{Keeper, event, held, memory, put, until};

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn descriptors_are_held_under_names_and_replaced_whole() {
    let keeper = Keeper::new();
    let (owner, _events) = keeper.owner();
    let files = [memory("a"), memory("b"), memory("c")];
    owner.put("pv-1", &[files[0].as_fd(), files[1].as_fd(), files[2].as_fd()]).unwrap();
    put(&owner, "pv-0", "x");
    assert_eq!(owner.names().unwrap(), ["pv-0", "pv-1"]);
    assert_eq!(held(&owner, "pv-1"), ["a", "b", "c"]);
    put(&owner, "pv-1", "d");
    assert_eq!(held(&owner, "pv-1"), ["d"]);
    owner.remove("pv-1").unwrap();
    owner.remove("pv-1").unwrap();
    assert!(owner.get("pv-1").unwrap().is_none());
    assert_eq!(owner.names().unwrap(), ["pv-0"]);
}

#[test]
fn many_names_are_listed_in_full() {
    let keeper = Keeper::new();
    let (owner, _events) = keeper.owner();
    let names: Vec<String> = (0..150).map(|n| format!("{n:0>120}")).collect();
    let file = memory("x");
    for name in &names {
        owner.put(name, &[file.as_fd()]).unwrap();
    }
    assert_eq!(owner.names().unwrap(), names);
}

#[test]
fn only_the_owner_changes_what_is_held_and_everybody_reads_it() {
    let keeper = Keeper::new();
    let (other, _other_events) = keeper.client("newcomer");
    let file = memory("x");
    assert!(matches!(other.put("a", &[file.as_fd()]), Err(Error::Refused(_))), "nobody owns");
    let (owner, _events) = keeper.owner();
    put(&owner, "a", "text");
    let refusal = other.put("a", &[file.as_fd()]).unwrap_err().to_string();
    assert!(refusal.contains("owner"), "{refusal}");
    assert!(matches!(other.remove("a"), Err(Error::Refused(_))));
    assert_eq!(
        (other.names().unwrap(), held(&other, "a")),
        (vec!["a".into()], vec!["text".into()])
    );
    assert!(matches!(other.yielded(), Err(Error::Refused(_))));
}

#[test]
fn wrong_names_and_numbers_of_descriptors_are_refused_by_the_client() {
    let keeper = Keeper::new();
    let (owner, _events) = keeper.owner();
    let file = memory("x");
    for name in ["", "a\0b", &"n".repeat(256)] {
        assert!(matches!(owner.put(name, &[file.as_fd()]), Err(Error::BadInput(_))), "{name}");
    }
    assert!(matches!(owner.put("a", &[]), Err(Error::BadInput(_))));
    assert!(matches!(owner.put("a", &[file.as_fd(); 5]), Err(Error::BadInput(_))));
    owner.put("a", &[file.as_fd(); 4]).unwrap();
}

#[test]
fn an_owner_that_yields_is_followed_by_the_asker() {
    let keeper = Keeper::new();
    let (old, mut old_events) = keeper.owner();
    put(&old, "a", "text");
    let (new, mut new_events) = keeper.client("new");
    new.ask(false).unwrap();
    assert_eq!(event(&mut old_events), KeeperEvent::Yield);
    // It is the owner until it has stopped.
    put(&old, "a", "last");
    new_events.try_recv().unwrap_err();
    old.yielded().unwrap();
    assert_eq!(event(&mut new_events), KeeperEvent::Yours);
    assert!(matches!(old.remove("a"), Err(Error::Refused(_))));
    assert_eq!(held(&new, "a"), ["last"]);
    new.remove("a").unwrap();
}

#[test]
fn an_owner_that_is_gone_is_followed_by_the_asker_and_loses_nothing() {
    let keeper = Keeper::new();
    let (old, _old_events) = keeper.owner();
    put(&old, "a", "text");
    let (new, mut new_events) = keeper.client("new");
    new.ask(false).unwrap();
    drop(old);
    assert_eq!(event(&mut new_events), KeeperEvent::Yours);
    assert_eq!(held(&new, "a"), ["text"]);
    drop(new);
    // Nobody asks: all is held for the next.
    let (next, _events) = keeper.owner();
    assert_eq!(held(&next, "a"), ["text"]);
}

#[test]
fn a_spare_follows_an_owner_that_is_gone_if_nobody_else_asks() {
    let keeper = Keeper::with(Timing { spare_delay: SHORT, ..Timing::default() });
    let (owner, _events) = keeper.owner();
    put(&owner, "a", "text");
    let (spare, mut spare_events) = keeper.client("spare");
    spare.ask(true).unwrap();
    drop(owner);
    assert_eq!(event(&mut spare_events), KeeperEvent::Yours);
    // It yields to one that is no spare.
    let (new, mut new_events) = keeper.client("new");
    new.ask(false).unwrap();
    assert_eq!(event(&mut spare_events), KeeperEvent::Yield);
    spare.yielded().unwrap();
    assert_eq!(event(&mut new_events), KeeperEvent::Yours);
}

#[test]
fn a_spare_waits_for_its_time() {
    let keeper = Keeper::with(Timing { spare_delay: Duration::from_hours(1), ..Timing::default() });
    let (owner, _events) = keeper.owner();
    let (spare, mut spare_events) = keeper.client("spare");
    spare.ask(true).unwrap();
    drop(owner);
    let (new, mut new_events) = keeper.client("new");
    new.ask(false).unwrap();
    assert_eq!(event(&mut new_events), KeeperEvent::Yours);
    spare_events.try_recv().unwrap_err();
}

#[test]
fn an_owner_that_does_not_yield_stays_and_the_asker_is_refused() {
    let keeper = Keeper::with(Timing { yield_limit: SHORT, ..Timing::default() });
    let (owner, mut events) = keeper.owner();
    let (new, mut new_events) = keeper.client("new");
    new.ask(false).unwrap();
    assert_eq!(event(&mut events), KeeperEvent::Yield);
    assert_eq!(event(&mut new_events), KeeperEvent::Refused);
    assert_eq!(event(&mut events), KeeperEvent::Yours, "serve on");
    put(&owner, "a", "text");
    assert!(matches!(owner.yielded(), Err(Error::Refused(_))), "too late");
    put(&owner, "a", "text");
}

#[test]
fn an_asker_that_declines_leaves_the_owner_serving() {
    let keeper = Keeper::new();
    let (owner, mut events) = keeper.owner();
    let (new, mut new_events) = keeper.client("new");
    new.ask(false).unwrap();
    assert_eq!(event(&mut events), KeeperEvent::Yield);
    new.decline("a store cannot be opened").unwrap();
    assert_eq!(event(&mut events), KeeperEvent::Yours);
    let (other, _) = keeper.client("other");
    other.ask(false).unwrap();
    assert_eq!(event(&mut events), KeeperEvent::Yield);
    drop(other);
    assert_eq!(event(&mut events), KeeperEvent::Yours);
    put(&owner, "a", "text");
    new_events.try_recv().unwrap_err();
}

#[test]
fn names_that_nobody_owns_are_released_after_the_orphan_timeout() {
    let keeper = Keeper::with(Timing { orphan_timeout: SHORT, ..Timing::default() });
    let (owner, _events) = keeper.owner();
    let (reader, writer) = nix::unistd::pipe().unwrap();
    owner.put("pipe", &[writer.as_fd()]).unwrap();
    drop(writer);
    let (other, _other_events) = keeper.client("other");
    assert_eq!(other.names().unwrap(), ["pipe"]);
    drop(owner);
    until("the name is released", || other.names().unwrap().is_empty().then_some(()));
    // Nobody has it open any more.
    assert_eq!(nix::unistd::read(&reader, &mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_client_is_told_that_the_keeper_is_lost() {
    let keeper = Keeper::new();
    let (owner, mut events) = keeper.owner();
    drop(keeper);
    assert_eq!(event(&mut events), KeeperEvent::Lost);
    assert!(matches!(owner.names(), Err(Error::Unreachable { .. })));
}

#[test]
fn the_socket_is_private_and_a_live_one_is_not_replaced() {
    let keeper = Keeper::new();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&keeper.path) & 0o777, 0o600);
    assert_eq!(mode(keeper.path.parent().unwrap()) & 0o777, 0o700);
    let error = Server::new(&keeper.path, Timing::default()).unwrap_err().to_string();
    assert!(error.contains("another keeper"), "{error}");
    // Even if somebody removed the lock.
    std::fs::remove_file(keeper.path.with_extension("sock.lock")).unwrap();
    let error = Server::new(&keeper.path, Timing::default()).unwrap_err().to_string();
    assert!(error.contains("another process"), "{error}");
    keeper.check();
    let file = keeper.path.with_extension("other");
    std::fs::write(&file, "").unwrap();
    let error = Server::new(&file, Timing::default()).unwrap_err().to_string();
    assert!(error.contains("not a socket"), "{error}");
}

#[test]
fn a_socket_that_a_dead_keeper_left_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keeper.sock");
    drop(Server::new(&path, Timing::default()).unwrap());
    assert!(path.exists());
    KeeperClient::connect(&path, "x").unwrap_err();
    Server::new(&path, Timing::default()).unwrap().close();
    assert!(!path.exists());
}

#[test]
fn an_instance_that_has_yielded_takes_over_from_nobody() {
    let keeper = Keeper::new();
    let (old, mut old_events) = keeper.client("old pod");
    old.ask(false).unwrap();
    assert_eq!(event(&mut old_events), KeeperEvent::Yours);
    let (new, mut new_events) = keeper.client("new pod");
    new.ask(false).unwrap();
    assert_eq!(event(&mut old_events), KeeperEvent::Yield);
    old.yielded().unwrap();
    assert_eq!(event(&mut new_events), KeeperEvent::Yours);
    // Its container is started again.
    let (again, mut again_events) = keeper.client("old pod");
    again.ask(false).unwrap();
    std::thread::sleep(SHORT);
    assert!(new_events.try_recv().is_err(), "nobody is asked to yield");
    assert!(again_events.try_recv().is_err());
    // Another instance is.
    let (newest, _newest_events) = keeper.client("newest pod");
    newest.ask(false).unwrap();
    assert_eq!(event(&mut new_events), KeeperEvent::Yield);
}
