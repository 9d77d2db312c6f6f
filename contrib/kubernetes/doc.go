// Package kubernetes is empty. Below it is what a pod does with a lease, by its package:
//
//	controllers   controllers of controller-runtime run under it
//	traffic       a Service leads to its holder
//	deletioncost  a ReplicaSet that shrinks deletes pods that hold little first
//
// Leases may be in any store. Tests here run all three against a kube-apiserver.
package kubernetes
