//go:build linux

package torture

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
)

// nodeEnv makes this program one node of the cluster: settings as JSON. It obeys
// orders on its standard input, one line of JSON each, tells reports on its
// standard output, leaves in order on SIGTERM, and ends at once when its input does.
const nodeEnv = "HOLDFAST_TORTURE_NODE"

// settings are what a node is started with.
type settings struct {
	Index, Life int
	Journal     string // path of the file
	Host        string
	Port        int
	Store       string            // the name of its kind
	URL         string            // for Store.Open
	Dials       map[string]string // what to dial for an address, if not that
	TTL         time.Duration
	Rate        float64 // asks a second
	Names       names
	Verbose     bool
	Broken      bool // its clock is slow and its writes have no condition: the oracle must find it
}

func (s settings) id() string { return fmt.Sprintf("node-%d", s.Index) }

// names are all names and all that is asked, by number: first the singletons, then
// the shards and, as targets, the accounts.
type names struct {
	Singletons, Shards int
	Each               int // accounts of a shard
}

func (n names) count() int   { return n.Singletons + n.Shards }
func (n names) targets() int { return n.Singletons + n.Shards*n.Each }

// of is the name that a target runs under.
func (n names) of(target int) int {
	if target < n.Singletons {
		return target
	}
	return n.Singletons + (target-n.Singletons)/n.Each
}

// first is the first target of a name.
func (n names) first(name int) int {
	if name < n.Singletons {
		return name
	}
	return n.Singletons + (name-n.Singletons)*n.Each
}

// text is how people call it.
func (n names) text(name int) string {
	if name < n.Singletons {
		return fmt.Sprintf("singleton-%d", name)
	}
	return fmt.Sprintf("shard-%d", name-n.Singletons)
}

// accounts are the ids of the accounts, in the order of targets.
func (n names) accounts() []string {
	ids, has, missing := make([]string, n.Shards*n.Each), make([]int, n.Shards), n.Shards*n.Each
	for k := 0; missing > 0; k++ {
		id := fmt.Sprintf("account-%d", k)
		if i := sharding.ShardOf(id, n.Shards); has[i] < n.Each {
			ids[i*n.Each+has[i]] = id
			has[i]++
			missing--
		}
	}
	return ids
}

const maxNodes = 16

// senderOf is the number of the asker of a node's life.
func senderOf(node, life int) uint32 { return uint32(life*maxNodes + node) }

// order is what a node is to do: ask every name until it answers, and say so.
type order struct {
	Sweep int // its number, from 1
}

// said is what a node reports.
type said struct {
	What  string // isUp, hasSwept
	At    time.Duration
	Sweep int
}

const (
	isUp     = "up"
	hasSwept = "swept"
)

// ask is number Seq of its sender to its target; 0: of a sweep. It is answered with
// an answer.
type (
	ask struct {
		Sender uint32
		Target uint16
		Seq    uint64
		Sent   int64
	}
	answer struct {
		Target uint16
		Seq    uint64
		Token  uint64
	}
)

func register() error {
	if err := remoting.Register[ask]("torture.ask"); err != nil {
		return err
	}
	return remoting.Register[answer]("torture.answer")
}
