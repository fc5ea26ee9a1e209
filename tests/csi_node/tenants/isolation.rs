//! What volumes of one node share, and what they do not.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tonic::Code;

use jfs::meta::{Meta, Options};

use crate::csi::{Node, Publication};
use crate::support::command::run;
use crate::support::juicefs;
use crate::support::redis::RedisServer;
use crate::support::timeout::{MOUNTED, on_timeout, within};

/// Starts a Redis server that a test stops by SIGSTOP, and continues it if the test times out.
fn redis_to_pause() -> (RedisServer, Pid) {
    let server = RedisServer::start();
    let pid = Pid::from_raw(server.pid().try_into().unwrap());
    on_timeout(move || {
        let _ = kill(pid, Signal::SIGCONT);
    });
    (server, pid)
}

#[test]
fn a_pod_sees_nothing_outside_its_volume() {
    within(MOUNTED, || {
        let node = Node::start();
        let (mine, theirs) =
            (node.publication("pvc-1", "mine"), node.publication("pvc-2", "theirs"));
        node.publish(&mine).unwrap();
        node.publish(&theirs).unwrap();
        let secret = theirs.target.join("secret");
        fs::write(&secret, "not yours").unwrap();
        let names: Vec<_> =
            fs::read_dir(&mine.target).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(names.iter().all(|name| name != ".trash" && name != "pvc-2"), "{names:?}");
        assert_eq!(
            fs::metadata(mine.target.join("..")).unwrap().ino(),
            fs::metadata(node.path("pods")).unwrap().ino()
        );
        // Not by an inode number either.
        let ino = fs::metadata(&secret).unwrap().ino();
        let point = mine.target.display().to_string();
        let mut info = juicefs::command(&["info", "-i", &ino.to_string()]);
        info.current_dir(&point);
        let output = run(info, Duration::from_mins(1));
        assert!(
            !output.stdout.contains("secret") && !output.stdout.contains("objects"),
            "{output}"
        );
        let mut clone = Command::new(juicefs::binary());
        clone.args(["clone", &secret.display().to_string(), &format!("{point}/copy")]);
        run(clone, Duration::from_mins(1)).refused();
        assert!(!mine.target.join("copy").exists());
    });
}

#[test]
fn volumes_of_one_file_system_share_one_session_in_its_metadata() {
    within(MOUNTED, || {
        let node = Node::start();
        for i in 0..5 {
            node.publish(&node.publication(&format!("pvc-{i}"), &format!("pod-{i}"))).unwrap();
        }
        let status = juicefs::juicefs(&["status", node.url()]).ok().stdout;
        assert_eq!(status.matches("\"Sid\"").count(), 1, "{status}");
    });
}

#[test]
fn a_hanging_metadata_server_blocks_only_its_own_volumes() {
    within(MOUNTED, || {
        let (hanging, pid) = redis_to_pause();
        let node = Node::start();
        let mut paused =
            node.publication("pvc-paused", "paused").secret("metaurl", &hanging.url(1));
        paused.secrets.insert("bucket".to_owned(), node.path("other").display().to_string());
        let other = node.publication("pvc-other", "other");
        node.publish(&paused).unwrap();
        node.publish(&other).unwrap();
        kill(pid, Signal::SIGSTOP).unwrap();

        // One caller waits in vain, and the others are served meanwhile.
        let mut late = paused.clone();
        late.volume = "pvc-late".to_owned();
        late.target = node.target("late");
        late.limit = Duration::from_secs(4);
        let refused = node.publish(&late).unwrap_err();
        let expected = [Code::DeadlineExceeded, Code::Unavailable];
        assert!(expected.contains(&refused.code()), "{refused}");
        assert!(!late.target.exists(), "the target is not created");
        node.publish(&node.publication("pvc-new", "new")).unwrap();
        fs::write(other.target.join("f"), vec![1; 5 << 20]).unwrap();
        assert_eq!(fs::read(node.target("other").join("f")).unwrap().len(), 5 << 20);
        let (abnormal, cause) = node.condition("pvc-paused", &paused.target);
        assert!(abnormal && cause.contains("metadata unreachable"), "{cause}");
        assert_eq!(node.condition("pvc-other", &other.target), (false, "mounted".to_owned()));
        node.unpublish("pvc-new", &node.target("new")).unwrap();

        kill(pid, Signal::SIGCONT).unwrap();
        let is_normal = || !node.condition("pvc-paused", &paused.target).0;
        assert!(crate::support::command::poll(Duration::from_mins(1), is_normal));
        fs::write(paused.target.join("f"), "x").unwrap();
    });
}

#[test]
fn many_volumes_are_published_concurrently() {
    within(MOUNTED, || {
        let node = Node::start();
        node.publish(&node.publication("pvc-0", "pod-0")).unwrap();
        let client = node.node();
        node.block_on(async {
            let calls = (0..30).map(|i| {
                let publication = node.publication(&format!("pvc-{i}"), &format!("pod-{i}"));
                let mut client = client.clone();
                async move { client.node_publish_volume(publication.request()).await }
            });
            for done in futures::future::join_all(calls).await {
                done.unwrap();
            }
        });
        for i in 0..30 {
            fs::write(node.target(&format!("pod-{i}")).join("f"), i.to_string()).unwrap();
        }
        assert_eq!(fs::read_to_string(node.target("pod-7").join("f")).unwrap(), "7");
    });
}

#[test]
fn a_second_call_for_a_volume_is_aborted_while_the_first_is_in_progress() {
    within(MOUNTED, || {
        let (hanging, pid) = redis_to_pause();
        let node = Node::start();
        let mut pv = node.publication("pvc-1", "web").secret("metaurl", &hanging.url(1));
        kill(pid, Signal::SIGSTOP).unwrap();
        pv.limit = Duration::from_secs(2);
        let first = node.publish(&pv).unwrap_err();
        if first.code() == Code::DeadlineExceeded {
            assert_eq!(node.publish(&pv).unwrap_err().code(), Code::Aborted);
        }
        kill(pid, Signal::SIGCONT).unwrap();
        pv.limit = Duration::from_secs(30);
        let served = || node.publish(&pv).is_ok();
        assert!(crate::support::command::poll(Duration::from_mins(1), served), "{}", node.log());
    });
}

#[test]
fn an_open_file_system_cannot_be_used_without_its_password() {
    within(MOUNTED, || {
        let server = RedisServer::start();
        server.ask("CONFIG SET requirepass sesame");
        let node = Node::start();
        let place = server.url(1);
        let with = |volume: &str, user: &str| {
            let url = place.replace("redis://", &format!("redis://{user}"));
            node.publication(volume, volume).secret("metaurl", &url)
        };
        let owner = with("pvc-owner", ":sesame@");
        node.publish(&owner).unwrap();
        fs::write(owner.target.join("f"), "mine").unwrap();
        for user in ["", ":wrong@", "nobody:sesame@"] {
            let stranger = with("pvc-stranger", user);
            let refused = node.publish(&stranger).unwrap_err();
            assert!(!refused.message().contains("sesame"), "{refused}");
            assert!(!stranger.target.exists());
            // Nor through the volume that is published already.
            let again = with("pvc-owner", user);
            node.publish(&again).unwrap_err();
        }
        let envs = r#"{"META_PASSWORD": "wrong"}"#;
        node.publish(&with("pvc-stranger", "").secret("envs", envs)).unwrap_err();
        let envs = r#"{"META_PASSWORD": "sesame"}"#;
        let friend = with("pvc-friend", "").secret("envs", envs);
        node.publish(&friend).unwrap();
        fs::write(friend.target.join("f"), "mine, too").unwrap();
        node.publish(&owner).unwrap();
    });
}

#[test]
fn a_published_volume_is_not_replaced_by_one_of_another_file_system() {
    within(MOUNTED, || {
        let node = Node::start();
        let mine = node.publication("pvc-1", "web");
        node.publish(&mine).unwrap();
        let bucket = node.path("other").display().to_string();
        let other = node
            .publication("pvc-1", "other")
            .secret("metaurl", &RedisServer::shared().fresh_url())
            .secret("bucket", &bucket);
        let refused = node.publish(&other).unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(!other.target.exists());
    });
}

/// Returns the names of all objects in a bucket.
fn objects(node: &Node, bucket: &str) -> Vec<String> {
    let mut find = Command::new("find");
    find.current_dir(node.path(bucket)).args([".", "-path", "*/chunks/*", "-type", "f"]);
    let found = run(find, Duration::from_secs(20)).ok().stdout;
    let keys = found.lines().filter_map(|line| line.split_once("/chunks/"));
    keys.map(|(_, key)| key.to_owned()).collect()
}

#[test]
fn a_file_system_with_the_uuid_of_another_cannot_use_its_cache() {
    within(MOUNTED, || {
        let node = Node::start();
        let victim = node.publication("pvc-victim", "victim");
        let evil = node
            .publication("pvc-evil", "evil")
            .secret("metaurl", &RedisServer::shared().fresh_url())
            .secret("bucket", &node.path("evil").display().to_string());
        let renew = |pv: &Publication| {
            node.unpublish(&pv.volume, &pv.target).unwrap();
            node.publish(pv).unwrap();
        };
        let fill = |pv: &Publication, text: &str| {
            fs::write(pv.target.join("f"), text).unwrap();
            renew(pv);
            let read = fs::read_to_string(pv.target.join("f")).unwrap();
            renew(pv);
            read
        };
        node.publish(&victim).unwrap();
        assert_eq!(fill(&victim, "the bytes of the victim"), "the bytes of the victim");

        // The tenant controls its own metadata.
        node.publish(&evil).unwrap();
        node.unpublish(&evil.volume, &evil.target).unwrap();
        node.block_on(async {
            let setting = |url: String| async move {
                let meta = Meta::attach(&url, Options::default()).await.unwrap();
                let setting = meta.stored_setting().await.unwrap().unwrap();
                (meta, setting)
            };
            let (_, of_victim) = setting(node.url().to_owned()).await;
            let (meta, mut of_evil) = setting(evil.secrets["metaurl"].clone()).await;
            of_evil.decrypt().unwrap();
            of_evil.uuid = of_victim.uuid;
            meta.init(of_evil, true).await.unwrap();
            meta.close().await.unwrap();
        });
        node.publish(&evil).unwrap();
        assert_eq!(fill(&evil, "the bytes of the tenant"), "the bytes of the tenant");
        assert_eq!(objects(&node, "bucket"), objects(&node, "evil"), "the same blocks by name");
        assert_eq!(fs::read_to_string(victim.target.join("f")).unwrap(), "the bytes of the victim");
    });
}
