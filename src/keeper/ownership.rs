//! Who owns what is held: the rules, without sockets and clocks.
//!
//! - One client at a time is the owner.
//! - Who asks while nobody owns is the owner at once. Otherwise the owner is told to yield; the oldest
//!   asker follows when it has yielded or is gone.
//! - An owner that does not yield in time stays, and the asker is refused. An asker that goes away does
//!   the same without the refusal. Either way the owner is told that it is *yours* still: serve on.
//! - A spare never makes an owner yield. It follows if there has been no owner for some time and nobody
//!   else asks.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::protocol::Answer;

/// Identifies a connection; never used twice.
pub type ClientId = u64;

/// What clients are to be told.
pub type Effects = Vec<(ClientId, Answer)>;

#[derive(Debug)]
pub struct Ownership {
    yield_limit: Duration,
    spare_delay: Duration,
    owner: Option<ClientId>,
    /// Since when there is no owner, if there is none.
    ownerless_since: Instant,
    /// In the order in which they asked.
    askers: Vec<Asker>,
    yielding: Option<Yielding>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Asker {
    client: ClientId,
    spare: bool,
}

/// The owner has been told to yield.
#[derive(Debug, Clone, Copy)]
struct Yielding {
    asker: ClientId,
    until: Instant,
}

/// The state, for another run of this program.
#[derive(Debug, Serialize, Deserialize)]
pub struct Saved {
    owner: Option<ClientId>,
    ownerless_for: Duration,
    askers: Vec<Asker>,
    yielding: Option<(ClientId, Duration)>,
}

impl Ownership {
    pub fn new(yield_limit: Duration, spare_delay: Duration, now: Instant) -> Self {
        Self {
            yield_limit,
            spare_delay,
            owner: None,
            ownerless_since: now,
            askers: Vec::new(),
            yielding: None,
        }
    }

    pub fn owner(&self) -> Option<ClientId> {
        self.owner
    }

    /// Since when there is no owner.
    pub fn ownerless_since(&self) -> Option<Instant> {
        self.owner.is_none().then_some(self.ownerless_since)
    }

    pub fn ask(
        &mut self,
        client: ClientId,
        spare: bool,
        now: Instant,
    ) -> Result<Effects, &'static str> {
        if self.owner == Some(client) {
            return Err("it is the owner already");
        }
        match self.askers.iter_mut().find(|asker| asker.client == client) {
            Some(asker) => asker.spare = spare,
            None => self.askers.push(Asker { client, spare }),
        }
        Ok(self.settle(now))
    }

    pub fn yielded(&mut self, client: ClientId, now: Instant) -> Result<Effects, &'static str> {
        if self.owner != Some(client) {
            return Err("it is not the owner");
        }
        if self.yielding.is_none() {
            return Err("nobody waits for it any more: it is the owner still");
        }
        self.vacate(now);
        Ok(self.settle(now))
    }

    /// The client is gone, or does not ask any more.
    pub fn leave(&mut self, client: ClientId, now: Instant) -> Effects {
        self.askers.retain(|asker| asker.client != client);
        if self.owner == Some(client) {
            self.vacate(now);
        }
        self.settle(now)
    }

    /// Does what is due. Returns what clients are to be told.
    pub fn settle(&mut self, now: Instant) -> Effects {
        let mut effects = Effects::new();
        if let (Some(owner), Some(yielding)) = (self.owner, self.yielding) {
            let waits = self.first_asker() == Some(yielding.asker);
            if waits && now < yielding.until {
                return effects;
            }
            if waits {
                self.askers.retain(|asker| asker.client != yielding.asker);
                effects.push((yielding.asker, Answer::Refused));
            }
            match self.first_asker() {
                // The owner stops already: the next asker follows.
                Some(next) if !waits && now < yielding.until => {
                    self.yielding = Some(Yielding { asker: next, ..yielding });
                    return effects;
                }
                _ => {
                    self.yielding = None;
                    effects.push((owner, Answer::Yours));
                }
            }
        }
        match (self.owner, self.first_asker()) {
            (Some(owner), Some(asker)) => {
                self.yielding = Some(Yielding { asker, until: now + self.yield_limit });
                effects.push((owner, Answer::Yield));
            }
            (None, Some(asker)) => effects.push(self.appoint(asker)),
            (None, None) if now >= self.ownerless_since + self.spare_delay => {
                effects
                    .extend(self.askers.first().map(|spare| spare.client).map(|s| self.appoint(s)));
            }
            _ => {}
        }
        effects
    }

    /// When [`Ownership::settle`] has something to do by the time alone.
    pub fn next_deadline(&self) -> Option<Instant> {
        match (self.owner, self.yielding) {
            (Some(_), Some(yielding)) => Some(yielding.until),
            (None, _) if !self.askers.is_empty() => Some(self.ownerless_since + self.spare_delay),
            _ => None,
        }
    }

    pub fn save(&self, now: Instant) -> Saved {
        Saved {
            owner: self.owner,
            ownerless_for: now.saturating_duration_since(self.ownerless_since),
            askers: self.askers.clone(),
            yielding: self
                .yielding
                .map(|yielding| (yielding.asker, yielding.until.saturating_duration_since(now))),
        }
    }

    /// Continues from a saved state.
    pub fn restore(&mut self, saved: Saved, now: Instant) {
        self.owner = saved.owner;
        self.ownerless_since = now.checked_sub(saved.ownerless_for).unwrap_or(now);
        self.askers = saved.askers;
        self.yielding = saved.yielding.map(|(asker, left)| Yielding { asker, until: now + left });
    }

    fn first_asker(&self) -> Option<ClientId> {
        self.askers.iter().find(|asker| !asker.spare).map(|asker| asker.client)
    }

    fn vacate(&mut self, now: Instant) {
        self.owner = None;
        self.ownerless_since = now;
        self.yielding = None;
    }

    fn appoint(&mut self, client: ClientId) -> (ClientId, Answer) {
        self.askers.retain(|asker| asker.client != client);
        self.owner = Some(client);
        (client, Answer::Yours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YIELD: Duration = Duration::from_secs(30);
    const SPARE: Duration = Duration::from_secs(5);

    fn rules() -> (Ownership, Instant) {
        let now = Instant::now();
        (Ownership::new(YIELD, SPARE, now), now)
    }

    #[test]
    fn the_first_asker_owns_at_once_and_the_next_when_the_owner_has_yielded() {
        let (mut rules, now) = rules();
        assert_eq!(rules.ask(1, false, now), Ok(vec![(1, Answer::Yours)]));
        assert_eq!(rules.ask(2, false, now), Ok(vec![(1, Answer::Yield)]));
        assert_eq!(rules.ask(3, false, now), Ok(vec![]));
        assert_eq!(rules.yielded(1, now), Ok(vec![(2, Answer::Yours)]));
        assert_eq!(rules.owner(), Some(2));
        assert_eq!(rules.settle(now), vec![(2, Answer::Yield)], "for the third");
        rules.ask(2, false, now).unwrap_err();
    }

    #[test]
    fn an_owner_that_ends_is_followed_by_the_oldest_asker() {
        let (mut rules, now) = rules();
        rules.ask(1, false, now).unwrap();
        rules.ask(2, true, now).unwrap();
        rules.ask(3, false, now).unwrap();
        rules.ask(4, false, now).unwrap();
        assert_eq!(rules.leave(1, now), vec![(3, Answer::Yours)]);
    }

    #[test]
    fn a_spare_waits_and_lets_others_go_first() {
        let (mut rules, now) = rules();
        rules.ask(1, false, now).unwrap();
        assert_eq!(rules.ask(2, true, now), Ok(vec![]), "a spare makes nobody yield");
        assert_eq!(rules.next_deadline(), None);
        assert_eq!(rules.leave(1, now), vec![]);
        assert_eq!(rules.next_deadline(), Some(now + SPARE));
        assert_eq!(rules.settle(now + SPARE / 2), vec![]);
        assert_eq!(rules.settle(now + SPARE), vec![(2, Answer::Yours)]);
        rules.leave(2, now);
        rules.ask(4, true, now).unwrap();
        assert_eq!(rules.ask(3, false, now), Ok(vec![(3, Answer::Yours)]));
        assert_eq!(rules.settle(now + SPARE), vec![]);
    }

    #[test]
    fn an_owner_that_does_not_yield_in_time_stays() {
        let (mut rules, now) = rules();
        rules.ask(1, false, now).unwrap();
        rules.ask(2, false, now).unwrap();
        assert_eq!(rules.next_deadline(), Some(now + YIELD));
        assert_eq!(rules.settle(now + YIELD), vec![(2, Answer::Refused), (1, Answer::Yours)]);
        assert_eq!(rules.owner(), Some(1));
        // A late answer does not lose what nobody waits for.
        rules.yielded(1, now + YIELD).unwrap_err();
        assert_eq!(rules.owner(), Some(1));
        assert_eq!(rules.ask(2, false, now + YIELD), Ok(vec![(1, Answer::Yield)]));
    }

    #[test]
    fn an_asker_that_goes_away_leaves_the_owner_serving() {
        let (mut rules, now) = rules();
        rules.ask(1, false, now).unwrap();
        rules.ask(2, false, now).unwrap();
        assert_eq!(rules.leave(2, now), vec![(1, Answer::Yours)]);
        rules.yielded(1, now).unwrap_err();
        rules.ask(2, false, now).unwrap();
        rules.ask(3, false, now).unwrap();
        assert_eq!(rules.leave(2, now), vec![], "the owner stops already, for the next one");
        assert_eq!(rules.yielded(1, now), Ok(vec![(3, Answer::Yours)]));
    }

    #[test]
    fn only_the_owner_yields_and_only_when_told_to() {
        let (mut rules, now) = rules();
        rules.yielded(1, now).unwrap_err();
        rules.ask(1, false, now).unwrap();
        rules.yielded(1, now).unwrap_err();
        rules.yielded(2, now).unwrap_err();
        assert_eq!(rules.owner(), Some(1));
    }

    #[test]
    fn a_saved_state_goes_on_where_it_was() {
        let (mut rules, now) = rules();
        rules.ask(1, false, now).unwrap();
        rules.ask(2, false, now).unwrap();
        rules.ask(3, true, now).unwrap();
        let saved = serde_json::to_vec(&rules.save(now + YIELD / 2)).unwrap();
        let mut other = Ownership::new(YIELD, SPARE, now);
        other.restore(serde_json::from_slice(&saved).unwrap(), now);
        assert_eq!(other.next_deadline(), Some(now + YIELD / 2));
        assert_eq!(other.yielded(1, now), Ok(vec![(2, Answer::Yours)]));
        assert_eq!(other.leave(2, now), vec![]);
        assert_eq!(other.settle(now + SPARE), vec![(3, Answer::Yours)]);
    }
}
