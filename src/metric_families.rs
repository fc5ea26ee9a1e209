//! Metric families whose values are kept elsewhere and read only when a registry collects them.
//!
//! This module does not know what is counted.

use std::collections::HashMap;

use prometheus::core::Desc;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// The name, help text and type of one metric family, with at most one label.
pub struct FamilyDesc {
    desc: Desc,
    kind: MetricType,
    label: Option<&'static str>,
}

impl FamilyDesc {
    pub fn gauge(name: &str, help: &str) -> prometheus::Result<Self> {
        Self::new(name, help, MetricType::GAUGE, None)
    }

    pub fn gauge_by(label: &'static str, name: &str, help: &str) -> prometheus::Result<Self> {
        Self::new(name, help, MetricType::GAUGE, Some(label))
    }

    pub fn counter_by(label: &'static str, name: &str, help: &str) -> prometheus::Result<Self> {
        Self::new(name, help, MetricType::COUNTER, Some(label))
    }

    pub fn desc(&self) -> &Desc {
        &self.desc
    }

    /// Returns the family with a single, unlabeled value.
    pub fn with_value(&self, value: f64) -> MetricFamily {
        self.family(vec![self.metric(value, Vec::new())])
    }

    /// Returns the family with one value for each value of its label.
    pub fn with_values<L: ToString>(
        &self,
        values: impl IntoIterator<Item = (L, f64)>,
    ) -> MetricFamily {
        let metrics = values.into_iter().map(|(label, value)| {
            let mut pair = LabelPair::default();
            pair.set_name(self.label.unwrap_or_default().to_owned());
            pair.set_value(label.to_string());
            self.metric(value, vec![pair])
        });
        self.family(metrics.collect())
    }

    fn new(
        name: &str,
        help: &str,
        kind: MetricType,
        label: Option<&'static str>,
    ) -> prometheus::Result<Self> {
        let labels = label.into_iter().map(str::to_owned).collect();
        let desc = Desc::new(name.to_owned(), help.to_owned(), labels, HashMap::new())?;
        Ok(Self { desc, kind, label })
    }

    fn metric(&self, value: f64, labels: Vec<LabelPair>) -> Metric {
        let mut metric = Metric::default();
        metric.set_label(labels);
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        metric
    }

    fn family(&self, metrics: Vec<Metric>) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(self.kind);
        family.set_metric(metrics);
        family
    }
}
