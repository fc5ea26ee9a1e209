//! What is counted of all volumes, on one page.

use std::collections::BTreeMap;

use prometheus::Registry;
use prometheus::proto::MetricFamily;

/// The figures of many registries; those of one name are one family, as Prometheus wants it.
pub fn gather(registries: &[Registry]) -> Vec<MetricFamily> {
    let mut families: BTreeMap<String, MetricFamily> = BTreeMap::new();
    for mut family in registries.iter().flat_map(Registry::gather) {
        let metrics = family.take_metric();
        let known = families.entry(family.name().to_owned()).or_insert(family);
        known.mut_metric().extend(metrics);
    }
    families.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use prometheus::{IntCounter, TextEncoder};

    use super::*;

    #[test]
    fn figures_of_one_name_are_one_family() {
        let registries = ["a", "b"].map(|id| {
            let labels = HashMap::from([("volume_id".to_owned(), id.to_owned())]);
            let registry = Registry::new_custom(None, Some(labels)).unwrap();
            let counter = IntCounter::new("things", "Things").unwrap();
            counter.inc();
            registry.register(Box::new(counter)).unwrap();
            registry
        });
        let page = TextEncoder::new().encode_to_string(&gather(&registries)).unwrap();
        assert_eq!(page.matches("# TYPE things").count(), 1);
        assert!(page.contains("things{volume_id=\"a\"} 1") && page.contains("things{volume_id=\"b\"} 1"));
    }
}
