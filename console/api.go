package console

import "time"

// Version is the version of the JSON, in every path and every document. Within it members and
// values of open enums are added, never removed or given another meaning.
const Version = "v1"

// Snapshot is what the page draws and the command prints. A member that is absent is not known, or
// does not apply; 0 and "" are values, but of tokens, which are decimal strings in JSON. Times are by the clock of the node that tells them.
type Snapshot struct {
	API      string    `json:"api"`
	At       time.Time `json:"at"`
	Node     string    `json:"node"`     // that made it; empty: from the store alone
	Answered []string  `json:"answered"` // nodes that were asked and answered, by id
	Missing  []Missing `json:"missing"`  // nodes that did not

	Capabilities Capabilities `json:"capabilities"`
	Cluster      Cluster      `json:"cluster"`
	Problems     []Problem    `json:"problems"` // worst first
	Nodes        []Node       `json:"nodes"`    // by id
	Leases       []Lease      `json:"leases"`   // by name, without those of shards and partitions
	Singletons   []Singleton  `json:"singletons"`
	Types        []Type       `json:"types"`
	Timeline     Timeline     `json:"timeline"`
	Events       []Event      `json:"events"` // by time
}

// Missing is a node that did not answer.
type Missing struct {
	Node  string `json:"node"`
	Error string `json:"error"`
}

// Capabilities are what the caller may do.
type Capabilities struct {
	Actions []string `json:"actions"` // of Actions; empty: read-only
	User    string   `json:"user,omitempty"`
}

// Cluster is what all nodes have in common.
type Cluster struct {
	Groups       []string `json:"groups"`
	Store        string   `json:"store"`
	TTL          float64  `json:"ttl_ms"`
	Margin       float64  `json:"margin_ms"`
	ClockError   *float64 `json:"clock_error_ms,omitempty"` // the most by which two clocks differ, as measured
	StoreFailure string   `json:"store_failure,omitempty"`  // why the records may be out of date
}

// Problem is something that needs a look.
type Problem struct {
	Code     string    `json:"code"` // stable
	Severity string    `json:"severity"`
	Subject  string    `json:"subject"` // "singleton/x", "node/a", "shard/g/t", "partition/g/p", "store" or a lease's name
	Node     string    `json:"node,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Count    int       `json:"count,omitempty"`
	Text     string    `json:"text"` // what follows the subject in a sentence
	Detail   string    `json:"detail,omitempty"`
}

// The severities of a Problem.
const (
	Bad  = "bad"
	Warn = "warn"
	Info = "info"
)

// Owner is who holds a lease.
type Owner struct {
	ID          string `json:"id"`
	Incarnation string `json:"incarnation,omitempty"`
	Address     string `json:"address,omitempty"`
}

// Node is a member of a group, or one that left within the hour.
type Node struct {
	Owner
	Group   string            `json:"group"`
	Labels  map[string]string `json:"labels,omitempty"`
	Roles   []string          `json:"roles,omitempty"`
	Token   uint64            `json:"token,omitempty,string"`
	Joined  time.Time         `json:"joined,omitzero"`
	State   string            `json:"state"` // up, draining, leaving, gone
	Leader  bool              `json:"leader"`
	Source  string            `json:"source"` // asked, or records: the members below are absent
	Version string            `json:"version,omitempty"`
	Go      string            `json:"go,omitempty"`
	Started time.Time         `json:"started,omitzero"`

	AnsweredMS  *float64          `json:"answered_ms,omitempty"` // how long the answer took
	Sessions    []Session         `json:"sessions,omitempty"`
	Store       *StoreLatency     `json:"store,omitempty"`
	Clock       *Clock            `json:"clock,omitempty"`
	DeadLetters map[string]int64  `json:"dead_letters,omitempty"` // by reason, since Started
	Counters    map[string]int64  `json:"counters,omitempty"`     // since Started
	Unreached   map[string]string `json:"unreached,omitempty"`    // addresses no link could be made to: since when, and why
	Health      *Health           `json:"health,omitempty"`
}

// Session is a session with the store, as its holder sees it.
type Session struct {
	ID      string  `json:"id"` // 16 hexadecimal digits
	Leases  int     `json:"leases"`
	TTL     float64 `json:"ttl_ms"`
	Trusted float64 `json:"trusted_ms"` // for how long its holder trusts it still
	Failed  int     `json:"failed"`     // renewals in a row
	Error   string  `json:"error,omitempty"`
}

// StoreLatency is how the store answered a node's renewals in the last minute.
type StoreLatency struct {
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Attempt float64 `json:"attempt_timeout_ms"`
	Errors  int     `json:"errors"` // requests that failed
	Slow    bool    `json:"slow"`   // P99 is above a third of Attempt
}

// Clock is a node's clock beside that of the node which serves.
type Clock struct {
	Offset float64 `json:"offset_ms"`
	Error  float64 `json:"error_ms"` // half a round trip
}

// Health is what a node's own checks say.
type Health struct {
	OK     bool     `json:"ok"`
	Errors []string `json:"errors"`
}

// Lease is a record, or a name that is known though no node holds it.
type Lease struct {
	Name     string            `json:"name"`
	Kind     string            `json:"kind"`  // member, leader, singleton, shard, …; application
	State    string            `json:"state"` // held, free
	Owner    *Owner            `json:"owner,omitempty"`
	Token    uint64            `json:"token,omitempty,string"`
	Session  string            `json:"session,omitempty"`
	TTL      float64           `json:"ttl_ms,omitempty"`
	Left     float64           `json:"left_ms,omitempty"` // at Snapshot.At; the holder's own, if it answered, else the store's
	Granted  time.Time         `json:"granted,omitzero"`  // by the store, where it has it
	Since    time.Time         `json:"since,omitzero"`
	Free     time.Time         `json:"free_since,omitzero"`
	Last     uint64            `json:"last_token,omitempty,string"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Waiting  []string          `json:"waiting,omitempty"` // nodes that would hold it, by id
	History  []Span            `json:"history,omitempty"` // newest first; at most 20
}

// Singleton is a singleton, by its name.
type Singleton struct {
	Name       string           `json:"name"`
	Lease      string           `json:"lease"`
	Phase      string           `json:"phase"` // of the host; "hostless" where no node hosts it; "held" where only the record is known
	Host       *Owner           `json:"host,omitempty"`
	Token      uint64           `json:"token,omitempty,string"`
	Since      time.Time        `json:"since,omitzero"`          // the child's start
	Hostless   time.Time        `json:"hostless_since,omitzero"` // no child runs
	LastHost   string           `json:"last_host,omitempty"`
	Stopping   time.Time        `json:"stopping_since,omitzero"`
	Reason     string           `json:"reason,omitempty"` // what its host, or a node that would be, says is wrong
	Candidates []Candidate      `json:"candidates,omitempty"`
	Waiting    map[string]int   `json:"waiting,omitempty"`   // messages, by node
	Handovers  []Handover       `json:"handovers,omitempty"` // newest first; at most 20
	Counters   map[string]int64 `json:"counters,omitempty"`
}

// Candidate is a node's part of a singleton.
type Candidate struct {
	ID       string `json:"id"`
	Phase    string `json:"phase"`
	Eligible bool   `json:"eligible"` // it would host it
	Why      string `json:"why_not,omitempty"`
}

// Handover is a change of host.
type Handover struct {
	At     time.Time `json:"at"`
	From   string    `json:"from,omitempty"`
	To     string    `json:"to"`
	Token  uint64    `json:"token,omitempty,string"`
	Kind   string    `json:"kind"`             // planned, or unplanned
	Gap    *float64  `json:"gap_ms,omitempty"` // from the old child's end to the new one's start
	Reason string    `json:"reason,omitempty"`
}

// Type is a sharded type of entities; or the partitions of a name, which have no coordinator and no
// entities.
type Type struct {
	Kind        string     `json:"kind"` // as that of its leases: shard, or partition
	Group       string     `json:"group"`
	Type        string     `json:"type"` // of partitions their name
	Shards      int        `json:"shards"`
	Coordinator *Owner     `json:"coordinator,omitempty"`
	Token       uint64     `json:"token,omitempty,string"`
	Hosted      int        `json:"hosted"`
	Unassigned  int        `json:"unassigned"`
	Moving      int        `json:"moving"`
	Entities    *int       `json:"entities,omitempty"`
	Waiting     *int       `json:"waiting,omitempty"` // messages
	Nodes       []TypeNode `json:"nodes"`
	Table       []Shard    `json:"table"`
	Moves       []Move     `json:"moves,omitempty"`
	Recent      []Event    `json:"recent,omitempty"` // moves that ended, newest first; at most 50
}

// TypeNode is a node's part in a type.
type TypeNode struct {
	Owner
	Hosts    bool `json:"hosts"`
	Member   bool `json:"member"`
	Leaving  bool `json:"leaving"`
	Draining bool `json:"draining"`
	Shards   int  `json:"shards"`
	Entities *int `json:"entities,omitempty"`
}

// Shard is one shard, or partition.
type Shard struct {
	Shard    int       `json:"shard"`
	Key      string    `json:"key,omitempty"`   // of partitions that have Keys, by which they are sorted
	Owner    string    `json:"owner,omitempty"` // the node's id; absent: no node holds it
	Token    uint64    `json:"token,omitempty,string"`
	Since    time.Time `json:"since,omitzero"`
	Phase    string    `json:"phase,omitempty"`
	Entities *int      `json:"entities,omitempty"`
	Waiting  *int      `json:"waiting,omitempty"`
	To       string    `json:"to,omitempty"`            // where it is moved to
	Stopping time.Time `json:"stopping_since,omitzero"` // its Own should have returned
	Failures int       `json:"failures,omitempty"`      // of its Own in a row
	Error    string    `json:"error,omitempty"`         // the last
}

// Move is a move of a shard that is under way.
type Move struct {
	Shard   int       `json:"shard"`
	From    string    `json:"from,omitempty"`
	To      string    `json:"to"`
	Phase   string    `json:"phase,omitempty"`
	Started time.Time `json:"started,omitzero"`
}

// Timeline is who held and ran what, and when.
type Timeline struct {
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Complete bool      `json:"complete"` // false: a node that knew more is gone, or its journal did not reach back
	Lanes    []Lane    `json:"lanes"`
}

// Lane is one name of a Timeline, or all shards of a type, or all partitions of a name.
type Lane struct {
	Name     string     `json:"name"`
	Kind     string     `json:"kind"` // as a Lease's; shards
	Spans    []Span     `json:"spans,omitempty"`
	Shards   int        `json:"shards,omitempty"`
	Unhosted []Unhosted `json:"unhosted,omitempty"`
}

// Span is one term: From to To is the record, RunFrom to RunTo the work under it.
type Span struct {
	Holder  string    `json:"holder"`
	Token   uint64    `json:"token,omitempty,string"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to,omitzero"` // absent: held
	RunFrom time.Time `json:"run_from,omitzero"`
	RunTo   time.Time `json:"run_to,omitzero"` // absent: runs
	Stop    time.Time `json:"stop,omitzero"`   // since when the work was told to stop and has not
	Ended   string    `json:"ended,omitempty"` // handed over, released, expired, lost, yielded
	Reason  string    `json:"reason,omitempty"`
	Error   float64   `json:"error_ms,omitempty"` // by how much the times may be off, beside the serving node's clock
}

// Unhosted is how many shards of a type have no host from At on.
type Unhosted struct {
	At    time.Time `json:"at"`
	Count int       `json:"count"`
}

// Event is one entry of the nodes' journals.
type Event struct {
	ID     string    `json:"id"` // "<node's incarnation, 8 digits>-<number>"
	At     time.Time `json:"at"`
	Node   string    `json:"node"`
	Kind   string    `json:"kind"`
	Name   string    `json:"name"` // the lease's
	Token  uint64    `json:"token,omitempty,string"`
	Peer   string    `json:"peer,omitempty"`
	Took   *float64  `json:"took_ms,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Count  int       `json:"count,omitempty"`  // of shards, folded
	Source string    `json:"source,omitempty"` // store: seen in the records
}

// Actions are what the page and the command can ask of a node. None takes a lease from work that
// runs.
var Actions = []string{"drain", "undrain", "move", "release"}

// Request is an action, as POST api/v1/actions takes it. The answer is 202 with an Accepted, once the
// node it concerns has begun; its outcome is in the events.
type Request struct {
	Action string `json:"action"`                 // one of Actions
	Node   string `json:"node,omitempty"`         // drain, undrain: the node's id
	Name   string `json:"name,omitempty"`         // move: the singleton's; release: the lease's
	To     string `json:"to,omitempty"`           // move: the next host; empty: any
	Token  uint64 `json:"token,omitempty,string"` // if given: refused with conflict if the owner is another by now
}

// Accepted answers a Request.
type Accepted struct {
	Text string `json:"text"` // what was begun, for people
}

// Refusal is why a request is not carried out.
type Refusal struct {
	Code string `json:"code"` // invalid, forbidden, unknown, conflict, unavailable
	Text string `json:"text"`
}

func (r *Refusal) Error() string { return r.Text }

// Failure is the body of every answer but those below 400.
type Failure struct {
	Error Refusal `json:"error"`
}
