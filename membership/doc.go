// Package membership tells the members of a group of nodes, and its leader. Both
// rest on leases and on nothing else: there is no gossip and no heartbeat between
// nodes.
//
//	group, err := membership.Join(ctx, keeper, "shop", membership.WithRoles("worker"))
//	group.Follow(func(c membership.MembersChanged) { … c.Joined, c.Left, c.Leaving … })
//	election, err := group.Leadership()
//	election.Follow(func(c membership.LeaderChanged) { … c.Leader, c.IsSelf … })
//	err = group.Leave(ctx)
//
// # What it promises
//
//   - A node lists itself only while the term of its own member lease is alive,
//     and says that it leads only while that of the leader's is, by its own clock
//     and at the moment of the call. So no two nodes lead at once, and a node that
//     is cut off, or was stopped, knows it before the others see it gone.
//   - A member whose record has gone has left, be it that it left, died, or lost
//     its lease. It is listed until then: a node that died, for a TTL.
//   - A restarted node is another incarnation and joins at once. Of two
//     incarnations of one ID the one with the newer token counts, everywhere; the
//     other is not listed, not even by itself, and does not lead.
//   - Leaving is announced before it happens, and is not taken back.
//   - Followers are told each change once and in order. One that is behind is told
//     the newest only, with how many it missed; none holds up the source or another.
//   - A leader stays until it leaves, dies, or loses its lease or its membership. Its lease
//     hangs on that of its membership, so it is trusted no longer (lease.WithParent).
//
// Membership and leadership say where work should be, and are a view: two nodes
// may see different ones for a moment. The right to run something is always a lease
// of its own. What a leader writes is fenced by its term's token (Election.Term).
//
// # A node's membership
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
// A lost membership is begun anew by itself, as a new term of the same lease, with
// pauses that grow from 0.1 to 5 s. A member stands for leadership, if its roles let
// it; when it stops being a member that may (lost, leaving, or a later incarnation
// has joined) it gives leadership up.
//
// # Leases
//
//	member/<group>/<id>/<incarnation>    format, roles, capacity in its metadata
//	leaving/<group>/<id>/<incarnation>   the token of the membership that ends
//	leader/<group>                       its holder leads
//
// User's parts of names are escaped (lease.Name). Leave gives them up in the order
// leader, member, leaving. Tokens of different names are compared to tell two
// incarnations apart, which is exact for stores that number all their writes with
// one counter, as the memory and the etcd store do. With others the wrong one of two
// may be listed until the older record ends.
//
// # What calls what
//
//	Keeper.Watch ─▶ members ──────┐                       ┌─▶ Follow, EventStream, log
//	own terms, by lease.Run ──────┼─▶ one pure function ──▶ feeds: each at its own pace
//	Keeper.Watch ─▶ leader record ┘
//
// Static is a source of leadership that is set by hand. Package topology makes one of
// protoactor's cluster events, as a hint.
package membership
