//! The limits that may change while a volume is in use: the parameters of its
//! `VolumeAttributesClass`, as the controller recorded them.

use crate::csi::records::{self, VolumeRecord};
use crate::error::Result;
use crate::meta::Meta;
use crate::mounts::{MountLimits, VolumeId};
use crate::options::sizes::{parse_mbps, parse_mebibytes};
use crate::vfs::Bandwidth;

/// Returns the limits of a volume; no limits if none are recorded.
pub async fn read(meta: &Meta, volume: &VolumeId) -> Result<MountLimits> {
    let record = records::read::<VolumeRecord>(meta, volume.as_str()).await?;
    Ok(record.map_or_else(MountLimits::default, |record| from_record(&record)))
}

// The controller has refused invalid values.
fn from_record(record: &VolumeRecord) -> MountLimits {
    let parameter = |name: &str| record.parameters.get(name).map(String::as_str);
    let rate = |name: &str| {
        let mbps = parameter(name).and_then(|text| parse_mbps(text).ok()).unwrap_or(0);
        u64::try_from(mbps).unwrap_or(0).saturating_mul(1_000_000 / 8)
    };
    MountLimits {
        bandwidth: Bandwidth { read: rate("download-limit"), write: rate("upload-limit") },
        cache: parameter("cache-share").and_then(|text| parse_mebibytes(text).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_in_megabits_and_sizes_in_mebibytes() {
        let parameters = [("upload-limit", "80"), ("cache-share", "512")];
        let parameters = parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let record = VolumeRecord { parameters, ..VolumeRecord::default() };
        let limits = from_record(&record);
        assert_eq!(limits.bandwidth, Bandwidth { read: 0, write: 10_000_000 });
        assert_eq!(limits.cache, Some(512 << 20));
    }
}
