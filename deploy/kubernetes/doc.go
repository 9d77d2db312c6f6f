// Package kubernetes tests the manifests that deploy a program of this library: a kustomize base, and a
// Helm chart that says the same. It exports nothing. docs/deploying-on-kubernetes.md is about them.
package kubernetes
