// Package traffic has a Service of Kubernetes lead to the pod that holds a lease.
//
//	service, err := traffic.New(clientset.DiscoveryV1(), traffic.Config{
//		Namespace: "app", Service: "app", Ports: ports, Address: podIP,
//	})
//	err = lease.Run(ctx, l, func(ctx context.Context, t lease.Term) error {
//		return service.Serve(ctx, t, serve)
//	})
//
// The Service has no selector. Its one EndpointSlice names the holder's pod, with the token of its
// term, and is written by resourceVersion:
//
//	acquired ── named, token 7 ──── work ──── ctx ends ── names none, token 7 ── released
//	                                                 a late write, token 6: refused, 7 is higher
//
// Readiness is not used: a rollout waits for new pods to be ready, and they would wait for the old
// one. Labels of pods are not, either: a pod whose container crashed keeps them, and they know no
// order.
//
// kube-proxy and others that read EndpointSlices learn of a change a moment later, connections that
// are open stay, and after a crash the slice names the dead pod until there is a holder again. So
// the holder checks its lease all the same. rbac.yaml has the permissions that are needed.
package traffic
