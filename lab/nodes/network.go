//go:build linux

package nodes

import (
	"errors"
	"fmt"
	"net"
	"os/exec"

	"github.com/holdfast-go/holdfast/internal/faultlink"
	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
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
