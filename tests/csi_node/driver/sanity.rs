//! csi-sanity, the conformance test of the Kubernetes project, in full.

use std::time::Duration;

use crate::csi::Node;
use crate::csi_sanity;
use crate::support::command::run;
use crate::support::timeout::within;

const LIMIT: Duration = Duration::from_mins(10);

#[test]
fn csi_sanity_passes_in_full() {
    let suite = csi_sanity::build();
    within(LIMIT, move || {
        let mut node = Node::start();
        let options = csi_sanity::driver_options(&node);
        assert!(node.stop());
        node.restart(&options.each_ref().map(String::as_str));
        let ended = run(csi_sanity::command(&suite, &node, &node.path("csi.sock")), LIMIT);
        let summary = csi_sanity::summary(&ended.stdout);
        println!("{summary}");
        assert!(ended.status.success() && summary.contains("0 Failed"), "{ended}\n{}", node.log());
    });
}
