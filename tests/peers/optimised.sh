#!/usr/bin/env bash
# Prints the path of this client's own program, built for the long suites: with the one that the tests
# are built with, they would take three times as long.
#
# usage: tests/peers/optimised.sh
#
# Cargo decides what has to be built again, in the target folder that everything else is built in.
set -euo pipefail
cd "$(dirname "$0")/../.."

target=${CARGO_TARGET_DIR:-$PWD/target}
cargo build --locked --quiet --profile suites --bin jfs-mount --target-dir "$target" >&2
echo "$target/suites/jfs-mount"
