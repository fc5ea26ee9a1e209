//! Renders `.stats`: one metric per line.

use std::fmt::Write;

use prometheus::proto::{Metric, MetricFamily, MetricType};

/// Labels whose value becomes part of the name; other labels are not shown.
const NAMING: [&str; 2] = ["method", "errno"];

pub fn render(families: &[MetricFamily]) -> Vec<u8> {
    let mut out = String::new();
    for family in families {
        for metric in family.get_metric() {
            line(&mut out, family, metric);
        }
    }
    out.into_bytes()
}

fn line(out: &mut String, family: &MetricFamily, metric: &Metric) {
    let mut name = family.name().to_owned();
    for label in metric.get_label().iter().filter(|label| NAMING.contains(&label.name())) {
        name.push('_');
        name.push_str(label.value());
    }
    // Writing to a string does not fail.
    let _ = match family.get_field_type() {
        MetricType::GAUGE => writeln!(out, "{name} {}", metric.get_gauge().get_value()),
        MetricType::COUNTER => writeln!(out, "{name} {}", metric.get_counter().get_value()),
        MetricType::HISTOGRAM => {
            let histogram = metric.get_histogram();
            let (count, sum) = (histogram.get_sample_count(), histogram.get_sample_sum());
            writeln!(out, "{name}_total {count}\n{name}_sum {sum}")
        }
        MetricType::SUMMARY | MetricType::UNTYPED => Ok(()),
    };
}

#[cfg(test)]
mod tests {
    use prometheus::{Gauge, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

    use super::*;

    #[test]
    fn every_metric_is_a_line() {
        let labels = [("mp".to_owned(), "/mnt".to_owned())].into();
        let registry = Registry::new_custom(Some("juicefs".to_owned()), Some(labels)).unwrap();
        let ops = IntCounterVec::new(Opts::new("ops_total", "Ops"), &["method"]).unwrap();
        ops.with_label_values(&["read"]).inc_by(3);
        let used = Gauge::new("used_space", "Used").unwrap();
        used.set(1e21);
        let took = HistogramOpts::new("took", "Took").buckets(vec![0.1, 1.0]);
        let took = HistogramVec::new(took, &["method", "storage_class"]).unwrap();
        took.with_label_values(&["GET", "COLD"]).observe(0.25);
        registry.register(Box::new(ops)).unwrap();
        registry.register(Box::new(used)).unwrap();
        registry.register(Box::new(took)).unwrap();

        let expected = "juicefs_ops_total_read 3\n\
                        juicefs_took_GET_total 1\n\
                        juicefs_took_GET_sum 0.25\n\
                        juicefs_used_space 1000000000000000000000\n";
        assert_eq!(String::from_utf8(render(&registry.gather())).unwrap(), expected);
    }
}
