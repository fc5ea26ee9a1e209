use proptest::prelude::*;

use super::*;

fn name(of: &str) -> Name {
    Name::new(of).unwrap()
}

fn lines(of: &[(LogOp<'_>, &str)]) {
    for (op, wanted) in of {
        assert_eq!(op.to_string(), *wanted);
    }
}

const HOUR: Ino = Ino(9_223_372_032_828_243_969);

// All lines were written by the Go client for the same operations on Redis.

#[test]
fn a_line_has_its_time_session_and_count() {
    let op = LogOp::Unlink {
        parent: Ino(2),
        name: &name("cl"),
        trash: HOUR,
        opened: false,
        touches_parent: false,
        ino: Ino(12),
    };
    let at = Timestamp { sec: 1_794_789_868, nsec: 65_282_202 };
    assert_eq!(
        LogLine { at, op }.render(Sid(1), 4),
        "1794789868.065282202|UNLINK(2,cl,9223372032828243969,false,false):12|(1,4)"
    );
}

#[test]
fn lines_of_nodes_and_entries() {
    let (odd, accent, link) = (name("a (1),\"x\\y\".txt"), name("é%"), name("s"));
    let create = |name, kind, mode, target, ino| LogOp::Create {
        parent: Ino(2),
        name,
        uid: 0,
        gid: 0,
        kind,
        mode,
        umask: 18,
        target,
        touches_parent: false,
        ino: Ino(ino),
    };
    lines(&[
        (
            create(&odd, FileKind::File, 0o666, b"", 3),
            "CREATE(2,a %281%29%2C%22x%5Cy%22.txt,0,0,1,438,18,,linux,false):3",
        ),
        (
            create(&accent, FileKind::File, 0o666, b"", 4),
            "CREATE(2,%C3%A9%25,0,0,1,438,18,,linux,false):4",
        ),
        (
            create(&link, FileKind::Symlink, 0o777, b"tgt", 5),
            "CREATE(2,s,0,0,3,511,18,tgt,linux,false):5",
        ),
        (
            LogOp::UnlinkBatch {
                parent: Ino(8),
                removed: &[
                    (odd.clone(), Ino(9)),
                    (accent.clone(), Ino(10)),
                    (link.clone(), Ino(11)),
                ],
                trash: HOUR,
                touches_parent: true,
            },
            "UNLINKBATCH(8,a %281%29%2C%22x%5Cy%22.txt,%C3%A9%25,s,9223372032828243969,true)\
             :9,10,11",
        ),
        (
            LogOp::Rmdir { parent: Ino(1), name: &name("e"), trash: HOUR, ino: Ino(14) },
            "RMDIR(1,e,9223372032828243969):14",
        ),
        (
            LogOp::Move {
                from: (Ino(2), &name("h")),
                to: (Ino(2), &name("h2")),
                flags: 1,
                replaced: Ino::NONE,
                trash: HOUR,
                ino: Ino(4),
            },
            "MOVE(2,h,2,h2,1,0,9223372032828243969):4",
        ),
        (
            LogOp::Link {
                ino: Ino(4),
                parent: Ino(2),
                name: &name("h"),
                touches_parent: false,
                nlink: 2,
            },
            "LINK(4,2,h,false):2",
        ),
        (
            LogOp::Clone {
                source: Ino(2),
                parent: Ino(1),
                name: &name("d2"),
                ino: Ino(8),
                mode: 0,
                umask: 18,
                is_top: true,
            },
            "CLONE(2,1,d2,8,0,18,true):8",
        ),
        (LogOp::Attach { ino: Ino(8), parent: Ino(1), name: &name("d2") }, "ATTACH(8,1,d2)"),
        (LogOp::Cleanup { ino: Ino(8) }, "CLEANUP(8)"),
        (LogOp::RepairDir { ino: Ino(8) }, "REPAIRDIR(8)"),
    ]);
}

#[test]
fn lines_of_attributes() {
    let time = |sec, nsec| Timestamp { sec, nsec };
    let mut attr =
        Attr::new(FileKind::File, 0o600, 1000, 1000, Ino(2), time(1_794_800_822, 48_617_296));
    attr.mtime.nsec = 49_522_913;
    attr.ctime.nsec = 125_998_737;
    let rule =
        AclRule::decode(&[0, 6, 0, 4, 0, 7, 0, 4, 0, 0, 0, 1, 0, 0, 3, 0xe8, 0, 7, 0, 0, 0, 0])
            .unwrap();
    lines(&[
        (
            LogOp::SetAttr { ino: Ino(4), set: 6, clear_mode: 0, attr: &attr },
            "SETATTR(4,6,0,1000,1000,384,0,1794800822,1794800822,48617296,49522913,1794800822,\
             125998737,0)",
        ),
        (LogOp::Access { ino: Ino(4) }, "ACCESS(4)"),
        (
            LogOp::SetXattr { ino: Ino(15), name: &name("user.k,1"), value: b"v\0(\xff", flags: 0 },
            "SETXATTR(15,user.k%2C1,v%00%28%FF,0)",
        ),
        (
            LogOp::RemoveXattr { ino: Ino(15), name: &name("user.k,1") },
            "REMOVEXATTR(15,user.k%2C1)",
        ),
        (
            LogOp::SetFacl { ino: Ino(15), kind: AclKind::Access, rule: &rule },
            "SETFACL(15,1,%00%06%00%04%00%07%00%04%00%00%00%01%00%00%03%E8%00%07%00%00%00%00)",
        ),
        (
            LogOp::SetFacl { ino: Ino(15), kind: AclKind::Access, rule: &AclRule::empty() },
            "SETFACL(15,1,%FF%FF%FF%FF%FF%FF%FF%FF%00%00%00%00%00%00%00%00)",
        ),
    ]);
}

#[test]
fn lines_of_content() {
    let mtime = Timestamp { sec: 1_794_800_823, nsec: 59_324_940 };
    let slice = |id, size| SliceSize { id: SliceId(id), size };
    lines(&[
        (
            LogOp::Truncate { ino: Ino(4), old: 2, new: 104_857_600, flags: 1 },
            "TRUNCATE(4,2,104857600,1)",
        ),
        (LogOp::Fallocate { ino: Ino(4), off: 0, size: 10, mode: 3 }, "FALLOCATE(4,0,10,3)"),
        (
            LogOp::Write {
                ino: Ino(15),
                index: 0,
                off: 2,
                id: SliceId(5),
                len: 2,
                mtime,
                records: 0,
            },
            "WRITE(15,0,2,5,2,1794800823,59324940):0",
        ),
        (
            LogOp::CopyFileRange { from: (Ino(4), 0), to: (Ino(6), 0), size: 1000, length: 1000 },
            "COPYFILERANGE(4,0,6,0,1000):1000",
        ),
        (
            LogOp::CompactChunk {
                ino: Ino(15),
                index: 0,
                skipped: 0,
                replaced: 6,
                pos: 0,
                slice: slice(10, 12),
            },
            "COMPACTCHUNK(15,0,0,6,0,10,12)",
        ),
        (LogOp::DeleteChunk { ino: Ino(1026), index: 0 }, "DELCHUNK(1026,0)"),
        (LogOp::DeleteSlice(slice(11, 1)), "DELETESLICE(11,1)"),
        (
            LogOp::CleanupDelayedSlices { id: SliceId(9), at: 1_794_789_851 },
            "CLEANUP_DELAYED_SLICES(9,1794789851)",
        ),
        (
            LogOp::CleanupTrashSlices { id: SliceId(9), at: 1_794_789_851 },
            "CLEANUP_TRASH_SLICES(9,1794789851)",
        ),
    ]);
}

#[test]
fn lines_of_locks() {
    let flock =
        |kind| LogOp::Flock { ino: Ino(4), owner: LockOwner(8_028_769_739_889_668_053), kind };
    let setlk = |kind, pid| LogOp::SetLk {
        ino: Ino(4),
        owner: LockOwner(4_309_190_818_403_487_819),
        kind,
        start: 5,
        end: 14,
        pid,
    };
    lines(&[
        (flock(Some(LockKind::Read)), "FLOCK(4,8028769739889668053,R)"),
        (flock(None), "FLOCK(4,8028769739889668053,U)"),
        (setlk(Some(LockKind::Write), 16346), "SETLK(4,4309190818403487819,W,5,14,16346)"),
        (setlk(None, 0), "SETLK(4,4309190818403487819,U,5,14,0)"),
    ]);
}

#[test]
fn lines_of_sessions() {
    let info = br#"{"Version":"1.4.1+unknown","IPAddrs":["fd00::2"],"ProcessID":16312}"#;
    lines(&[
        (
            LogOp::NewSession { sid: Sid(1), expire: 1_794_800_880, info },
            "NEWSESSION(1,1794800880,{%22Version%22:%221.4.1+unknown%22%2C%22IPAddrs%22:[%22fd00::2\
             %22]%2C%22ProcessID%22:16312})",
        ),
        (LogOp::CleanSession { sid: Sid(1) }, "CLEANSESSION(1)"),
        (LogOp::DeleteSustained { sid: Sid(2), ino: Ino(1026) }, "DELSUSTAINED(2,1026)"),
    ]);
}

#[test]
fn lines_of_usage_and_counters() {
    let quota = |key, max| LogOp::SetQuota { key, max_space: max, max_inodes: max };
    lines(&[
        (
            LogOp::DirStat { ino: Ino(1), stat: DirStat { length: 0, space: 8192, inodes: 2 } },
            "DIRSTAT(1,0,8192,2)",
        ),
        (
            LogOp::SetQuota { key: QuotaKey::Dir(Ino(2)), max_space: 1 << 30, max_inodes: 100 },
            "SETQUOTA(0,2,1073741824,100)",
        ),
        (quota(QuotaKey::Dir(Ino(2)), -1), "SETQUOTA(0,2,-1,-1)"),
        (quota(QuotaKey::User(1000), 5), "SETQUOTA(1,1000,5,5)"),
        (quota(QuotaKey::Group(1000), 5), "SETQUOTA(2,1000,5,5)"),
        (LogOp::DeleteQuota { key: QuotaKey::Dir(Ino(2)) }, "DELQUOTA(0,2)"),
        (
            LogOp::AddCounter { counter: Counter::NextInode, by: 1024 },
            "INCR_COUNTER(nextInode,1024)",
        ),
        (
            LogOp::SetCounter { counter: Counter::LastCleanupTrash, value: 7 },
            "SET(lastCleanupTrash,7)",
        ),
        (LogOp::EnableDirStats, "INIT_ENABLE_DIRSTATS()"),
        (LogOp::EnableUserGroupQuota, "INIT_ENABLE_USERGROUPQUOTA()"),
    ]);
}

proptest! {
    #[test]
    fn escaped_bytes_can_be_unescaped(raw: Vec<u8>) {
        let escaped = Escaped(&raw).to_string();
        prop_assert!(escaped.bytes().all(|b| (32..127).contains(&b) && !b",()\"\\".contains(&b)));
        let mut rest = escaped.bytes();
        let mut back = Vec::new();
        while let Some(byte) = rest.next() {
            if byte == b'%' {
                let hex = [rest.next().unwrap(), rest.next().unwrap()];
                let hex = std::str::from_utf8(&hex).unwrap();
                back.push(u8::from_str_radix(hex, 16).unwrap());
            } else {
                back.push(byte);
            }
        }
        prop_assert_eq!(back, raw);
    }
}
