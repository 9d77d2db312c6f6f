//go:build linux

package nodes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultlink"
	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
)

// network is how the nodes reach each other and the store, and what can be cut.
type network struct {
	about string // what it is made of
	seats []seat // of the nodes
	// link does something to what node i sends to node j; a stall is that it is lost, or waits.
	link func(i, j int, s machine.Shape)
	// store does it to what node i sends to the store, and to what that replies.
	store  func(i int, requests, replies machine.Shape)
	shapes bool           // there are other shapes than a stall
	links  *machine.Links // of proxies
	close  func()
}

// seat is where a node is.
type seat struct {
	place     *machine.Place // its namespace; nil: that of this process
	host      string         // where it listens
	port      int
	dials     map[string]string // what it dials for an address; empty: the address itself
	endpoints []string          // where it reaches the store's addresses, in their order
}

// wiring makes a network of n nodes and the store's servers.
type wiring func(servers []string, n int) *network

// newNetwork makes namespaces if that is permitted, else proxies.
func newNetwork(servers []string, n int) *network {
	w := &network{}
	why := scene.Try(func() { w.inNamespaces(servers, n) })
	if why != nil {
		w.close()
		w = newProxies(servers, n)
		w.about += ", as there is no bridge: " + why.Error()
	}
	return w
}

// newLoopback has nodes listen on the loopback device, with nothing between them: that links
// can't be cut is the scenario's mistake.
func newLoopback(servers []string, n int) *network {
	w := &network{about: "the loopback device", close: func() {}}
	for range n {
		at := seat{host: "127.0.0.1", port: machine.FreePort(), endpoints: servers}
		w.seats = append(w.seats, at)
	}
	return w
}

// newProxies has nodes reach each other and the store over TCP proxies of this process. What is
// sent over a cut link waits, as on a network that comes back.
func newProxies(servers []string, n int) *network {
	w, ports := newLoopback(servers, n), []int(nil)
	for _, s := range w.seats {
		ports = append(ports, s.port)
	}
	w.about, w.shapes, w.links = "TCP proxies", true, machine.NewLinks(ports)
	w.close = w.links.Close
	ways := make([][]*machine.Way, n)
	for i := range n {
		s := &w.seats[i]
		s.dials, s.endpoints = w.links.Dials(i), nil
		for _, server := range servers {
			way := w.links.NewWay(server)
			ways[i], s.endpoints = append(ways[i], way), append(s.endpoints, way.Address)
		}
	}
	w.link = func(i, j int, s machine.Shape) { w.links.Link(i, j).Set(s) }
	w.store = func(i int, requests, replies machine.Shape) {
		for _, way := range ways[i] {
			way.Requests.Set(requests)
			way.Replies.Set(replies)
		}
	}
	return w
}

const (
	subnet     = "10.77.0."
	hubMAC     = "02:77:00:00:00:01"
	nobodysMAC = "02:77:00:00:00:fe"
	nodePort   = 7000
	storePort  = 2379
)

func nodeIP(i int) string  { return fmt.Sprintf("%s%d", subnet, 10+i) }
func nodeMAC(i int) string { return fmt.Sprintf("02:77:00:00:01:%02x", i) }

// neighbour is the command by which the device of a namespace sends what is for an address: to no
// node while it is stalled. A kernel without netem has no other shape, and whether it has netem
// shows only when it is too late.
func neighbour(address, mac, device string, s machine.Shape) string {
	switch s {
	case machine.Shape{}:
	case machine.Shape{Stall: true}:
		mac = nobodysMAC
	default:
		scene.Check(errors.New("namespaces on a bridge have no such link"))
	}
	return "neigh replace " + address + " lladdr " + mac + " dev " + device + " nud permanent"
}

// inNamespaces gives every node a network namespace of its own, with one cable to a bridge in the
// hub, a namespace too. A link is cut by the address that the sender's neighbour table has for the
// receiver: what is sent then reaches no node, as if it were lost on the way.
func (w *network) inNamespaces(servers []string, n int) {
	var all []*machine.Place // the hub comes first
	var ports []*faultlink.Proxy
	w.close = func() {
		for _, p := range ports {
			p.Close()
		}
		for _, p := range all {
			p.End()
		}
	}
	newPlace := func() *machine.Place {
		p := scene.Must(machine.NewPlace())
		all = append(all, p)
		return p
	}
	w.about = "network namespaces, a bridge between them"
	scene.Must(exec.LookPath("nsenter"))
	hub := newPlace()
	scene.Check(hub.IP("link set lo up", "link add hub type bridge", "link set hub address "+hubMAC,
		"addr add "+subnet+"1/24 dev hub", "link set hub up"))
	var endpoints []string
	for k, server := range servers { // to the store, in the hub
		var ln net.Listener
		scene.Check(hub.Do(func() (err error) {
			ln, err = net.Listen("tcp", fmt.Sprintf("%s1:%d", subnet, storePort+k))
			return err
		}))
		link := faultlink.New() // without faults
		of := func(net.Conn) *faultlink.Link { return link }
		ports = append(ports, faultlink.On(ln, of, machine.DialTo(server)))
		endpoints = append(endpoints, ports[k].Addr())
	}
	for i := range n {
		p := newPlace()
		w.seats = append(w.seats, seat{place: p, host: nodeIP(i), port: nodePort, endpoints: endpoints})
		scene.Check(hub.IP(fmt.Sprintf("link add node%d type veth peer name eth0 netns %s", i, p.Path),
			fmt.Sprintf("link set node%d master hub", i), fmt.Sprintf("link set node%d up", i),
			neighbour(nodeIP(i), nodeMAC(i), "hub", machine.Shape{})))
		setUp := []string{"link set lo up", "link set eth0 address " + nodeMAC(i),
			"addr add " + nodeIP(i) + "/24 dev eth0", "link set eth0 up",
			neighbour(subnet+"1", hubMAC, "eth0", machine.Shape{})}
		for j := range n {
			if j != i {
				setUp = append(setUp, neighbour(nodeIP(j), nodeMAC(j), "eth0", machine.Shape{}))
			}
		}
		scene.Check(p.IP(setUp...))
	}
	w.link = func(i, j int, s machine.Shape) {
		scene.Check(w.seats[i].place.IP(neighbour(nodeIP(j), nodeMAC(j), "eth0", s)))
	}
	w.store = func(i int, requests, replies machine.Shape) {
		there := neighbour(subnet+"1", hubMAC, "eth0", requests)
		back := neighbour(nodeIP(i), nodeMAC(i), "hub", replies)
		scene.Check(errors.Join(w.seats[i].place.IP(there), hub.IP(back)))
	}
}

// nodeEnv makes this program one node of the cluster: settings as JSON. It obeys
// orders on its standard input, one line of JSON each, tells reports on its
// standard output, leaves in order on SIGTERM, and ends at once when its input does.
const nodeEnv = "HOLDFAST_LAB_NODE"

// logEnv, if it is set, has nodes write their logs to standard error.
const logEnv = "HOLDFAST_LAB_LOG"

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
	Names       names

	Hosts   int         // nodes from this index on host nothing; 0: all host
	Follows bool        // singletons follow the leader that the orders name; else their leases elect
	Leader  lease.Owner // at first, if they follow
	Buffer  int         // messages that wait for a singleton, or for a shard; 0: the default

	Idle      time.Duration // accounts without work for so long are stopped; 0: none
	MaxActive int           // accounts that run on a node; 0: no bound
	Remember  bool          // accounts are remembered, if the store can
	State     int           // bytes that each account hands over; 0: none
	Large     int           // bytes that the first account hands over; 0: State
	Size      int           // bytes of each letter, at least
	Writes    bool          // workers write to the fenced journal, now and then
	Ledger    bool          // workers write every job to it, and know by it which they did

	Former string `json:"-"` // a program: every other life of a node is one of that; empty: none is

	Broken bool   // its clock is slow and its writes have no condition: the oracle must find it
	Leaks  string // what each account that starts leaks: goroutines, heap, or both
}

func (s settings) id() string { return fmt.Sprintf("node-%d", s.Index) }

// names are all names and all that is asked, by number: first the singletons, then
// the shards and, as targets, the accounts.
type names struct {
	Singletons, Shards int
	Each               int // accounts of a shard
	Accounts           int // in place of Each: accounts in all, in whatever shard they are
}

func (n names) count() int { return n.Singletons + n.Shards }

func (n names) targets() int {
	if n.Accounts > 0 {
		return n.Singletons + n.Accounts
	}
	return n.Singletons + n.Shards*n.Each
}

// of is the name that a target runs under.
func (n names) of(target int) int {
	switch {
	case target < n.Singletons:
		return target
	case n.Accounts > 0:
		return n.Singletons + sharding.ShardOf(accountID(target-n.Singletons), n.Shards)
	}
	return n.Singletons + (target-n.Singletons)/n.Each
}

// first is the first target of a name. Where accounts are not made for their shards there is none.
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

func accountID(k int) string { return fmt.Sprintf("account-%d", k) }

// accounts are the ids of the accounts, in the order of targets.
func (n names) accounts() []string {
	if n.Accounts > 0 {
		ids := make([]string, n.Accounts)
		for k := range ids {
			ids[k] = accountID(k)
		}
		return ids
	}
	ids, has, missing := make([]string, n.Shards*n.Each), make([]int, n.Shards), n.Shards*n.Each
	for k := 0; missing > 0; k++ {
		id := accountID(k)
		if i := sharding.ShardOf(id, n.Shards); has[i] < n.Each {
			ids[i*n.Each+has[i]] = id
			has[i]++
			missing--
		}
	}
	return ids
}

// Each life of a node has so many senders: the first asks, the others tell, and of these the first
// ones from outside of any actor. Order is that of what one sender sends to one target.
const (
	maxNodes = 16
	senders  = 5
	plain    = 2
)

func senderOf(node, life, number int) uint32 { return uint32((life*maxNodes+node)*senders + number) }

// asks reports whether a sender waits for answers.
func asks(sender uint32) bool { return sender%senders == 0 }

// nodeOf is the node that a sender is on.
func nodeOf(sender uint32) int { return int(sender/senders) % maxNodes }

// order is what a node is to do. It reports when that is done.
type order struct {
	Number int
	Do     string
	Rate   float64       // load: messages a second, without an answer
	Asks   float64       // load: asks a second
	Count  int           // load and burst: messages in all; load: 0 is no bound
	Within time.Duration // load: asks are by Ask, each from a goroutine of its own, with so long for an answer; 0: by an actor
	Leader lease.Owner   // lead
}

// What is ordered.
const (
	doSweep   = "sweep"   // asks every name until it answers, each time with Within for an answer
	doWake    = "wake"    // likewise every target
	doLoad    = "load"    // begins to send and to ask
	doQuiet   = "quiet"   // sends no more, and waits for answers
	doLead    = "lead"    // Leader leads from now on
	doHold    = "hold"    // the next letter blocks its worker
	doRelease = "release" // it goes on
	doBook    = "book"    // Count clients send a job each Within
	doBurst   = "burst"   // sends Count letters to the first target at once
	doStop    = "stop"    // hosts no more, by Stop; a worker that is held goes on once its mail is turned away
	doDrain   = "drain"   // moves all shards off this node
	doUndrain = "undrain" // takes part again
	doSee     = "see"     // reads from the store
	doHealth  = "health"  // tells what Health says
	doAccept  = "accept"  // accepts that the store's history went back
	doCut     = "cut"     // calls of the store hang, as on a disk that does not answer to this node, until
	doMend    = "mend"    // they get there again
	doWeigh   = "weigh"   // tells what it needs
)

// said is what a node reports.
type said struct {
	What   string // isUp, hasHeap, or what was ordered
	Number int    // of the order
	At     time.Duration
	Took   time.Duration
	Owner  lease.Owner // isUp
	Weight *weight     // isUp: before anything was hosted; doWeigh
	Heap   uint64      // hasHeap: what is allocated, and
	RSS    uint64      // what is resident
	Err    string      // how it failed

	Setback bool // doHealth: the Keeper's, and of the singletons, is lease.ErrSetback
	Lines   int  // doHealth: of errors in the Keeper's log
}

const (
	isUp    = "up"
	hasHeap = "heap"
)

// weight is what a node needs, and what went wrong on it.
type weight struct {
	Heap, RSS       uint64 // bytes
	Goroutines      int
	CPU             time.Duration    // used so far
	Hosted          int              // names that run here
	Entries, Active int              // accounts that are kept track of, and that run
	Passivated      int64            // accounts, so far
	Files, Sessions int              // that are open
	Counted         map[string]int64 // what the product says that it gave up
}

// letter is number Seq of its sender to its target; 0: of a sweep. If it was asked, a receipt
// answers it.
type (
	letter struct {
		Sender uint32
		Target uint16
		Seq    uint64
		Sent   int64
		Amount int64  // of a job
		Fill   uint32 // bytes that it has besides
	}
	receipt struct {
		Target uint16
		Seq    uint64
		Token  uint64
	}
)

var letterSize, receiptSize = binary.Size(letter{}), binary.Size(receipt{})

func register() {
	scene.Check(remoting.Register[letter]("lab.letter", remoting.WithCodec(codec("lab.letters"))))
	scene.Check(remoting.Register[receipt]("lab.receipt", remoting.WithCodec(codec("lab.receipts"))))
}

// codec is that of letters and receipts.
type codec string

func (c codec) Name() string { return string(c) }

func (codec) Marshal(v any) ([]byte, error) {
	if l, ok := v.(*letter); ok {
		b, err := binary.Append(make([]byte, 0, letterSize+int(l.Fill)), binary.LittleEndian, l)
		return b[:cap(b)], err
	}
	return binary.Append(make([]byte, 0, receiptSize), binary.LittleEndian, v)
}

func (codec) Unmarshal(b []byte, v any) error {
	_, err := binary.Decode(b, binary.LittleEndian, v)
	return err
}
