// Package kubernetes keeps leases in Kubernetes, as objects of coordination.k8s.io/v1 in one namespace.
//
//	config, err := rest.InClusterConfig()
//	store, err := kubernetes.New(config, "app")
//	keeper, err := lease.NewKeeper(store, lease.Config{ID: "node-1", TTL: 15 * time.Second})
//
// There is a Lease for each session, so for each process, which is all that is renewed, by one PUT
// however many names are held, and a Lease for each name, which is written when the name changes hands:
//
//	$ kubectl get leases -l holdfast-go.github.io/kind
//	NAME                                        HOLDER   AGE
//	hf-sessions-4711-4nzhvbxqxivw3v2pyk7b       node-1   2h
//	hf-singleton-billing-tcgp3ycm2xxvzckpvhbz   node-1   2h
//
// Package observed says how sessions expire: no time of day of two machines is compared. A token is the
// resourceVersion of the write that won the name. docs/kubernetes.md has what this can't promise, the
// permissions that are needed, and what to do when something is wrong.
package kubernetes
