//! Metrics of the metadata client, under JuiceFS's names.
//!
//! Values are kept where they are needed and read when a registry collects them. Collecting sends
//! no request to the store.

pub mod counts;
pub mod op_times;

use std::sync::{Arc, Weak};

use prometheus::Registry;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::client::Meta;
use crate::meta::record::{Quota, QuotaKey};
use crate::metric_families::FamilyDesc;

/// The collector of one client.
struct MetaCollector {
    meta: Weak<Meta>,
    root: Ino,
    used_space: FamilyDesc,
    used_inodes: FamilyDesc,
    total_space: FamilyDesc,
    total_inodes: FamilyDesc,
    subdir: FamilyDesc,
    count: FamilyDesc,
    seconds: FamilyDesc,
    restarts: FamilyDesc,
    quotas: [QuotaFigures; 3],
}

/// Limits and usage of one kind of quota.
struct QuotaFigures {
    max_space: FamilyDesc,
    max_inodes: FamilyDesc,
    used_space: FamilyDesc,
    used_inodes: FamilyDesc,
}

impl Meta {
    /// Registers the metrics of this client, with usage as seen from the directory `root`. The
    /// registry must be for this volume alone.
    pub fn register_metrics(self: &Arc<Self>, registry: &Registry, root: Ino) -> Result<()> {
        self.try_register(registry, root)
            .map_err(|error| Error::BadInput(format!("metrics: {error}")))
    }

    fn try_register(self: &Arc<Self>, registry: &Registry, root: Ino) -> prometheus::Result<()> {
        registry.register(Box::new(MetaCollector::new(Arc::downgrade(self), root)?))?;
        for histogram in [&self.times.ops, &self.times.commits].into_iter().flatten() {
            registry.register(Box::new(histogram.clone()))?;
        }
        self.job_times.register(registry)
    }
}

impl MetaCollector {
    fn new(meta: Weak<Meta>, root: Ino) -> prometheus::Result<Self> {
        Ok(Self {
            meta,
            root,
            used_space: FamilyDesc::gauge("used_space", "Bytes in use")?,
            used_inodes: FamilyDesc::gauge("used_inodes", "Inodes in use")?,
            total_space: FamilyDesc::gauge("total_space", "Bytes in use and left")?,
            total_inodes: FamilyDesc::gauge("total_inodes", "Inodes in use and left")?,
            subdir: FamilyDesc::gauge_by("subdir", "subdir_info", "The directory that is mounted")?,
            count: FamilyDesc::counter_by("method", "meta_ops_total", "Operations on metadata")?,
            seconds: FamilyDesc::counter_by(
                "method",
                "meta_ops_duration_seconds",
                "Seconds of operations on metadata",
            )?,
            restarts: FamilyDesc::counter_by(
                "method",
                "transaction_restart",
                "Transactions begun again after a conflict",
            )?,
            quotas: [
                QuotaFigures::new("dir", "inode")?,
                QuotaFigures::new("user", "uid")?,
                QuotaFigures::new("group", "gid")?,
            ],
        })
    }

    fn usage(&self, meta: &Meta) -> [MetricFamily; 5] {
        let stat = meta.known_statfs(self.root);
        let subdir = meta.context.options.subdir.trim_end_matches('/');
        [
            self.used_space.with_value((stat.total - stat.available) as f64),
            self.used_inodes.with_value(stat.used_inodes as f64),
            self.total_space.with_value(stat.total as f64),
            self.total_inodes
                .with_value(stat.used_inodes.saturating_add(stat.available_inodes) as f64),
            self.subdir.with_values([(subdir, 1.0)]),
        ]
    }

    fn operations(&self, meta: &Meta) -> [MetricFamily; 3] {
        let all: Vec<_> = meta.times.all().collect();
        [
            self.count.with_values(all.iter().map(|op| (op.method, op.count as f64))),
            self.seconds.with_values(all.iter().map(|op| (op.method, op.took.as_secs_f64()))),
            self.restarts.with_values(
                all.iter().filter(|op| op.restarts > 0).map(|op| (op.method, op.restarts as f64)),
            ),
        ]
    }

    fn quotas(&self, meta: &Meta) -> Vec<MetricFamily> {
        let mut kinds: [Vec<(u64, Quota)>; 3] = Default::default();
        for (key, quota) in meta.context.quotas.all() {
            let (kind, number) = match key {
                QuotaKey::Dir(ino) => (0, ino.0),
                QuotaKey::User(uid) => (1, uid.into()),
                QuotaKey::Group(gid) => (2, gid.into()),
            };
            kinds[kind].push((number, quota));
        }
        self.quotas.iter().zip(&kinds).flat_map(|(figures, quotas)| figures.show(quotas)).collect()
    }
}

impl Collector for MetaCollector {
    fn desc(&self) -> Vec<&Desc> {
        let own = [
            &self.used_space,
            &self.used_inodes,
            &self.total_space,
            &self.total_inodes,
            &self.subdir,
            &self.count,
            &self.seconds,
            &self.restarts,
        ];
        let quotas = self.quotas.iter().flat_map(QuotaFigures::all);
        own.into_iter().chain(quotas).map(FamilyDesc::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(meta) = self.meta.upgrade() else { return Vec::new() };
        let mut families = self.usage(&meta).to_vec();
        families.extend(self.operations(&meta));
        families.extend(self.quotas(&meta));
        families
    }
}

impl QuotaFigures {
    fn new(kind: &str, label: &'static str) -> prometheus::Result<Self> {
        let figure = |what: &str, help: &str| {
            FamilyDesc::gauge_by(
                label,
                &format!("{kind}_quota_{what}"),
                &format!("{help} of a {kind}"),
            )
        };
        Ok(Self {
            max_space: figure("max_space_bytes", "Most bytes")?,
            max_inodes: figure("max_inodes", "Most inodes")?,
            used_space: figure("used_space_bytes", "Bytes in use")?,
            used_inodes: figure("used_inodes", "Inodes in use")?,
        })
    }

    fn all(&self) -> [&FamilyDesc; 4] {
        [&self.max_space, &self.max_inodes, &self.used_space, &self.used_inodes]
    }

    fn show(&self, quotas: &[(u64, Quota)]) -> [MetricFamily; 4] {
        let each = |figure: &FamilyDesc, value: fn(&Quota) -> i64| {
            figure.with_values(quotas.iter().map(|(number, quota)| (*number, value(quota) as f64)))
        };
        [
            each(&self.max_space, |quota| quota.max_space),
            each(&self.max_inodes, |quota| quota.max_inodes),
            each(&self.used_space, |quota| quota.used_space),
            each(&self.used_inodes, |quota| quota.used_inodes),
        ]
    }
}
