//! Sessions: which clients have the volume mounted, and when they expire.

use bytes::Bytes;
use redis::Pipeline;

use super::super::RedisEngine;
use super::super::client::reply;
use super::super::transaction::batch::ValueType;
use super::super::transaction::write::text;
use super::keyspace::LEGACY_SESSIONS;
use crate::error::Result;
use crate::meta::engine::StoredSession;
use crate::meta::{Ino, Sid};

/// Seconds after its last heartbeat until a session of a client before 1.0 expires.
const LEGACY_EXPIRY: i64 = 300;

impl RedisEngine {
    pub(crate) async fn save_session(&self, sid: Sid, expire: i64, info: &[u8]) -> Result<()> {
        self.apply(|batch| {
            let (all, infos) = (self.keyspace.sessions(), self.keyspace.session_infos());
            batch.call(ValueType::SortedSet, "ZADD", &all, [text(expire), text(sid)]);
            batch.call(ValueType::Hash, "HSET", &infos, [text(sid), Bytes::copy_from_slice(info)]);
        })
        .await?;
        Ok(())
    }

    pub(crate) async fn refresh_session(&self, sid: Sid, expire: i64) -> Result<bool> {
        let key = self.keyspace.sessions();
        let mut pipe = Pipeline::new();
        pipe.cmd("ZADD").arg(&key).arg("XX").arg(expire).arg(sid.0);
        pipe.cmd("ZSCORE").arg(&key).arg(sid.0);
        let mut replies = self.client.query(&pipe).await?;
        replies.int(&key)?;
        Ok(replies.bytes(&key)?.is_some())
    }

    pub(crate) async fn one_session(&self, sid: Sid) -> Result<Option<StoredSession>> {
        let (all, infos) = (self.keyspace.sessions(), self.keyspace.session_infos());
        let mut pipe = Pipeline::new();
        pipe.cmd("HGET").arg(&infos).arg(sid.0);
        pipe.cmd("ZSCORE").arg(&all).arg(sid.0);
        if self.has_legacy_sessions() {
            pipe.cmd("ZSCORE").arg(LEGACY_SESSIONS).arg(sid.0);
        }
        let mut replies = self.client.query(&pipe).await?;
        let info = replies.bytes(&infos)?.map(Vec::from).unwrap_or_default();
        if let Some(raw) = replies.bytes(&all)? {
            return Ok(Some(StoredSession { sid, expire: reply::score(&raw, &all)?, info }));
        }
        if !self.has_legacy_sessions() {
            return Ok(None);
        }
        let Some(raw) = replies.bytes(LEGACY_SESSIONS)? else { return Ok(None) };
        let expire = reply::score(&raw, LEGACY_SESSIONS)? + LEGACY_EXPIRY;
        Ok(Some(StoredSession { sid, expire, info }))
    }

    pub(crate) async fn all_sessions(&self) -> Result<Vec<StoredSession>> {
        let (all, infos) = (self.keyspace.sessions(), self.keyspace.session_infos());
        let mut pipe = Pipeline::new();
        pipe.cmd("HGETALL").arg(&infos);
        pipe.cmd("ZRANGE").arg(&all).arg(0).arg(-1).arg("WITHSCORES");
        if self.has_legacy_sessions() {
            pipe.cmd("ZRANGE").arg(LEGACY_SESSIONS).arg(0).arg(-1).arg("WITHSCORES");
        }
        let mut replies = self.client.query(&pipe).await?;
        let known: std::collections::HashMap<_, _> = replies.pairs(&infos)?.into_iter().collect();
        let mut sessions = Vec::new();
        let mut add = |key: &str, extra: i64, pairs: Vec<(Bytes, Bytes)>| {
            for (member, score) in pairs {
                sessions.push(StoredSession {
                    sid: Sid(reply::id(&member, key)?),
                    expire: reply::score(&score, key)? + extra,
                    info: known.get(&member).map(|info| info.to_vec()).unwrap_or_default(),
                });
            }
            Ok(())
        };
        add(&all, 0, replies.pairs(&all)?)?;
        if self.has_legacy_sessions() {
            add(LEGACY_SESSIONS, LEGACY_EXPIRY, replies.pairs(LEGACY_SESSIONS)?)?;
        }
        Ok(sessions)
    }

    pub(crate) async fn expired_sessions(&self, now: i64, limit: usize) -> Result<Vec<Sid>> {
        let mut sets = vec![(self.keyspace.sessions(), now)];
        if self.has_legacy_sessions() {
            sets.push((LEGACY_SESSIONS.to_owned(), now - LEGACY_EXPIRY));
        }
        let mut pipe = Pipeline::new();
        for (key, before) in &sets {
            pipe.cmd("ZRANGEBYSCORE").arg(key).arg("-inf").arg(format!("({before}"));
            pipe.arg("LIMIT").arg(0).arg(limit);
        }
        let mut replies = self.client.query(&pipe).await?;
        let mut sids = Vec::new();
        for (key, _) in &sets {
            for member in replies.list(key)? {
                sids.push(Sid(reply::id(&member, key)?));
            }
        }
        sids.truncate(limit);
        Ok(sids)
    }

    pub(crate) async fn sustained_by(&self, sid: Sid) -> Result<Vec<Ino>> {
        let key = self.keyspace.sustained(sid);
        let mut cmd = redis::cmd("SMEMBERS");
        cmd.arg(&key);
        let members = self.client.query_one(cmd).await?.list(&key)?;
        members.iter().map(|raw| reply::id(raw, &key).map(Ino)).collect()
    }

    pub(crate) async fn forget_session(&self, sid: Sid) -> Result<()> {
        self.apply(|batch| {
            batch.call(ValueType::Hash, "HDEL", &self.keyspace.session_infos(), [text(sid)]);
            batch.call(ValueType::SortedSet, "ZREM", &self.keyspace.sessions(), [text(sid)]);
        })
        .await?;
        if self.has_legacy_sessions() {
            let mut cmd = redis::cmd("ZREM");
            cmd.arg(LEGACY_SESSIONS).arg(sid.0);
            self.client.query_one(cmd).await?.int(LEGACY_SESSIONS)?;
        }
        Ok(())
    }

    /// Clients that old do not support clusters, and their key has no prefix, so in a cluster it would
    /// be in another slot.
    fn has_legacy_sessions(&self) -> bool {
        !self.client.is_cluster()
    }
}
