//go:build tools

// Package programs names the provisioner, so that go.mod pins the exact version of every module that it
// needs.
package programs

import _ "github.com/kubernetes-csi/external-provisioner/v5/cmd/csi-provisioner"
