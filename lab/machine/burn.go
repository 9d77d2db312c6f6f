//go:build linux

package machine

import (
	"errors"
	"os"
	"os/exec"

	"github.com/holdfast-go/holdfast/internal/child"
)

// burnEnv makes Burn burn.
const burnEnv = "HOLDFAST_CLUSTER_BURN"

// Burn uses a processor until it is killed, if this process was started for that.
func Burn() {
	for os.Getenv(burnEnv) != "" {
	}
}

// Burners starts n processes of this program, which must call Burn first, and returns
// what ends them.
func Burners(n int) (end func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var all []*child.Process
	end = func() (err error) {
		for _, p := range all {
			err = errors.Join(err, p.Kill())
		}
		return err
	}
	for range n {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), burnEnv+"=1", "GOMAXPROCS=1")
		p, err := child.Start(cmd)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		all = append(all, p)
	}
	return end, nil
}
