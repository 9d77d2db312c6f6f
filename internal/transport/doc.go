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
// # States of a channel
//
//	         first mail                 link broke
//	unused ─────────────▶ up ──────────────────────────────▶ down
//	                      ▲  probes with back-off, while       │
//	                      │  anything waits for the peer       │
//	                      └────── answered on the new link ────┘
//
//	state  straight mail     kept mail                         probes
//	up     goes, in window   goes, in window                   behind 64 KiB or 1024 messages, behind frames, after 50 ms; unanswered: 1 s, doubling to 8 s
//	down   no room           no room; what was not taken waits 100 ms, doubling to 2 s
//
//	event in down                          what becomes of the frames that were not taken
//	answered by the same life              those above the number it took are sent, in order
//	answered by another life               they return to their owners
//	no answer for a minute                 they return to their owners, and remote makes the link anew
//
// Frames of one link are numbered without gaps, and a receiver takes only the next one. So
// a frame that a link swallows holds back those behind it; the answer shows it, and the
// sender gives the link up. When the peer answers on a new link, it takes nothing of an
// earlier one any more: only then does the sender number anew, or give frames back. An
// answer of another life on a link that is up makes the sender give that link up first.
//
// Messages about mail (markers and their answers) take no room. In down they wait behind
// the frames.
//
// A link breaks where remote says so, and where the answers do: none came for 15 s, a frame
// vanished, another life answered. Who watches (Node.Watch) is told of each break before
// anything is sent over the next link.
//
// A first link needs no answer: nothing was sent before it that could be taken twice. A
// channel that was at rest for a minute may be forgotten. The next one to its address
// begins down, on a link above all that were forgotten, and takes no word for frames that
// it has not sent.
//
// # Structure
//
// sender and receiver are pure: they are told what happened and say what to send. A
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
