// Package membership says who the members of a group of nodes are, and which of them leads. Both rest
// on leases: there is no gossip and no heartbeat between nodes.
//
//	group, err := membership.Join(ctx, keeper, "shop", membership.WithRoles("worker"))
//	group.Follow(func(c membership.MembersChanged) { … c.Joined, c.Left, c.Leaving … })
//	election, err := group.Leadership()
//	election.Follow(func(c membership.LeaderChanged) { … c.Leader, c.IsSelf … })
//	err = group.Leave(ctx)
//
// A node lists itself only while the term of its member lease is alive, and leads only while that of
// the leader's lease is. So no two nodes lead at once, and a node that is cut off knows it before the
// others see it gone. A member whose record has gone has left; a node that died is listed for a TTL.
// Of two incarnations of one ID the one with the newer token counts. Leaving is announced before it
// happens. A leader stays until it leaves, dies, or loses its lease or its membership. A follower gets
// each change in order; one that is behind gets the newest only, with how many it missed.
//
// Two nodes may see different members for a moment. The right to run something is always a lease of
// its own, and what a leader writes is fenced by its term's token (Election.Term).
//
//	  Join                                  AnnounceLeaving, Leave         Leave
//	    │                                              │                     │
//	    ▼        member lease won                      ▼                     ▼
//	┌─────────┐ ──────────────────▶ ┌────────┐ ───────────────▶ ┌─────────┐ ───▶ ┌──────┐
//	│ joining │                     │ member │                  │ leaving │      │ left │
//	└─────────┘ ◀────────────────── └────────┘                  └─────────┘ ───▶ └──────┘
//	             lost: OnLost, Lost  stands for                           lost
//	                                 leadership
//
// A lost membership is joined again, as a new term of the same lease, after pauses of 0.1 to 5 s.
//
//	member/<group>/<id>/<incarnation>    format, roles, capacity, labels in its metadata
//	leaving/<group>/<id>/<incarnation>   the token of the membership that ends
//	leader/<group>                       its holder leads
//	candidate/<group>/<name>/<id>/<incarnation>   would run what is run under the lease <name>
//
// Tokens of different names are compared to tell two incarnations apart. That is exact for stores that
// number all their writes with one counter; with others the wrong one of two may be listed until the
// older record ends. Static is a source of leadership that is set by hand.
package membership
