//! Usage and condition of a volume in the terms of CSI.

use crate::csi::proto::csi::volume_usage::Unit;
use crate::csi::proto::csi::{NodeGetVolumeStatsResponse, VolumeCondition, VolumeUsage};
use crate::mounts::Report;

pub fn answer(report: Report) -> NodeGetVolumeStatsResponse {
    let usage = report.usage.map_or_else(Vec::new, |stat| {
        vec![
            usage(Unit::Bytes, stat.total.saturating_sub(stat.available), stat.available),
            usage(Unit::Inodes, stat.used_inodes, stat.available_inodes),
        ]
    });
    let condition = report.condition;
    let condition = VolumeCondition { abnormal: condition.abnormal, message: condition.message };
    NodeGetVolumeStatsResponse { usage, volume_condition: Some(condition) }
}

fn usage(unit: Unit, used: u64, available: u64) -> VolumeUsage {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    VolumeUsage {
        available: number(available),
        total: number(used.saturating_add(available)),
        used: number(used),
        unit: unit.into(),
    }
}
