//! `status`: prints the setting, the sessions and the usage of a volume as JSON.

use anyhow::bail;
use chrono::{DateTime, SecondsFormat, Utc};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::meta_url::VolumeUrl;
use crate::meta::engine::{HeldKind, HeldLock, StoredSession};
use crate::meta::record::{LockKind, SessionInfo};
use crate::meta::{Ino, Meta, Options, Sid};

/// Most rows counted of each list, which may be long.
const PAGE: usize = 100_000;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Show the setting, the sessions and the usage of a volume:
    jfs-mount status redis://localhost/1
  Show the locks and removed open files of a session:
    jfs-mount status redis://localhost/1 --session 3")]
pub struct Status {
    #[command(flatten)]
    volume: VolumeUrl,
    /// Show one session with its locks and removed open files
    #[arg(short, long, value_name = "SID")]
    session: Option<u64>,
    /// Count the trash and pending deletions; may take long
    #[arg(short, long)]
    more: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Session {
    sid: u64,
    expire: String,
    #[serde(flatten)]
    info: SessionInfo,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sustained: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    flocks: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    plocks: Vec<Value>,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "PascalCase")]
struct Stat {
    used_space: u64,
    available_space: u64,
    used_inodes: u64,
    available_inodes: u64,
    #[serde(skip_serializing_if = "is_zero")]
    trash_file_count: i64,
    #[serde(skip_serializing_if = "is_zero")]
    trash_file_size: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pending_deleted_file_count: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pending_deleted_file_size: i64,
    #[serde(skip_serializing_if = "is_zero")]
    trash_slice_count: i64,
    #[serde(skip_serializing_if = "is_zero")]
    trash_slice_size: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pending_deleted_slice_count: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pending_deleted_slice_size: i64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(value: &i64) -> bool {
    *value == 0
}

impl Status {
    pub async fn run(self) -> anyhow::Result<()> {
        let options = Options { read_only: true, ..Options::default() };
        let meta = Meta::connect(self.volume.resolve()?.expose(), options).await?;
        let output = match self.session {
            Some(sid) => serde_json::to_value(one_session(&meta, Sid(sid)).await?)?,
            None => self.volume(&meta).await?,
        };
        meta.close().await?;
        println!("{}", serde_json::to_string_pretty(&output)?);
        Ok(())
    }

    async fn volume(&self, meta: &Meta) -> anyhow::Result<Value> {
        let setting = meta.context().setting().without_secrets();
        let mut sessions = Vec::new();
        for stored in meta.engine().sessions().await? {
            sessions.push(describe(&stored));
        }
        let stat = meta.statfs(Ino::ROOT).await?;
        let mut stat = Stat {
            used_space: stat.total - stat.available,
            available_space: stat.available,
            used_inodes: stat.used_inodes,
            available_inodes: stat.available_inodes,
            ..Stat::default()
        };
        if self.more {
            count_trash(meta, &mut stat).await?;
            count_garbage(meta, &mut stat).await?;
        }
        let setting: Value = serde_json::from_str(&setting.display()?)?;
        Ok(json!({ "Setting": setting, "Sessions": sessions, "Stat": stat }))
    }
}

fn describe(stored: &StoredSession) -> Session {
    let expire = DateTime::<Utc>::from_timestamp(stored.expire, 0).unwrap_or_default();
    Session {
        sid: stored.sid.0,
        expire: expire.to_rfc3339_opts(SecondsFormat::AutoSi, true),
        info: serde_json::from_slice(&stored.info).unwrap_or_default(),
        sustained: Vec::new(),
        flocks: Vec::new(),
        plocks: Vec::new(),
    }
}

async fn one_session(meta: &Meta, sid: Sid) -> anyhow::Result<Session> {
    let Some(stored) = meta.engine().session(sid).await? else {
        bail!("there is no session {sid} in {}", meta.engine().address());
    };
    let mut session = describe(&stored);
    session.sustained = meta.engine().sustained(sid).await?.iter().map(|ino| ino.0).collect();
    for HeldLock { ino, owner, kind } in meta.engine().locks_of(sid).await? {
        match kind {
            HeldKind::Flock(kind) => {
                let letter = if kind == LockKind::Write { "W" } else { "R" };
                session.flocks.push(json!({ "Inode": ino.0, "Owner": owner.0, "Ltype": letter }));
            }
            HeldKind::Plock(ranges) => {
                let records: Vec<Value> = ranges
                    .iter()
                    .map(|range| {
                        let kind = u32::from(range.kind == LockKind::Write);
                        json!({ "Type": kind, "Pid": range.pid, "Start": range.start, "End": range.end })
                    })
                    .collect();
                session
                    .plocks
                    .push(json!({ "Inode": ino.0, "Owner": owner.0, "Records": records }));
            }
        }
    }
    Ok(session)
}

async fn count_trash(meta: &Meta, stat: &mut Stat) -> anyhow::Result<()> {
    for (_, _, ino) in meta.hours().await? {
        let mut listing = meta.list(ino, true);
        while let Some(page) = listing.next().await? {
            for attr in page.iter().filter_map(|entry| entry.attr.as_ref()) {
                stat.trash_file_count += 1;
                stat.trash_file_size += if attr.is_file() { attr.length.cast_signed() } else { 0 };
            }
        }
    }
    Ok(())
}

async fn count_garbage(meta: &Meta, stat: &mut Stat) -> anyhow::Result<()> {
    let engine = meta.engine();
    for file in engine.deleted_files(i64::MAX, PAGE).await? {
        stat.pending_deleted_file_count += 1;
        stat.pending_deleted_file_size += file.length.cast_signed();
    }
    for list in engine.delayed_slices(i64::MAX, PAGE).await? {
        stat.trash_slice_count += i64::try_from(list.slices.len())?;
        stat.trash_slice_size += list.slices.iter().map(|slice| i64::from(slice.size)).sum::<i64>();
    }
    for slice in engine.dead_slices(PAGE).await? {
        stat.pending_deleted_slice_count += 1;
        stat.pending_deleted_slice_size += i64::from(slice.size);
    }
    Ok(())
}
