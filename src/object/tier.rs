//! Tiers as a store applies them: the request headers of each, computed once.

use std::collections::BTreeMap;

use super::spec::Tier;
use crate::error::{Error, Result};

/// What a request specifies for one tier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TierHeaders {
    pub class: Option<String>,
    /// `key=value`, URL-encoded.
    pub tagging: Option<String>,
}

#[derive(Debug, Default)]
pub struct Tiers {
    headers: BTreeMap<u8, TierHeaders>,
    default: TierHeaders,
}

impl Tiers {
    pub fn new(tiers: &BTreeMap<u8, Tier>) -> Result<Self> {
        let mut headers = BTreeMap::new();
        for (id, tier) in tiers {
            let class = Some(tier.class.clone()).filter(|class| !class.is_empty());
            headers.insert(*id, TierHeaders { class, tagging: tagging(&tier.tag)? });
        }
        let default = headers.get(&0).cloned().unwrap_or_default();
        Ok(Self { headers, default })
    }

    /// Returns how to store an object of a tier. A tier that the volume does not define is stored
    /// as tier 0.
    pub fn tier(&self, id: u8) -> &TierHeaders {
        self.headers.get(&id).unwrap_or(&self.default)
    }
}

fn tagging(tag: &str) -> Result<Option<String>> {
    let escape = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
    match tag.split_once('=') {
        _ if tag.is_empty() => Ok(None),
        Some((key, value)) if !key.is_empty() && !value.is_empty() && !value.contains('=') => {
            let (key, value): (String, String) = (escape(key), escape(value));
            Ok(Some(format!("{key}={value}")))
        }
        _ => Err(Error::BadInput(format!("tag {tag:?} is not key=value"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(class: &str, tag: &str) -> Tier {
        Tier { class: class.to_owned(), tag: tag.to_owned() }
    }

    #[test]
    fn an_undefined_tier_is_stored_as_tier_0() {
        let tiers = BTreeMap::from([(0, tier("STANDARD", "")), (2, tier("GLACIER_IR", "a b=c/d"))]);
        let tiers = Tiers::new(&tiers).unwrap();
        assert_eq!(tiers.tier(0).class.as_deref(), Some("STANDARD"));
        assert_eq!(tiers.tier(2).class.as_deref(), Some("GLACIER_IR"));
        assert_eq!(tiers.tier(2).tagging.as_deref(), Some("a+b=c%2Fd"));
        assert_eq!(tiers.tier(3), tiers.tier(0));
        assert_eq!(Tiers::new(&BTreeMap::new()).unwrap().tier(1), &TierHeaders::default());
    }

    #[test]
    fn the_error_names_a_tag_that_is_not_a_pair() {
        for wrong in ["a", "=b", "a=", "a=b=c"] {
            let error = Tiers::new(&BTreeMap::from([(0, tier("", wrong))])).unwrap_err();
            assert!(error.to_string().contains(wrong), "{error}");
        }
    }
}
