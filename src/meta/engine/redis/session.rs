//! Sessions: who has the volume mounted, and until when.

use bytes::Bytes;
use redis::Pipeline;

use super::super::StoredSession;
use super::RedisEngine;
use super::batch::Kind;
use super::names::LEGACY_SESSIONS;
use super::reply;
use super::write::text;
use crate::error::Result;
use crate::meta::{Ino, Sid};

/// How long a client before 1.0 may be silent.
const LEGACY_SILENCE: i64 = 300;

impl RedisEngine {
    pub(super) async fn save_session(&self, sid: Sid, expire: i64, info: &[u8]) -> Result<()> {
        self.apply(|batch| {
            let (all, infos) = (self.names.sessions(), self.names.session_infos());
            batch.call(Kind::SortedSet, "ZADD", &all, [text(expire), text(sid)]);
            batch.call(Kind::Hash, "HSET", &infos, [text(sid), Bytes::copy_from_slice(info)]);
        })
        .await?;
        Ok(())
    }

    pub(super) async fn refresh_session(&self, sid: Sid, expire: i64) -> Result<bool> {
        let key = self.names.sessions();
        let mut pipe = Pipeline::new();
        pipe.cmd("ZADD").arg(&key).arg("XX").arg(expire).arg(sid.0);
        pipe.cmd("ZSCORE").arg(&key).arg(sid.0);
        let mut replies = self.wire.ask(&pipe).await?;
        replies.int(&key)?;
        Ok(replies.bytes(&key)?.is_some())
    }

    pub(super) async fn one_session(&self, sid: Sid) -> Result<Option<StoredSession>> {
        let (all, infos) = (self.names.sessions(), self.names.session_infos());
        let mut pipe = Pipeline::new();
        pipe.cmd("HGET").arg(&infos).arg(sid.0);
        pipe.cmd("ZSCORE").arg(&all).arg(sid.0);
        if self.has_legacy_sessions() {
            pipe.cmd("ZSCORE").arg(LEGACY_SESSIONS).arg(sid.0);
        }
        let mut replies = self.wire.ask(&pipe).await?;
        let info = replies.bytes(&infos)?.map(Vec::from).unwrap_or_default();
        if let Some(raw) = replies.bytes(&all)? {
            return Ok(Some(StoredSession { sid, expire: reply::score(&raw, &all)?, info }));
        }
        if !self.has_legacy_sessions() {
            return Ok(None);
        }
        let Some(raw) = replies.bytes(LEGACY_SESSIONS)? else { return Ok(None) };
        let expire = reply::score(&raw, LEGACY_SESSIONS)? + LEGACY_SILENCE;
        Ok(Some(StoredSession { sid, expire, info }))
    }

    pub(super) async fn all_sessions(&self) -> Result<Vec<StoredSession>> {
        let (all, infos) = (self.names.sessions(), self.names.session_infos());
        let mut pipe = Pipeline::new();
        pipe.cmd("HGETALL").arg(&infos);
        pipe.cmd("ZRANGE").arg(&all).arg(0).arg(-1).arg("WITHSCORES");
        if self.has_legacy_sessions() {
            pipe.cmd("ZRANGE").arg(LEGACY_SESSIONS).arg(0).arg(-1).arg("WITHSCORES");
        }
        let mut replies = self.wire.ask(&pipe).await?;
        let known: std::collections::HashMap<_, _> = replies.pairs(&infos)?.into_iter().collect();
        let mut sessions = Vec::new();
        let mut take = |key: &str, late: i64, pairs: Vec<(Bytes, Bytes)>| {
            for (member, score) in pairs {
                sessions.push(StoredSession {
                    sid: Sid(reply::id(&member, key)?),
                    expire: reply::score(&score, key)? + late,
                    info: known.get(&member).map(|info| info.to_vec()).unwrap_or_default(),
                });
            }
            Ok(())
        };
        take(&all, 0, replies.pairs(&all)?)?;
        if self.has_legacy_sessions() {
            take(LEGACY_SESSIONS, LEGACY_SILENCE, replies.pairs(LEGACY_SESSIONS)?)?;
        }
        Ok(sessions)
    }

    pub(super) async fn expired_sessions(&self, now: i64, limit: usize) -> Result<Vec<Sid>> {
        let mut places = vec![(self.names.sessions(), now)];
        if self.has_legacy_sessions() {
            places.push((LEGACY_SESSIONS.to_owned(), now - LEGACY_SILENCE));
        }
        let mut pipe = Pipeline::new();
        for (key, edge) in &places {
            pipe.cmd("ZRANGEBYSCORE").arg(key).arg("-inf").arg(format!("({edge}"));
            pipe.arg("LIMIT").arg(0).arg(limit);
        }
        let mut replies = self.wire.ask(&pipe).await?;
        let mut sids = Vec::new();
        for (key, _) in &places {
            for member in replies.list(key)? {
                sids.push(Sid(reply::id(&member, key)?));
            }
        }
        sids.truncate(limit);
        Ok(sids)
    }

    pub(super) async fn sustained_by(&self, sid: Sid) -> Result<Vec<Ino>> {
        let key = self.names.sustained(sid);
        let mut cmd = redis::cmd("SMEMBERS");
        cmd.arg(&key);
        let members = self.wire.ask_one(cmd).await?.list(&key)?;
        members.iter().map(|raw| reply::id(raw, &key).map(Ino)).collect()
    }

    pub(super) async fn forget_session(&self, sid: Sid) -> Result<()> {
        self.apply(|batch| {
            batch.call(Kind::Hash, "HDEL", &self.names.session_infos(), [text(sid)]);
            batch.call(Kind::SortedSet, "ZREM", &self.names.sessions(), [text(sid)]);
        })
        .await?;
        if self.has_legacy_sessions() {
            let mut cmd = redis::cmd("ZREM");
            cmd.arg(LEGACY_SESSIONS).arg(sid.0);
            self.wire.ask_one(cmd).await?.int(LEGACY_SESSIONS)?;
        }
        Ok(())
    }

    /// Clients that old know no clusters, and their key is in a slot of its own.
    fn has_legacy_sessions(&self) -> bool {
        !self.wire.is_cluster()
    }
}
