// Package store is what a backend implements, for package lease to keep leases in it: records under
// names, sessions that they expire with, and conditional writes. Users of leases call package lease.
//
//	Store        sessions are opened, renewed and closed; names are acquired, released, read and listed
//	Transferrer  an ownership moves with no gap
//	Watcher      the store tells of changes
//	Historian    the store notices that its history went back
//
// Limits say what more a store can do, and what it can't hold. The engine does everything that needs
// time, patience or several requests: deadlines, retries, settling, reconciliation.
//
// Package storetest checks a Store by this contract; docs/backends.md leads through one. Package
// observed makes one of objects with compare-and-swap; faultstore and faultclock make faults.
package store
