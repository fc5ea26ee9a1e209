//! The operations of `benches/peer/main.go` by this client: one kind of operation after the other, a
//! directory for each task.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use jfs::meta::record::Slice;
use jfs::meta::{AttrSet, Caller, EntryRef, Ino, Meta, Name, RenameMode, Timestamp};

use crate::{Rates, client};

/// How often each task lists its directory.
const LISTINGS: usize = 5;

#[derive(Debug, Clone, Copy)]
enum Phase {
    Mkdir,
    Create,
    Lookup,
    Getattr,
    Setattr,
    Write,
    Readdir,
    Rename,
    Unlink,
    Rmdir,
}

const PHASES: [Phase; 10] = [
    Phase::Mkdir,
    Phase::Create,
    Phase::Lookup,
    Phase::Getattr,
    Phase::Setattr,
    Phase::Write,
    Phase::Readdir,
    Phase::Rename,
    Phase::Unlink,
    Phase::Rmdir,
];

/// A task's client, directory and files.
struct Task {
    meta: Arc<Meta>,
    caller: Caller,
    dir: Ino,
    files: Vec<Ino>,
}

pub async fn run(url: &str, name: &str, width: usize, count: usize) -> Result<Rates> {
    let meta = client(url).await?;
    let caller = Caller::root();
    let (root, _) = meta.mkdir(&caller, Ino::ROOT, &Name::new(name)?, 0o755, 0).await?;
    let mut tasks = Vec::new();
    for task in 0..width {
        let dir = Name::new(format!("d{task}"))?;
        let (dir, _) = meta.mkdir(&caller, root, &dir, 0o755, 0).await?;
        tasks.push(Task { meta: meta.clone(), caller: caller.clone(), dir, files: Vec::new() });
    }
    let mut rates = Vec::new();
    for phase in PHASES {
        let each = if matches!(phase, Phase::Readdir) { LISTINGS } else { count };
        let start = Instant::now();
        let running: Vec<_> =
            tasks.drain(..).map(|task| tokio::spawn(task.run(phase, each))).collect();
        for task in running {
            tasks.push(task.await??);
        }
        let rate = (width * each) as f64 / start.elapsed().as_secs_f64();
        rates.push((format!("{phase:?}").to_lowercase(), rate));
    }
    meta.close().await?;
    Ok(rates)
}

impl Task {
    async fn run(mut self, phase: Phase, each: usize) -> Result<Self> {
        for i in 0..each {
            self.step(phase, i).await?;
        }
        Ok(self)
    }

    async fn step(&mut self, phase: Phase, i: usize) -> Result<()> {
        let (meta, caller, dir) = (&self.meta, &self.caller, self.dir);
        let name = |letter: char| Name::new(format!("{letter}{i}"));
        match phase {
            Phase::Mkdir => {
                meta.mkdir(caller, dir, &name('m')?, 0o755, 0).await?;
            }
            Phase::Create => {
                let (ino, _) = meta.create(caller, dir, &name('f')?, 0o644, 0, true).await?;
                meta.close_file(ino).await?;
                self.files.push(ino);
            }
            Phase::Lookup => {
                meta.lookup(caller, dir, &name('f')?).await?;
            }
            Phase::Getattr => {
                meta.getattr(self.files[i]).await?;
            }
            Phase::Setattr => {
                let set = AttrSet { mode: Some(0o600), ..AttrSet::default() };
                meta.setattr(caller, self.files[i], set).await?;
            }
            Phase::Write => {
                let id = meta.new_slice().await?;
                let slice = Slice { pos: 0, id, size: 4096, off: 0, len: 4096 };
                meta.write(self.files[i], 0, 0, slice, Timestamp::now()).await?;
            }
            Phase::Readdir => {
                meta.entries(dir, true).await?;
            }
            Phase::Rename => {
                let (old, new) = (name('f')?, name('g')?);
                meta.rename(
                    caller,
                    EntryRef::new(dir, &old),
                    EntryRef::new(dir, &new),
                    RenameMode::Replace,
                )
                .await?;
            }
            Phase::Unlink => meta.unlink(caller, dir, &name('g')?).await?,
            Phase::Rmdir => meta.rmdir(caller, dir, &name('m')?).await?,
        }
        Ok(())
    }
}
