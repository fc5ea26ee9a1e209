//! Programs that people run on a file system, and their own checks.

use std::fs;
use std::path::Path;

use crate::suite::{script, within_limit};
use crate::support::fixture::{Fixture, Mounted, long};

/// Runs each body on Redis and on SQLite with a new mount and a folder outside of it.
macro_rules! programs {
    ($($body:ident),* $(,)?) => {
        mod redis {
            $(
                #[test]
                fn $body() {
                    super::on(super::Fixture::redis, super::$body);
                }
            )*
        }
        mod sqlite {
            $(
                #[test]
                fn $body() {
                    super::on(super::Fixture::sqlite, super::$body);
                }
            )*
        }
    };
}

programs! {
    git_clones_and_finds_its_objects,
    a_project_is_unpacked_and_built,
    a_database_keeps_its_integrity,
    fio_reads_what_it_wrote,
    rsync_has_nothing_to_do_the_second_time,
    stressors_find_nothing,
}

fn on(make: fn() -> Fixture, body: fn(&Mounted, &Path)) {
    within_limit(move || {
        let fixture = make();
        fixture.format(&[]);
        let mount = fixture.mount(&["--enable-xattr"]);
        let outside = fixture.folder().join("outside");
        fs::create_dir(&outside).unwrap();
        body(&mount, &outside);
        drop(mount);
        fixture.check();
    });
}

fn git_clones_and_finds_its_objects(mount: &Mounted, outside: &Path) {
    let make = r#"
        export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
        git init --quiet --initial-branch=main origin
        cd origin
        git config user.name test
        git config user.email test@localhost
        for commit in 1 2 3 4 5; do
            mkdir -p "d$commit/sub"
            for file in $(seq 40); do
                seq "$commit" "$((commit * file * 7))" >"d$commit/sub/f$file"
            done
            seq "$commit" 5000 >changing
            git add --all
            git commit --quiet --message "commit $commit"
        done
    "#;
    script(outside, make, &[]).ok();
    let work = r#"
        export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
        git clone --quiet --no-hardlinks "file://$1/origin" clone
        cd clone
        git config user.name test
        git config user.email test@localhost
        git fsck --full --strict
        test -z "$(git status --porcelain)"
        test "$(git rev-parse HEAD)" = "$(git -C "$1/origin" rev-parse HEAD)"
        git checkout --quiet -b work HEAD~3
        git mv d1 moved
        git commit --quiet --all --message moved
        git merge --quiet --no-edit main
        git gc --quiet --aggressive --prune=now
        git fsck --full --strict
        git worktree add --quiet ../tree main
        diff -r "$1/origin" ../tree --exclude .git
    "#;
    script(mount.path(), work, &[outside.to_str().unwrap()]).ok();
}

fn a_project_is_unpacked_and_built(mount: &Mounted, outside: &Path) {
    // Sixty units that call each other, with headers, a Makefile and a check of the sum.
    let make = r#"
        mkdir -p project/src project/include
        cd project
        for n in $(seq 60); do
            printf '#pragma once\nint part%d(int x);\n' "$n" >"include/part$n.h"
            next=$((n % 60 + 1))
            printf '#include "part%d.h"\n#include "part%d.h"\nint part%d(int x) { return x <= 0 ? %d : %d + part%d(x - 1); }\n' \
                "$n" "$next" "$n" "$n" "$n" "$next" >"src/part$n.c"
        done
        printf '#include <stdio.h>\n#include "part1.h"\nint main(void) { printf("%%d\\n", part1(59)); return 0; }\n' >src/main.c
        ln -s src/main.c main.c
        tar --create --gzip --file ../project.tar.gz .
    "#;
    script(outside, make, &[]).ok();
    let work = r#"
        mkdir project
        tar --extract --gzip --file "$1/project.tar.gz" --directory project
        diff -r "$1/project" project
        cd project
        mkdir obj
        for source in src/*.c; do
            name=$(basename "$source" .c)
            cc -O1 -Iinclude -MMD -c "$source" -o "obj/$name.o"
        done
        ar rcs libparts.a obj/part*.o
        cc -o program obj/main.o libparts.a
        ./program
        install -m 755 program installed
        strip installed
        ./installed
        rm -rf obj
    "#;
    let said = script(mount.path(), work, &[outside.to_str().unwrap()]).ok().stdout;
    // 1 + 2 + ... + 60, by both programs.
    assert_eq!(said, "1830\n1830\n");
}

fn a_database_keeps_its_integrity(mount: &Mounted, _: &Path) {
    let work = r#"
        for mode in delete wal truncate; do
            if [ "$mode" = wal ]; then
                # Its index is a map that processes share.
                echo 'PRAGMA journal_mode=wal;' | sqlite3 "$mode.db" | grep -qx wal
            fi
            sqlite3 "$mode.db" "PRAGMA journal_mode=$mode; CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, body BLOB); CREATE INDEX names ON t(name);" >/dev/null
            # Four writers at once, who wait for each other.
            for writer in 1 2 3 4; do
                for turn in $(seq 5); do
                    echo ".timeout 60000"
                    echo "BEGIN IMMEDIATE;"
                    for row in $(seq 20); do
                        echo "INSERT INTO t(name, body) VALUES('$writer-$turn-$row', randomblob(2000));"
                    done
                    echo "UPDATE t SET body = randomblob(3000) WHERE id % 7 = $turn;"
                    echo "COMMIT;"
                done | sqlite3 -bail "$mode.db" &
                pids="${pids:-} $!"
            done
            for pid in $pids; do wait "$pid"; done
            pids=
            test "$(sqlite3 "$mode.db" 'SELECT count(*) FROM t')" = 400
            test "$(sqlite3 "$mode.db" 'PRAGMA integrity_check')" = ok
            sqlite3 "$mode.db" "DELETE FROM t WHERE id % 2; VACUUM;"
            test "$(sqlite3 "$mode.db" 'PRAGMA integrity_check')" = ok
            sqlite3 "$mode.db" ".backup copy-$mode.db"
            test "$(sqlite3 "copy-$mode.db" 'SELECT count(*) FROM t; PRAGMA integrity_check;' | tr '\n' ' ')" = "200 ok "
        done
    "#;
    script(mount.path(), work, &[]).ok();
}

fn fio_reads_what_it_wrote(mount: &Mounted, outside: &Path) {
    let size = if long() { "64m" } else { "16m" };
    let work = r#"
        common="--directory=$PWD --output=$1/fio.out --verify=crc32c --verify_fatal=1 --do_verify=1 --fallocate=none --aux-path=$1"
        fio $common --name=buffered --rw=randwrite --bs=4k --size="$2" --ioengine=psync --end_fsync=1
        fio $common --name=mixed --rw=randwrite --bsrange=512-128k --size="$2" --ioengine=psync --numjobs=2
        fio $common --name=direct --rw=randwrite --bs=64k --size="$2" --ioengine=psync --direct=1
        fio $common --name=mapped --rw=randwrite --bs=4k --size="$2" --ioengine=mmap
        fio $common --name=stream --rw=write --bs=1m --size="$2" --ioengine=psync --numjobs=2
        # Once more from the store.
        echo 3 >/proc/sys/vm/drop_caches
        fio $common --name=buffered --rw=randwrite --bs=4k --size="$2" --ioengine=psync --verify_only
    "#;
    script(mount.path(), work, &[outside.to_str().unwrap(), size]).ok();
}

fn rsync_has_nothing_to_do_the_second_time(mount: &Mounted, outside: &Path) {
    let make = r#"
        mkdir -p from/deep/er
        for file in $(seq 150); do
            head -c "$((file * 311))" /dev/urandom >"from/deep/f$file"
        done
        head -c 9000000 /dev/urandom >from/large
        ln from/large from/deep/er/linked
        ln -s ../large from/deep/link
        mkfifo from/fifo
        truncate -s 20M from/sparse
        chmod 640 from/deep/f3
        chown 77:78 from/deep/f4
        touch -d '2001-02-03 04:05:06.123456789' from/deep/f5
        setfattr -n user.note -v text from/deep/f6
    "#;
    script(outside, make, &[]).ok();
    let copy = r#"rsync --archive --hard-links --xattrs --itemize-changes "$1/from/" copy/"#;
    let from = outside.to_str().unwrap();
    let first = script(mount.path(), copy, &[from]).ok().stdout;
    assert!(first.lines().count() > 150, "{first}");
    let second = script(mount.path(), copy, &[from]).ok().stdout;
    assert_eq!(second, "", "the second time");
    let checked = r#"
        rsync --archive --hard-links --xattrs --checksum --dry-run --itemize-changes "$1/from/" copy/
        test "$(getfattr --only-values -n user.note copy/deep/f6)" = text
        test "$(stat -c %h copy/large)" = 2
    "#;
    let checked = script(mount.path(), checked, &[from]).ok().stdout;
    assert_eq!(checked, "", "by checksums");
}

fn stressors_find_nothing(mount: &Mounted, outside: &Path) {
    let seconds = "60";
    // Stressors for files and names that verify their results.
    let work = r#"
        stress-ng --temp-path "$PWD" --timeout "${2}s" --verify --metrics-brief --log-file "$1/stress-ng.log" \
            --dir 1 --dentry 1 --dentries 200 --hdd 1 --hdd-bytes 8m --hdd-opts rd-rnd,wr-rnd,fsync \
            --link 1 --symlink 1 --rename 1 --fallocate 1 --fallocate-bytes 8m --seek 1 --seek-size 4m \
            --flock 1 --lockf 1 --xattr 1 --utime 1 --chmod 1 --chown 1 --fstat 1 --readahead 1 \
            --readahead-bytes 8m --sync-file 1 --sync-file-bytes 8m
    "#;
    let ran = script(mount.path(), work, &[outside.to_str().unwrap(), seconds]).ok();
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(!said.contains("fail:"), "{said}");
}
