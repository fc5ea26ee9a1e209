//go:build tools

// Package programs names Helm, so that go.mod pins the exact version of every module that it needs.
package programs

import _ "helm.sh/helm/v3/cmd/helm"
