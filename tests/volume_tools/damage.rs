//! Damaging and reading metadata, past both clients.

use std::sync::Arc;

use jfs::meta::engine::{Change, Engine, Key, Record, connect};
use jfs::meta::record::{Attr, DirStat, SliceSize};
use jfs::meta::{Ino, Meta, Options};
use tokio::runtime::Runtime;

use crate::support::fixture::Fixture;

pub struct Metadata {
    runtime: Runtime,
    engine: Arc<dyn Engine>,
    meta: Arc<Meta>,
}

impl Metadata {
    pub fn of(fixture: &Fixture) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (engine, meta) = runtime.block_on(async {
            let options = Options { read_only: true, ..Options::default() };
            let meta = Meta::connect(fixture.url(), options).await.unwrap();
            (connect(fixture.url()).await.unwrap(), meta)
        });
        Self { runtime, engine, meta }
    }

    pub fn ino(&self, path: &str) -> Ino {
        self.runtime.block_on(self.meta.resolve(path)).unwrap().0
    }

    pub fn attr(&self, ino: Ino) -> Option<Attr> {
        let records = self.runtime.block_on(self.engine.read(&[Key::Attr(ino)])).unwrap();
        match &records[0] {
            Record::Attr(attr) => attr.clone(),
            other => panic!("{other:?}"),
        }
    }

    pub fn dir_stat(&self, ino: Ino) -> Option<DirStat> {
        let records = self.runtime.block_on(self.engine.read(&[Key::DirStat(ino)])).unwrap();
        match &records[0] {
            Record::DirStat(stat) => *stat,
            other => panic!("{other:?}"),
        }
    }

    /// The slices that the first chunk of a file refers to.
    pub fn slices(&self, ino: Ino) -> Vec<SliceSize> {
        let records = self.runtime.block_on(self.engine.read(&[Key::Chunk(ino, 0)])).unwrap();
        match &records[0] {
            Record::Chunk(records) => {
                records.iter().map(|slice| SliceSize { id: slice.id, size: slice.size }).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn commit(&self, changes: &[Change]) {
        let mut txn = self.engine.begin();
        self.runtime.block_on(txn.commit(changes)).unwrap();
    }

    pub fn change_attr(&self, ino: Ino, change: impl FnOnce(&mut Attr)) {
        let mut attr = self.attr(ino).unwrap();
        change(&mut attr);
        self.commit(&[Change::PutAttr(ino, attr)]);
    }

    pub fn put_dir_stat(&self, ino: Ino, stat: DirStat) {
        self.runtime.block_on(self.engine.put_dir_stat(ino, &stat)).unwrap();
    }

    pub fn counter(&self, counter: jfs::meta::record::Counter) -> i64 {
        self.runtime.block_on(self.engine.counter(counter)).unwrap()
    }

    pub fn add_counter(&self, counter: jfs::meta::record::Counter, by: i64) {
        self.runtime.block_on(self.engine.add_counter(counter, by)).unwrap();
    }

    /// Sessions and files that wait for deletion.
    pub fn left_behind(&self) -> (usize, usize) {
        self.runtime.block_on(async {
            let sessions = self.engine.sessions().await.unwrap().len();
            (sessions, self.engine.deleted_files(i64::MAX, 1000).await.unwrap().len())
        })
    }
}
