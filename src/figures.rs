//! Figures as a registry of metrics shows them: kept elsewhere, and read when they are asked for.
//!
//! Knows nothing of what is counted.

use std::collections::HashMap;

use prometheus::core::Desc;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// One figure, or one for each value of a label.
pub struct Figure {
    desc: Desc,
    kind: MetricType,
    label: Option<&'static str>,
}

impl Figure {
    /// What goes up and down.
    pub fn gauge(name: &str, help: &str) -> prometheus::Result<Self> {
        Self::new(name, help, MetricType::GAUGE, None)
    }

    pub fn gauge_by(label: &'static str, name: &str, help: &str) -> prometheus::Result<Self> {
        Self::new(name, help, MetricType::GAUGE, Some(label))
    }

    /// What only grows.
    pub fn counter_by(label: &'static str, name: &str, help: &str) -> prometheus::Result<Self> {
        Self::new(name, help, MetricType::COUNTER, Some(label))
    }

    pub fn desc(&self) -> &Desc {
        &self.desc
    }

    /// As it is now.
    pub fn is(&self, value: f64) -> MetricFamily {
        self.family(vec![self.metric(value, Vec::new())])
    }

    /// As it is now for each value of its label.
    pub fn each<L: ToString>(&self, values: impl IntoIterator<Item = (L, f64)>) -> MetricFamily {
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
