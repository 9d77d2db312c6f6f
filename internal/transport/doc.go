// Package transport carries mail between two nodes: in order, within a window, and kept
// mail exactly once while both nodes live.
//
//	peer := transport.Of(system).To(address)      // one channel, for all names of the node
//	peer.Send(pid, msg, size, &lost)              // straight
//	ok := peer.Keep(owner, item, id, frame, limit) // kept
//	peer.Flush()                                  // when no lock is held
//
// Two kinds of mail share a channel and its order:
//
//   - Straight mail is sent once. If its link breaks it may be lost; then it is counted.
//   - Kept mail travels in numbered frames. The sender keeps a frame until the peer has
//     taken custody of it. On a new link the peer first says the highest number it took,
//     and the sender goes on from there. So one life of a peer takes no frame twice.
//
// The window bounds the mail under way to one peer, in messages and in bytes. A probe goes
// behind every 64 KiB or 1024 messages. The answer proves that the peer read everything
// before the probe, and frees its room. So remote's unbounded queue never holds more than
// the window, even if a peer does not read.
//
//	sender                                       receiver
//	  Probe{link 7}  ────────────────────────▶   opens link 7
//	  ◀──────────────────  Ack{link 7, taken 41}
//	  Frame{42}, straight mail, Frame{43} ───▶   delivers each to its actor
//	  Probe{link 7}  ────────────────────────▶
//	  ◀──────────────────  Ack{link 7, taken 43}  42 and 43 are the peer's from here on
//
// A receiver takes only the next frame of the present link. A link breaks when remote says
// so, when no answer came for 15 s, when a frame vanished, and when another life of the peer
// answered. Watchers (Node.Watch) hear of each break before the next link carries anything.
// The states of a channel, and what becomes of frames, are listed above type sender.
//
// sender and receiver are pure: the caller reports events, and they return messages to send.
// A Peer is a sender with its lock, timer and queue; a Node has the peers and receivers of
// one actor system. Owners queue mail under their own locks and call Flush outside of them:
// the package sends, dead-letters and calls Owners under no lock. If a sender middleware
// or a subscriber of dead letters panics, the message may not have been sent: straight mail
// is counted, and the channel goes on with the next.
package transport
