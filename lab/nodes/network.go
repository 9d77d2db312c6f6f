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
type network interface {
	// String says what it is made of.
	String() string
	// place is the namespace of node i; nil is that of this process.
	place(i int) *machine.Place
	// host is where node i listens.
	host(i int) (string, int)
	// dials tells node i what to dial for an address; empty: the address itself.
	dials(i int) map[string]string
	// endpoints are where node i reaches the store's addresses, in their order.
	endpoints(i int) []string
	// link does something to what node i sends to node j; a stall is that it is lost, or waits.
	link(i, j int, s machine.Shape) error
	// store does it to what node i sends to the store, and to what that replies.
	store(i int, requests, replies machine.Shape) error
	// shapes reports whether there are other shapes than a stall.
	shapes() bool
	close()
}

// newNetwork makes namespaces if that is permitted, else proxies.
func newNetwork(servers []string, n int, proxied bool) network {
	var why error
	if !proxied {
		s := &namespaces{}
		if why = scene.Try(func() { s.open(servers, n) }); why == nil {
			return s
		}
		s.close()
	}
	p := newProxies(servers, n)
	p.why = why
	return p
}

// namespaces: every node has a network namespace of its own, with one cable to a
// bridge in the hub, a namespace too. A link is cut by the address that the
// sender's neighbour table has for the receiver: what is sent then reaches nobody,
// as if it were lost on the way.
type namespaces struct {
	hub    *machine.Place
	places []*machine.Place
	ports  []*faultlink.Proxy // to the store, in the hub
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

func (s *namespaces) open(servers []string, n int) {
	scene.Must(exec.LookPath("nsenter"))
	s.hub = scene.Must(machine.NewPlace())
	scene.Check(s.hub.IP("link set lo up", "link add hub type bridge", "link set hub address "+hubMAC,
		"addr add "+subnet+"1/24 dev hub", "link set hub up"))
	for i := range n {
		s.addNode(i, n)
	}
	for k, server := range servers {
		var ln net.Listener
		scene.Check(s.hub.Do(func() (err error) {
			ln, err = net.Listen("tcp", fmt.Sprintf("%s1:%d", subnet, storePort+k))
			return err
		}))
		link := faultlink.New() // without faults
		s.ports = append(s.ports, faultlink.On(ln, func(net.Conn) *faultlink.Link { return link }, machine.DialTo(server)))
	}
}

// addNode makes the namespace of node i of n, and its cable.
func (s *namespaces) addNode(i, n int) {
	p := scene.Must(machine.NewPlace())
	s.places = append(s.places, p)
	scene.Check(s.hub.IP(fmt.Sprintf("link add node%d type veth peer name eth0 netns %s", i, p.Path),
		fmt.Sprintf("link set node%d master hub", i), fmt.Sprintf("link set node%d up", i),
		fmt.Sprintf("neigh replace %s lladdr %s dev hub nud permanent", nodeIP(i), nodeMAC(i))))
	setUp := []string{"link set lo up", "link set eth0 address " + nodeMAC(i), "addr add " + nodeIP(i) + "/24 dev eth0", "link set eth0 up",
		"neigh replace " + subnet + "1 lladdr " + hubMAC + " dev eth0 nud permanent"}
	for j := range n {
		if j != i {
			setUp = append(setUp, "neigh replace "+nodeIP(j)+" lladdr "+nodeMAC(j)+" dev eth0 nud permanent")
		}
	}
	scene.Check(p.IP(setUp...))
}

func (s *namespaces) String() string { return "network namespaces, a bridge between them" }

func (s *namespaces) place(i int) *machine.Place { return s.places[i] }

func (s *namespaces) host(i int) (string, int) { return nodeIP(i), nodePort }

func (s *namespaces) dials(int) map[string]string { return nil }

func (s *namespaces) endpoints(int) (all []string) {
	for _, p := range s.ports {
		all = append(all, p.Addr())
	}
	return all
}

// pick is the address of who gets what is sent.
func pick(s machine.Shape, mac string) (string, error) {
	switch s {
	case machine.Shape{}:
		return mac, nil
	case machine.Shape{Stall: true}:
		return nobodysMAC, nil
	}
	return "", errors.New("namespaces on a bridge have no such link")
}

func (s *namespaces) link(i, j int, shape machine.Shape) error {
	mac, err := pick(shape, nodeMAC(j))
	if err != nil {
		return err
	}
	return s.places[i].IP("neigh replace " + nodeIP(j) + " lladdr " + mac + " dev eth0 nud permanent")
}

// shapes: a kernel without netem can't, and whether it has it shows only when it is
// too late.
func (s *namespaces) shapes() bool { return false }

func (s *namespaces) store(i int, requests, replies machine.Shape) error {
	there, err1 := pick(requests, hubMAC)
	back, err2 := pick(replies, nodeMAC(i))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return errors.Join(s.places[i].IP("neigh replace "+subnet+"1 lladdr "+there+" dev eth0 nud permanent"),
		s.hub.IP("neigh replace "+nodeIP(i)+" lladdr "+back+" dev hub nud permanent"))
}

func (s *namespaces) close() {
	for _, p := range s.ports {
		p.Close()
	}
	for _, p := range s.places {
		p.End()
	}
	if s.hub != nil {
		s.hub.End()
	}
}
