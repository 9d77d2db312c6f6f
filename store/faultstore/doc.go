// Package faultstore puts faults between a Keeper and its store, as a network and a busy server would:
// requests that are late, lost, or applied although the caller was told that they failed.
//
//	s := faultstore.Wrap(memory.New())
//	s.SetRule(func(c faultstore.Call) faultstore.Fault {
//		if c.Op == faultstore.Renew {
//			return faultstore.Fault{Kind: faultstore.ReplyLate, Delay: 7 * time.Second}
//		}
//		return faultstore.Fault{}
//	})
//
// A rule looks at every call as it is made and picks a Fault, or none. What becomes of a call, with the
// moments at which it may have to wait:
//
//	call ─▶ rule ─▶ partition healed? ─▶ Delay ─────────▶ partition healed? ─▶ the store ─▶ ReplyLate ─▶ partition healed? ─▶ reply
//	                                     Drop ──────────▶ ErrInjected        │
//	                                     Deny ──────────▶ ErrInjected        │   and store.ErrDenied
//	                                     LandLate ──────▶ ErrInjected        └─ ApplyThenFail ─▶ ErrInjected
//	                                        └─ a timer ──────────────────────▶ the store; the reply is dropped
//
// Every wait ends when the caller's context does, in an error, also if both end at one moment. All
// errors made here are ErrInjected, and the context's error and cause too where that ended the wait.
// What the inner store answers is never changed.
//
// List, ListSession and Watch apply nothing, so the kinds mean for them: Delay holds up the
// beginning; ReplyLate holds up the first value; Drop, Deny and LandLate fail before the first value;
// ApplyThenFail fails in the middle, a List after its first record, a Watch after store.EventSynced.
// Partition and CutWatches end the watches that run; SetLag makes them lag behind. What was read before
// a partition may still be listed.
//
// Late landings run on the goroutines of their timers, and Wait waits for them.
package faultstore
