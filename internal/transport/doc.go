// Package transport carries mail between two nodes: in order, within a window, and
// what must not be lost exactly once while both nodes live.
//
// One channel leads to each peer, for all names of the node. Two kinds of mail share
// it, and its order:
//
//   - Straight mail is sent once and forgotten. If its link breaks it may be lost;
//     then it is counted.
//   - Kept mail travels in numbered frames. The sender keeps a frame until the peer
//     has taken custody of it; on a new link the peer first says the highest number
//     it took, and the sender goes on from there. So on one link nothing is sent
//     twice, and nothing is taken twice by one life of a peer.
//
// The window bounds what is on its way to one peer, in messages and in bytes. A probe
// goes behind every 64 KiB or 1024 messages; the answer proves that everything before the
// probe was read, and gives its room back. So nothing waits in remote's unbounded
// queue beyond the window, also to a peer that does not read.
//
//	sender                                       receiver
//	  Probe{link 7}  ────────────────────────▶   opens link 7
//	  ◀──────────────────  Ack{link 7, taken 41}
//	  Frame{42}, straight mail, Frame{43} ───▶   delivers each to its actor
//	  Probe{link 7}  ────────────────────────▶
//	  ◀──────────────────  Ack{link 7, taken 43}  42 and 43 are the peer's from here on
//
// # Structure
//
// sender and receiver are pure: they hear what happened and say what to send. A
// peer is a sender with its lock, its timer and its queue of what is to go out; a Node
// has the peers and the receivers of one actor system. Owners (routers, hand-overs) queue
// mail while they hold their own locks, and call Flush when they do not: nothing is
// sent, dead-lettered or told under a lock. What an answer lets go is not sent on the goroutine
// that reads it, either.
//
// A sender middleware runs within a send, and so do subscribers of dead letters. If one panics, the
// message may not have been sent: straight mail is counted, and the channel goes on with what is
// behind it.
package transport
