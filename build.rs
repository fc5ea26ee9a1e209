//! Generates the messages and services of CSI and of kubelet's plugin registration from `proto/`, by
//! a compiler that is itself a crate: nothing has to be installed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["csi.proto", "pluginregistration.proto"], ["proto"])?;
    tonic_prost_build::configure()
        // Clients are for tests and benchmarks, which choose how they connect.
        .build_transport(false)
        // The comments are prose for readers of the specification, not for rustdoc.
        .disable_comments(["."])
        .compile_fds(files)?;
    Ok(())
}
