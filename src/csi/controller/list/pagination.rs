//! Paging of lists. A page begins after the last entry of the previous page, whether or not that
//! entry still exists.

use tonic::Status;

/// The last entry of the previous page.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageToken {
    /// The id of its file system.
    pub file_system: String,
    pub id: String,
}

/// What the caller asked for.
#[derive(Debug, Clone)]
pub struct PageRequest {
    pub after: Option<PageToken>,
    /// The maximum number of entries.
    pub limit: usize,
}

impl PageRequest {
    pub fn read(max_entries: i32, token: &str) -> Result<Self, Status> {
        let limit = usize::try_from(max_entries)
            .map_err(|_| Status::invalid_argument("max_entries is negative"))?;
        let after = match token {
            "" => None,
            token => Some(PageToken::parse(token).ok_or_else(|| {
                Status::aborted(format!("starting_token {token:?} was not issued by this driver"))
            })?),
        };
        Ok(Self { after, limit: if limit == 0 { usize::MAX } else { limit } })
    }

    /// Whether the page can have entries of that file system.
    pub fn includes_any_of(&self, file_system: &str) -> bool {
        self.after.as_ref().is_none_or(|after| after.file_system.as_str() <= file_system)
    }

    pub fn includes(&self, file_system: &str, id: &str) -> bool {
        self.after
            .as_ref()
            .is_none_or(|after| (&*after.file_system, &*after.id) < (file_system, id))
    }
}

impl PageToken {
    pub fn token(&self) -> String {
        format!("{}/{}", self.file_system, self.id)
    }

    fn parse(token: &str) -> Option<Self> {
        let (file_system, id) = token.split_once('/')?;
        let is_digest =
            file_system.len() == 64 && file_system.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digest.then(|| Self { file_system: file_system.to_owned(), id: id.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn a_token_leads_to_the_entries_after_it() {
        let (low, high) = ("a".repeat(64), "b".repeat(64));
        let token = PageToken { file_system: low.clone(), id: "m/1".to_owned() }.token();
        let page = PageRequest::read(3, &token).unwrap();
        assert!(page.includes(&low, "m/2") && page.includes(&high, "a"));
        assert!(!page.includes(&low, "m/1") && !page.includes(&low, "a"));
        assert!(
            page.includes_any_of(&low) && page.includes_any_of(&high) && !page.includes_any_of("0")
        );
    }

    #[test]
    fn an_invalid_token_is_aborted() {
        assert_eq!(PageRequest::read(0, "invalid").unwrap_err().code(), Code::Aborted);
        assert_eq!(PageRequest::read(-1, "").unwrap_err().code(), Code::InvalidArgument);
        assert!(PageRequest::read(0, "").unwrap().includes("x", "y"));
    }
}
