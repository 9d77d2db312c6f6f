//go:build linux

package soak

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
)

// mailEnv makes this program one node of a check of mail: mailSettings as JSON. It
// obeys mailOrders, and ends at once when its input does.
const mailEnv = "HOLDFAST_SOAK_MAIL"

// mailSettings are what a node is started with.
type mailSettings struct {
	Index    int // from 0
	Nodes    int
	Hosts    int // nodes from this index on host nothing
	Endpoint string
	Journal  string // path of the file
	Host     string
	Port     int
	Dials    map[string]string // what to dial for an address, if not that
	TTL      time.Duration

	Singleton bool // else a sharded type
	Follows   bool // the leader that the orders name; else the lease elects

	Shards, Each int // entities of each shard
	Buffer       int // of each shard and in all, or of the singleton; 0: the default
	Size         int // bytes of each message, at least
	State        int // bytes that each entity hands over; 0: none
	Large        int // bytes that the first entity hands over; 0: State
}

func (s mailSettings) id() string { return fmt.Sprintf("node-%d", s.Index) }

// targets is how many receivers there are.
func (s mailSettings) targets() int {
	if s.Singleton {
		return 1
	}
	return s.Shards * s.Each
}

// mailOrder is what a node is to do.
type mailOrder struct {
	Do     string
	Rate   float64     // load: messages a second, of this node
	Asks   float64     // load: asks a second, of this node
	Count  int         // burst, and load if it is not 0: messages in all
	Leader lease.Owner // lead, and host at first
}

// What is ordered, and reported when it is done.
const (
	mailUp        = "up"        // reported only
	mailHost      = "host"      // takes part
	mailSweep     = "sweep"     // asks every receiver until it has answered
	mailLoad      = "load"      // begins to send
	mailQuiet     = "quiet"     // sends no more; tells what was sent
	mailHold      = "hold"      // the next message blocks its handler
	mailBurst     = "burst"     // sends Count messages to the first receiver at once
	mailStop      = "stop"      // hosts no more, by Stop; the handler goes on once its mail is turned away
	mailDrain     = "drain"     // moves all shards off this node
	mailUndrain   = "undrain"   // reported at once
	mailLead      = "lead"      // Leader leads from now on; reported at once
	mailCount     = "count"     // tells what the product counted
	mailHeap      = "heap"      // reported only: what is allocated
	mailHandedOff = "handedoff" // reported only: a shard, or the singleton, is another node's now
	mailHosted    = "hosted"    // reported only: the singleton runs here
)

// mailSaid is what a node reports.
type mailSaid struct {
	What    string
	At      time.Duration // by the machine's clock
	Took    time.Duration
	Owner   lease.Owner       // up
	Sent    map[uint32]uint64 // quiet, burst: the last number of each sender
	Heap    uint64            // heap
	Counted map[string]int64  // count
	Err     string            // stop, drain: how it failed
}

// letter is the message: number Seq of its sender to one receiver.
type letter struct {
	Sender uint32
	Seq    uint64
	Sent   int64
	Fill   int // bytes that it has besides
}

// Senders are numbered so that each has one receiver. An ask has a sender of its own:
// asks that are under way together have no order.
const (
	tellersPerNode = 2
	firstAsk       = 1 << 28 // the number of the first sender that asks
	asksPerNode    = 1 << 22
)

func (s mailSettings) teller(number, target int) uint32 {
	return uint32((s.Index*tellersPerNode+number)*s.targets() + target)
}

// registerLetters makes the messages known.
func registerLetters() error {
	if err := remoting.Register[letter]("soak.letter", remoting.WithCodec(letterCodec{})); err != nil {
		return err
	}
	return registerReceipt()
}

// letterCodec writes the three numbers, and fills up.
type letterCodec struct{}

const letterHead = 20

func (letterCodec) Name() string { return "soak.letters" }

func (letterCodec) Marshal(v any) ([]byte, error) {
	p := v.(*letter)
	b := make([]byte, letterHead+p.Fill)
	binary.LittleEndian.PutUint32(b, p.Sender)
	binary.LittleEndian.PutUint64(b[4:], p.Seq)
	binary.LittleEndian.PutUint64(b[12:], uint64(p.Sent))
	return b, nil
}

func (letterCodec) Unmarshal(data []byte, v any) error {
	if len(data) < letterHead {
		return fmt.Errorf("%d bytes, must be %d at least", len(data), letterHead)
	}
	*v.(*letter) = letter{Sender: binary.LittleEndian.Uint32(data), Seq: binary.LittleEndian.Uint64(data[4:]),
		Sent: int64(binary.LittleEndian.Uint64(data[12:])), Fill: len(data) - letterHead}
	return nil
}

// What is noted about mail besides.
const (
	askFailed  entryKind = iota + 32 // an ask had no answer in time
	wentCold                         // a ColdStart event told of entity number seq
	startsWarm                       // entity number seq was given its state
	startsCold                       // entity number seq was started without one
	manyCold                         // a ColdStart event told of seq entities, which it does not name
)

// givesUp are the names of counters that say that a message was given up.
var givesUp = regexp.MustCompile(`(?i)dropped|undeliverable|lost|expired|refused`)

// counters are the numbers in a struct of the product whose names say that messages
// were given up, whatever it calls them.
func counters(prefix string, of any, into map[string]int64) {
	text, err := json.Marshal(of)
	if err != nil {
		return
	}
	var all map[string]any
	if json.Unmarshal(text, &all) != nil {
		return
	}
	for name, v := range all {
		if n, ok := v.(float64); ok && givesUp.MatchString(name) {
			into[prefix+name] += int64(n)
		}
	}
}

// add sums what nodes counted.
func add(into, from map[string]int64) {
	for k, n := range from {
		into[k] += n
	}
}
