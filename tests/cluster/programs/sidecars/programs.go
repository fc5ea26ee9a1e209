//go:build tools

// Package programs names the sidecars, so that go.mod pins the exact version of every module that they
// need. The provisioner has a separate module: it needs other versions.
package programs

import (
	_ "github.com/kubernetes-csi/external-resizer/cmd/csi-resizer"
	_ "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter"
	_ "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller"
)
