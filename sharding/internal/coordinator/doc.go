// Package coordinator decides which node hosts which shard of a type. A Coordinator is the
// child of a singleton, so that there is one, and so that nothing reaches it, no timer and
// no event, once its lease is lost. What it knows are the records and the members, as every
// node knows them; what it decides becomes true only as the leases move.
//
//	             Env: Table, Members, Clock                      Env: Send, Emit
//	                       │                                            ▲
//	records, members ──▶ Coordinator ──known──▶ ledger: View, orders ───┘
//	Report, Depart   ──▶     │  ▲               (pure)
//	                         ▼  │ target
//	                       the user's Strategy, on a goroutine of its own
//
// Its own state, the ledger, is about orders in flight, and a new Coordinator does without
// it. Leadership says on which node it runs.
package coordinator
