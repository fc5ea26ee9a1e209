//! Lists in pages: a page begins behind the last thing of the one before, whether or not that is
//! still there.

use tonic::Status;

/// Where a page begins: behind this thing of this file system.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub system: String,
    pub id: String,
}

/// What a page is to hold.
#[derive(Debug, Clone)]
pub struct Page {
    pub after: Option<Position>,
    /// At most so many things.
    pub room: usize,
}

impl Page {
    pub fn read(max_entries: i32, token: &str) -> Result<Self, Status> {
        let room = usize::try_from(max_entries)
            .map_err(|_| Status::invalid_argument("max_entries is negative"))?;
        let after = match token {
            "" => None,
            token => Some(Position::parse(token).ok_or_else(|| {
                Status::aborted(format!("starting_token {token:?} is not of this driver"))
            })?),
        };
        Ok(Self { after, room: if room == 0 { usize::MAX } else { room } })
    }

    /// Whether anything of that file system can be on the page.
    pub fn reaches(&self, system: &str) -> bool {
        self.after.as_ref().is_none_or(|after| after.system.as_str() <= system)
    }

    pub fn has(&self, system: &str, id: &str) -> bool {
        self.after.as_ref().is_none_or(|after| (&*after.system, &*after.id) < (system, id))
    }
}

impl Position {
    pub fn token(&self) -> String {
        format!("{}/{}", self.system, self.id)
    }

    fn parse(token: &str) -> Option<Self> {
        let (system, id) = token.split_once('/')?;
        let is_digest = system.len() == 64 && system.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digest.then(|| Self { system: system.to_owned(), id: id.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn a_token_leads_behind_what_it_was_made_for() {
        let (low, high) = ("a".repeat(64), "b".repeat(64));
        let token = Position { system: low.clone(), id: "m/1".to_owned() }.token();
        let page = Page::read(3, &token).unwrap();
        assert!(page.has(&low, "m/2") && page.has(&high, "a"));
        assert!(!page.has(&low, "m/1") && !page.has(&low, "a"));
        assert!(page.reaches(&low) && page.reaches(&high) && !page.reaches("0"));
    }

    #[test]
    fn what_is_no_token_is_aborted() {
        assert_eq!(Page::read(0, "invalid").unwrap_err().code(), Code::Aborted);
        assert_eq!(Page::read(-1, "").unwrap_err().code(), Code::InvalidArgument);
        assert!(Page::read(0, "").unwrap().has("x", "y"));
    }
}
