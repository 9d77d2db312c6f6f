//go:build unix

package kubetest

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

// Version is the kube-apiserver that Binary builds.
const Version = "v1.36.3"

// The modules that name the server, and etcdutl of the version of etcdtest's etcd, with everything they
// are built from. The first one's replace directives stand for those of k8s.io/kubernetes, which lead to
// folders that its module does not have.
var (
	//go:embed build/go.mod.txt
	buildMod []byte
	//go:embed build/go.sum.txt
	buildSum []byte
	//go:embed build/etcdutl.mod.txt
	etcdutlMod []byte
	//go:embed build/etcdutl.sum.txt
	etcdutlSum []byte
)

const set = " -X k8s.io/component-base/version."

var server = servertest.Build{
	Kit: "kubetest", Server: "kube-apiserver", Version: Version, Env: "HOLDFAST_APISERVER_BIN", Says: "Kubernetes ",
	Mod: buildMod, Sum: buildSum, Package: "k8s.io/kubernetes/cmd/kube-apiserver",
	Command: []string{"nice", "-n", "19", "go", "build", "-p=1",
		"-ldflags=-s -w" + set + "gitVersion=" + Version + set + "gitMajor=1" + set + "gitMinor=36"},
}

// Binary returns the path of a kube-apiserver that runs: the one HOLDFAST_APISERVER_BIN names, or
// Version, built on first use and kept in the user's cache directory. Any number of processes may call
// it at once: one builds, the others wait until it is done or their ctx is.
func Binary(ctx context.Context) (string, error) { return server.Binary(ctx) }

// Etcdutl runs etcdutl, which works on the files of etcds that are down. It is built on first use, in half
// a minute, and the go command keeps it. An error has what it printed.
func Etcdutl(ctx context.Context, args ...string) error {
	command := append([]string{"go", "run", "go.etcd.io/etcd/etcdutl/v3"}, args...)
	if err := servertest.RunGo(ctx, etcdutlMod, etcdutlSum, command...); err != nil {
		return fmt.Errorf("kubetest: etcdutl: %w", err)
	}
	return nil
}
