//go:build unix

package etcdtest

import (
	"context"
	_ "embed"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

// Version is the etcd that Binary builds.
const Version = "v3.7.3"

// The module that names the server and everything it is built from. Kept under
// names that the go command doesn't take for a module's: it is not a part of the
// one it stands in, and still has to travel with it.
var (
	//go:embed build/go.mod.txt
	buildMod []byte
	//go:embed build/go.sum.txt
	buildSum []byte
)

var server = newBuild()

func newBuild() *servertest.Build {
	return &servertest.Build{Kit: "etcdtest", Server: "etcd", Version: Version, Env: "HOLDFAST_ETCD_BIN",
		Says: "etcd Version: ", Mod: buildMod, Sum: buildSum,
		Command: []string{"go", "build"}, Package: "go.etcd.io/etcd/server/v3"}
}

// Binary returns the path of an etcd that runs: the one HOLDFAST_ETCD_BIN names,
// or Version, built on first use and kept in the user's cache directory. Any
// number of processes may call it at once: one builds, the others wait until it
// is done or their ctx is.
func Binary(ctx context.Context) (string, error) { return server.Binary(ctx) }
