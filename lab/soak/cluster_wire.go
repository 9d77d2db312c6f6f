//go:build linux

package soak

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
)

// clusterEnv makes this program one node of a cluster: settings as JSON. It
// obeys orders on its standard input, one line of JSON each, tells reports on
// its standard output, and ends at once when its input does.
const clusterEnv = "HOLDFAST_SOAK_NODE"

// logEnv, if it is set, has nodes write their logs to standard error.
const logEnv = "HOLDFAST_SOAK_LOG"

// settings are what a node is started with.
type settings struct {
	Index    int // from 0
	Endpoint string
	Journal  string // path of the file
	Port     int    // 0: any
	TTL      time.Duration
	Names    int  // singletons
	Follows  bool // the leader that the orders name; else the leases elect
	Buffer   int  // of each manager; 0: the default

	Leader lease.Owner   // at first, of one that follows; zero: nobody
	Weigh  time.Duration // tells what it needs so often; 0: when it is ordered to
	Seed   uint64        // of what is asked of whom; 0: none

	Shard *shardSettings // nil: it hosts singletons only
}

func (s settings) id() string { return fmt.Sprintf("node-%d", s.Index) }

// order is what a node is to do.
type order struct {
	Do     string
	Leader lease.Owner // lead
	Rate   float64     // load: messages a second, of this node
	Every  time.Duration
	Within time.Duration // ask: each one's deadline
}

// What is ordered.
const (
	doHost  = "host"  // starts the singletons; told hosting when all managers run
	doLead  = "lead"  // Leader leads from now on
	doLoad  = "load"  // senders begin
	doQuiet = "quiet" // senders end; told quiet with what they sent
	doAsk   = "ask"   // asks the first singleton every so often; told each new token
	doSweep = "sweep" // asks every singleton until it answered; told swept
	doWeigh = "weigh" // told weighed
)

// said is what a node reports.
type said struct {
	What   string
	At     time.Duration     // by the machine's clock
	Owner  lease.Owner       // up
	Token  uint64            // hosts, answer
	Sent   map[uint32]uint64 // quiet: the last number of each sender
	Failed int               // quiet: messages that came back to their sender
	Weight weight
}

// What is reported.
const (
	isUp      = "up"
	isHosting = "hosting"
	hosts     = "hosts" // the first singleton was started here
	isQuiet   = "quiet"
	hasAnswer = "answer" // the first under a token
	hasSwept  = "swept"
	hasWeight = "weighed"
)

// weight is what a node needs, and what went wrong on it.
type weight struct {
	Heap, RSS              uint64 // bytes
	Goroutines             int
	CPU                    time.Duration // used so far
	Hosted                 int           // singletons that run here
	Dropped, Undeliverable int           // of all managers
	DeadLetters            int64

	Entries, Active       int // entities that are kept track of, and that run
	Files, Sessions       int // that are open
	Passivated, HandedOff int64
}

// parcel is the message of the load: number Seq of its sender.
type parcel struct {
	Sender uint32
	Seq    uint64
	Sent   int64
}

// ask is answered with an answer, under the singleton's token.
type (
	ask    struct{ Sent int64 }
	answer struct{ Token uint64 }
)

// register makes the messages known.
func register() error {
	if err := remoting.Register[parcel]("soak.parcel", remoting.WithCodec(parcelCodec{})); err != nil {
		return err
	}
	if err := remoting.Register[ask]("soak.ask"); err != nil {
		return err
	}
	return remoting.Register[answer]("soak.answer")
}

// parcelCodec writes the three numbers.
type parcelCodec struct{}

func (parcelCodec) Name() string { return "soak.numbers" }

func (parcelCodec) Marshal(v any) ([]byte, error) {
	p := v.(*parcel)
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 20), p.Sender)
	b = binary.LittleEndian.AppendUint64(b, p.Seq)
	return binary.LittleEndian.AppendUint64(b, uint64(p.Sent)), nil
}

func (parcelCodec) Unmarshal(data []byte, v any) error {
	if len(data) != 20 {
		return fmt.Errorf("%d bytes, must be 20", len(data))
	}
	*v.(*parcel) = parcel{Sender: binary.LittleEndian.Uint32(data), Seq: binary.LittleEndian.Uint64(data[4:]),
		Sent: int64(binary.LittleEndian.Uint64(data[12:]))}
	return nil
}
