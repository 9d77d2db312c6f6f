package remoting

// Stats counts what was kept from doing harm since Start.
type Stats struct {
	UnknownType  uint64 // messages that came in with a type this process lacks, or as JSON
	Undecodable  uint64 // messages that came in and were no value of their type
	Misaddressed uint64 // messages that came in for another address than Node.Address, or for remote's own links
	Malformed    uint64 // streams and calls ended by input that made the handler panic or fail
	Unsendable   uint64 // messages going out that were no Protocol Buffers messages, failed to become one, had headers or PIDs that are not UTF-8, or went to what can be no address
	TooLarge     uint64 // messages going out over WithMaxMessageSize
	Forged       uint64 // peers that may not be who they said, and messages that came in: in the name of another node, to stop an actor, or for an actor that is its own node's
	Closed       uint64 // messages going out after Shutdown began
}

// count adds one to a counter of n.stats.
func (n *Node) count(c *uint64) {
	n.counting.Lock()
	defer n.counting.Unlock()
	*c++
}

// fault counts what went wrong, and logs it.
func (n *Node) fault(c *uint64, msg string, args ...any) {
	n.count(c)
	n.warn(msg, args...)
}
