// Package kubetest runs real kube-apiservers as processes, for tests, on the etcd of package etcdtest,
// and breaks them on purpose.
//
//	func TestSurvivesAStoppedServer(t *testing.T) {
//		c := kubetest.Start(t, kubetest.WithServers(2))
//		config := c.Servers()[0].Config()
//		...
//		err := c.Servers()[0].Stop(t.Context())
//	}
//
// There are the API and its store: no controllers, no nodes, no garbage collection. Authorization is
// RBAC, priority and fairness is on, and users have static tokens.
//
//	clients ──TCP──▶ Route ──Link──▶ kube-apiserver ──TCP──▶ etcdtest.Route ──Link──▶ etcd
//
// kube-apiserver is built from source on first use, through the Go module proxy, from an embedded module
// of its own, and kept in the user's cache directory. Building takes some 5 minutes of processor time at
// the lowest priority, and needs the go command. HOLDFAST_APISERVER_BIN names a binary to run instead.
// With HOLDFAST_SKIP_K8S=1 Start skips the test, and says so on standard error.
//
//   - Server: Kill, Stop and Cont, Restart. Etcd is its own way to etcd, to cut it off from that.
//   - Route: Cut, CutReplies, Refuse, Delay, Heal. NewRoute gives one client its own way to a server.
//   - Cluster: Etcd, AddNamespace, AddUser. Etcdutl restores what etcd keeps from a snapshot.
//
// The processes end with the test and, on Linux, also when the test process is killed. The package
// needs a Unix system. Everything is safe for concurrent use.
package kubetest
