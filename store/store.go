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

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/input"
)

// Token is a fencing token: a number that the store issues with every
// change of ownership of a name, strictly increasing per name, also across
// release, deletion, expiry, transfer and restarts. 0 means "no token".
type Token uint64

// Owner is the holder of a record. Two owners are the same if and only if their
// incarnations are; ID and Address tell people and proxies where it is.
type Owner struct {
	ID          string // the node's name, as its user knows it
	Incarnation string // unique to one Keeper's life
	Address     string // where its actor system is reached; may be empty
}

// SessionID names a session; positive, chosen at random by the Keeper.
type SessionID int64

// Session is the unit of renewal: every record belongs to one and expires with
// it. Keepers draw IDs at random and give the same Owner and the granted TTL with
// each call: a store may go by the ID alone, and write a record's Owner and TTL from
// either.
type Session struct {
	ID    SessionID
	Owner Owner
	TTL   time.Duration // asked for in OpenSession, granted afterwards
}

// Gone returns ErrSessionGone, and says of which session.
func (s Session) Gone() error {
	return fmt.Errorf("session %d of %s: %w", s.ID, s.Owner.ID, ErrSessionGone)
}

// Record is what a store knows of one held name.
type Record struct {
	Name     string
	Owner    Owner
	Session  SessionID
	Token    Token
	Nonce    uint64        // chosen by the claimant: tells two claims of one owner apart
	TTL      time.Duration // of the session, as granted
	Left     time.Duration // a hint: time until expiry if nothing is renewed; 0 when not known
	Metadata map[string]string

	// Granted is when this ownership was won, for people: by the wall clock of who granted
	// it, the store or, if that has none of use, the node that asked. Renewals don't change
	// it. Zero when not known.
	Granted time.Time
}

// Held names one ownership: conditions are on all three fields.
type Held struct {
	Name  string
	Token Token
	Nonce uint64
}

// Held returns the condition that means this very ownership.
func (r Record) Held() Held { return Held{Name: r.Name, Token: r.Token, Nonce: r.Nonce} }

// Claim asks for a name. It succeeds if no live record stands under Name, or
// if the one that stands belongs to the claiming session's incarnation (under
// whatever session) and bears exactly the token Supersedes.
type Claim struct {
	Name       string
	Nonce      uint64
	Supersedes Token // 0: only if free
	Metadata   map[string]string
	// While is another ownership, whosever: the claim succeeds only while that stands, as
	// one conditional write. If it does not, Outcome.Err is ErrParentLost, also if another has Name.
	// The zero Held: no condition. A store without Limits.While answers ErrUnsupported
	// there.
	While Held
}

// Transfer asks to give an ownership to the maker of an offer: the record is then under the session To
// names, with that session's owner and TTL and with To's nonce. To.Lifetime is the Keepers' business.
type Transfer struct {
	Held
	To Offer
	// Metadata replaces the record's; nil keeps it, and one that is empty leaves none.
	Metadata map[string]string
}

// Outcome is the definite answer for one name.
type Outcome struct {
	// OK: the operation was applied. Acquire: Record is ours under a new token.
	// Release: this call removed it. Transfer: Record is the target's under a
	// new token.
	OK bool
	// Record is what stands under the name after the operation; zero when
	// nothing does. Stores may leave it zero after Release.
	Record Record
	// Replaced, of an Acquire that was applied, is the token of the record in
	// whose place this one came with nothing between them, so that of
	// Claim.Supersedes; 0 if the name was free, or if the store can't tell.
	Replaced Token
	// Err is a definite refusal for this name that says nothing about its
	// holder; nothing was applied, and the others of the call are decided as without
	// it. Of a claim: ErrInvalid if ValidateClaim refuses it, else
	// ErrParentLost or ErrBadRecord, either where both are so. Of a move: ErrInvalid if
	// ValidateTransfer refuses it, and, if the ownership is still the mover's,
	// ErrSessionGone if the target's session is gone. Release and Transfer of what is
	// no record may answer ErrBadRecord, or refuse without. A store may have reasons of
	// its own.
	Err error
}

// Grant is the answer to opening or renewing a session.
type Grant struct {
	// TTL is what the store granted, counted from a moment after the request was
	// sent. It may be longer than asked for.
	TTL time.Duration
	// Err is nil, ErrSessionGone (definite: every record of it is gone or about
	// to be, none can come back), or an error that means nothing is known.
	Err error
}

// Store is what a backend implements; the Keeper does the rest. A Store is safe
// for concurrent use, linearizable, and honours the context's deadline.
//
// A returned error means that nothing is known of any part of the call: all,
// some or none of it was or will be applied. ErrSessionGone as the error of
// Acquire is definite: nothing was applied; so is ErrDenied as that of any call. Outcomes and grants are in the order
// of the arguments. Slices and maps that were passed are not kept, and those that are returned are the caller's.
//
// storetest.Run checks all of this.
type Store interface {
	// Limits are the store's bounds. They are the same for ever, but for the Endpoints.
	Limits() Limits
	// OpenSession makes s known, with records that expire together at the end of
	// the granted TTL after its last renewal. Opening an ID of the same incarnation
	// again is a renewal, by the TTL that was granted, whatever s asks for; one that
	// has expired, and has no record left, may be opened as new. What ValidateSession
	// refuses is not opened: ErrInvalid, as the error; the Grant's Err is for Renew.
	OpenSession(ctx context.Context, s Session) (Grant, error)
	// CloseSession ends s and removes every record under it. Closing a session
	// that is gone is no error.
	CloseSession(ctx context.Context, s Session) error
	// Acquire decides every claim atomically for its name; of a name that is claimed
	// twice, as if the claims came one after the other, in some order. A success always
	// issues a new token, higher than any the name ever had.
	Acquire(ctx context.Context, s Session, claims []Claim) ([]Outcome, error)
	// Renew extends every session by its granted TTL. An expired session is
	// gone: it is never revived.
	Renew(ctx context.Context, sessions []Session) ([]Grant, error)
	// Release removes each record that still is that very ownership, and no
	// other.
	Release(ctx context.Context, held []Held) ([]Outcome, error)
	// Get returns the records of those names that are held, in any order. What is no
	// record, or of a format this version can't read, holds its name as well: it is
	// returned as a Record with nothing but its Name, so with no token and no owner.
	Get(ctx context.Context, names ...string) ([]Record, error)
	// List yields every held record that q asks for, in any order. A value that is no
	// record is yielded with its Name and an error that is ErrBadRecord, and the listing
	// goes on; any other error ends it and means that it is incomplete. A store that can't
	// list yields ErrUnsupported.
	List(ctx context.Context, q Query) iter.Seq2[Record, error]
}

// Query says which records are listed: those under a prefix, or those of a session.
type Query struct {
	// Prefix is what their names begin with (bytes). It is empty where Session is not.
	Prefix string
	// Session is whose they are; 0: anybody's. Only a store whose Limits.BySession says that
	// it can is asked for one. Then each record is yielded that stood from before the call to its
	// end, and none that was gone before it; of those that came or went meanwhile any may be.
	// ErrSessionGone is definite: no record of the session stands, and none can come any more.
	Session SessionID
}

// Transferrer is implemented by stores that move an ownership atomically.
type Transferrer interface {
	// Transfer gives each ownership that still is the mover's to the offer's
	// session with the offer's nonce and a new token. Refused (OK false) when it
	// is not that very ownership any more.
	Transfer(ctx context.Context, moves []Transfer) ([]Outcome, error)
}

// EventKind tells what an Event says.
type EventKind uint8

const (
	// EventPut: Record stands now (in a snapshot: stood when it was taken).
	EventPut EventKind = iota + 1
	// EventDelete: the record of Record.Name is gone; other fields may be zero.
	EventDelete
	// EventSynced: the snapshot is complete. Once per Watch.
	EventSynced
	// EventBad: what stands under Record.Name is no record this version can read.
	// The name is held; EventDelete tells when it is free.
	EventBad
	// EventReset, of Keeper.Watch alone: the store's history went back, and the one
	// that stands was accepted (Keeper.AcceptHistory). Nothing that was told before
	// counts any more, nor do its tokens; what stands now follows.
	EventReset
	// EventProgress, after EventSynced: the watch runs, and has told all that had happened a moment
	// ago. Scope.Progress says how often. Keeper.Watch does not pass it on.
	EventProgress
)

// Event is one change of one name.
type Event struct {
	Kind   EventKind
	Record Record
	// Revision compares with the tokens of the name: not below the token of the
	// record that a deletion removed, and below every token issued after it; where one
	// counter issues all tokens, what it stands at will do. For
	// EventPut it is Record.Token; for EventBad it does not count.
	Revision Token
}

// EventOf is the EventPut of a record; the EventBad of its name if it could not be read, as err says.
func EventOf(r Record, err error) Event {
	if err != nil {
		return Event{Kind: EventBad, Record: r}
	}
	return Event{Kind: EventPut, Record: r, Revision: r.Token}
}

// Watcher is implemented by stores that tell of changes.
type Watcher interface {
	// Watch yields a snapshot of the scope (EventPut for each record, then one
	// EventSynced) and every change since, in order per name, with no gap. A record
	// that takes another's place (Supersedes, Transfer) is one EventPut. To compare
	// two looks at what stands is not enough: a release and an acquisition between them
	// are an EventDelete and an EventPut. An error ends it, as it must when events had to be
	// dropped; watch again for a new snapshot.
	Watch(ctx context.Context, of Scope) iter.Seq2[Event, error]
}

// Scope says what a watch tells of.
type Scope struct {
	// Prefix is what the names begin with (bytes).
	Prefix string
	// Deletions: nothing but them. There is no snapshot, only EventSynced when the watch has
	// begun. A Keeper follows the records of its own leases so: it knows what it put itself, and
	// finds other records by listing.
	Deletions bool
	// Progress is the longest time from EventSynced, or an EventProgress, to the next
	// EventProgress of a watch that runs; 0: none is needed. That a look found nothing new is
	// reason enough for one. A watch that can't say so, as it is behind, or has fallen silent, yields
	// none: a Keeper begins it again.
	Progress time.Duration
}

// Historian is implemented by stores that notice by themselves when their history
// has gone back. From then on each call fails with ErrSetback, until every token
// to be issued is above all that this Store has seen, or the history that stands
// was accepted. A watch ends with ErrSetback as well, and a new one begins after that. To lose the data
// is one, unless the tokens to come are sure to be above those of before. What is seen is noted before the
// data is read that it is compared with.
type Historian interface {
	// AcceptHistory goes on with what the store holds now, and forgets what was
	// seen before. On an error nothing has changed.
	AcceptHistory(ctx context.Context) error
	// Accepted is how often that was done. It is asked after every call, so it must
	// not block.
	Accepted() int
}

// What a store answers, by errors.Is. Package lease has those that its users meet under the same names.
var (
	// ErrInvalid: an argument or setting is out of its bounds; the text names it
	// and the bound.
	ErrInvalid = errors.New("invalid")
	// ErrUnsupported: the store can't do that.
	ErrUnsupported = errors.New("not supported by the lease store")
	// ErrDenied: the store refuses, and will until its operator changes something there: a
	// permission or credential, a schema that is missing, a store that is read-only. As
	// the error of a call it is definite, nothing of the call was applied. The Keeper tries
	// an operation no further, and answers its caller with it; what it does in the
	// background it repeats at a slow pace, so that it goes on when it is allowed again. A
	// renewal that is denied is no loss before the deadline.
	ErrDenied = errors.New("denied by the lease store")
	// ErrSessionGone: the session has expired or was closed.
	ErrSessionGone = errors.New("lease session gone")
	// ErrBadRecord: what stands under a name is no record this version can read, be
	// it foreign or of a newer format. The name is held, by an owner that is not
	// known: it can't be acquired, and waiters wait until it is deleted. So a new
	// format is read one release before any release writes it.
	ErrBadRecord = errors.New("not a lease record")
	// ErrInconsistent: the store broke its contract, for instance by repeating a
	// token.
	ErrInconsistent = errors.New("lease store inconsistent")
	// ErrSetback: the store's history went back: its data was lost, or an older copy
	// was put in place, so that tokens would go back. It is an ErrInconsistent.
	ErrSetback = fmt.Errorf("the store's history went back: %w", ErrInconsistent)
	// ErrParentLost: the ownership that a claim hangs on (Claim.While) does not stand. Of a lease: the
	// reason of the loss of a term whose parent's has ended, and what Acquire returns while the parent
	// has none; it is lease.ErrClosed, too, if the parent was closed, and there will never be one.
	ErrParentLost = errors.New("lease parent lost")
)

// Reading is one look at both clocks of a machine.
type Reading struct {
	// Mono is monotonic time since some fixed point. It may stand still while
	// the machine sleeps.
	Mono time.Duration
	// Wall is wall time in nanoseconds since 1970. It may be stepped.
	Wall int64
}

// Clock is the seam through which a Keeper sees time, so that a test can
// freeze, drift or step the clock of one node. A store within the process may use it, too; Mono means
// nothing to another process.
type Clock interface {
	// Now must not block or allocate: CheckAlive calls it.
	Now() Reading
	// AfterFunc calls f in an own goroutine after d.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a pending AfterFunc; *time.Timer is one.
type Timer interface{ Stop() bool }

// SystemClock is the machine's clock. It works under testing/synctest.
func SystemClock() Clock { return systemClock{} }

type systemClock struct{}

var processStart = time.Now()

func (systemClock) Now() Reading {
	t := time.Now()
	return Reading{Mono: t.Sub(processStart), Wall: t.UnixNano()}
}

func (systemClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// Offer is the invitation to transfer a name to its maker. It travels between
// nodes as plain data.
type Offer struct {
	Name    string
	Owner   Owner
	Session SessionID
	TTL     time.Duration
	Nonce   uint64
	// Lifetime is how long after Offer returned its maker still takes up the
	// name, by the maker's clock; a later transfer is reconciled away.
	Lifetime time.Duration
}

// Validate returns an error that is ErrInvalid, and says which field is out of its
// bounds, unless a record can be made for the offer's maker: the name is valid, the
// owner has an ID and an incarnation and is UTF-8, the session is positive, and so is the TTL,
// a year at the most. What came from another node is checked by this before any of it is written,
// as a record without an owner or a TTL could not be read.
func (o Offer) Validate() error {
	bad := func(field string, got any, bound string) error {
		return fmt.Errorf("store.Offer.%s: %w: %v, must be %s", field, ErrInvalid, got, bound)
	}
	if err := ValidateName(o.Name); err != nil {
		return fmt.Errorf("store.Offer.Name: %w", err)
	}
	switch {
	case o.Owner.ID == "":
		return bad("Owner.ID", `""`, "the ID of the offer's maker")
	case o.Owner.Incarnation == "":
		return bad("Owner.Incarnation", `""`, "that of the offer's maker")
	case o.Session <= 0:
		return bad("Session", o.Session, "positive")
	case o.TTL <= 0 || o.TTL > input.Longest:
		return bad("TTL", o.TTL, fmt.Sprintf("above 0 and at most %v", input.Longest))
	}
	if err := o.Owner.validate(); err != nil {
		return fmt.Errorf("store.Offer.Owner: %w", err)
	}
	return nil
}

// validate returns an error that is ErrInvalid unless o has an incarnation
// and all of it is UTF-8.
func (o Owner) validate() error {
	if o.Incarnation == "" {
		return fmt.Errorf("owner %.64q: %w: its incarnation is empty", o.ID, ErrInvalid)
	}
	for _, f := range []struct{ name, text string }{{"ID", o.ID}, {"incarnation", o.Incarnation}, {"address", o.Address}} {
		if !utf8.ValidString(f.text) {
			return fmt.Errorf("owner %.64q: %w: its %s is not UTF-8: %.64q", o.ID, ErrInvalid, f.name, f.text)
		}
	}
	return nil
}
