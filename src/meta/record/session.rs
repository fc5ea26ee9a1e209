//! Sessions: what a client stores about itself.

use chrono::{DateTime, SecondsFormat};
use serde::{Deserialize, Serialize};

use super::go_json;
use crate::error::{Error, Result};
use crate::meta::Timestamp;

/// Field order is the stored order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
pub struct SessionInfo {
    /// Peers parse it; see [`super::version`].
    pub version: String,
    pub host_name: String,
    #[serde(rename = "IPAddrs", skip_serializing_if = "Vec::is_empty")]
    pub ip_addrs: Vec<String>,
    pub mount_point: String,
    /// RFC 3339 with nanoseconds; peers parse it. See [`rfc3339`].
    pub mount_time: String,
    #[serde(rename = "ProcessID")]
    pub process_id: u32,
}

impl SessionInfo {
    /// Encodes the record.
    pub fn encode(&self) -> Result<Vec<u8>> {
        go_json::compact(self)
            .map_err(|cause| Error::bad_input(format!("cannot encode the session: {cause}")))
    }

    pub fn decode(raw: &[u8]) -> Result<Self> {
        serde_json::from_slice(raw).map_err(|cause| Error::damaged("session", cause))
    }
}

/// Formats a time as sessions store it: UTC, without trailing zeros in the fraction.
pub fn rfc3339(at: Timestamp) -> String {
    let time = DateTime::from_timestamp(at.sec, at.nsec).unwrap_or_default();
    let text = time.to_rfc3339_opts(SecondsFormat::Nanos, true);
    let digits = text.trim_end_matches('Z').trim_end_matches('0').trim_end_matches('.');
    format!("{digits}Z")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // As the Go client stored it.
    const RAW: &str = concat!(
        r#"{"Version":"1.4.1+unknown","HostName":"vm","IPAddrs":["192.0.2.2","fd00::2"],"#,
        r#""MountPoint":"/tmp/records/mnt","MountTime":"2026-11-16T09:17:25.591024663+05:30","#,
        r#""ProcessID":16803}"#
    );

    fn info() -> SessionInfo {
        SessionInfo {
            version: "1.4.1+unknown".into(),
            host_name: "vm".into(),
            ip_addrs: vec!["192.0.2.2".into(), "fd00::2".into()],
            mount_point: "/tmp/records/mnt".into(),
            mount_time: "2026-11-16T09:17:25.591024663+05:30".into(),
            process_id: 16803,
        }
    }

    #[test]
    fn a_stored_session_decodes_and_encodes() {
        assert_eq!(SessionInfo::decode(RAW.as_bytes()).unwrap(), info());
        assert_eq!(String::from_utf8(info().encode().unwrap()).unwrap(), RAW);
    }

    #[test]
    fn an_empty_address_list_is_omitted_and_markup_is_escaped() {
        let info = SessionInfo { mount_point: "/<&>".into(), ..SessionInfo::default() };
        assert_eq!(
            String::from_utf8(info.encode().unwrap()).unwrap(),
            concat!(
                r#"{"Version":"","HostName":"","MountPoint":"/\u003c\u0026\u003e","#,
                r#""MountTime":"","ProcessID":0}"#
            )
        );
    }

    #[test]
    fn unknown_fields_of_a_session_are_ignored() {
        let info = SessionInfo::decode(br#"{"Version":"2.0","New":{}}"#).unwrap();
        assert_eq!(info.version, "2.0");
        assert!(SessionInfo::decode(b"").is_err());
    }

    #[test]
    fn times_have_no_trailing_zeros() {
        for (nsec, text) in [
            (591_024_663, "2026-11-16T03:47:25.591024663Z"),
            (591_024_000, "2026-11-16T03:47:25.591024Z"),
            (500_000_000, "2026-11-16T03:47:25.5Z"),
            (1, "2026-11-16T03:47:25.000000001Z"),
            (0, "2026-11-16T03:47:25Z"),
        ] {
            assert_eq!(rfc3339(Timestamp { sec: 1_794_800_845, nsec }), text);
        }
        assert_eq!(rfc3339(Timestamp::from_secs(1_794_800_840)), "2026-11-16T03:47:20Z");
    }

    proptest! {
        #[test]
        fn times_parse_back(sec in 0i64..253_402_300_800, nsec in 0u32..1_000_000_000) {
            let time = DateTime::parse_from_rfc3339(&rfc3339(Timestamp { sec, nsec })).unwrap();
            prop_assert_eq!((time.timestamp(), time.timestamp_subsec_nanos()), (sec, nsec));
        }

        #[test]
        fn an_encoded_session_decodes_to_the_same(
            version: String, host_name: String, mount_point: String, mount_time: String,
            ip_addrs in prop::collection::vec(any::<String>(), 0..4), process_id: u32
        ) {
            let info =
                SessionInfo { version, host_name, ip_addrs, mount_point, mount_time, process_id };
            prop_assert_eq!(SessionInfo::decode(&info.encode().unwrap()).unwrap(), info);
        }
    }
}
