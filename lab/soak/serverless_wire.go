//go:build linux

package soak

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// functionEnv makes this program one process of the serverless check: settings as JSON.
const functionEnv = "HOLDFAST_SOAK_FUNCTION"

// functionSettings are what such a process is started with.
type functionSettings struct {
	Process   uint32 // its number, from 1
	Endpoints []string
	Run       string // part of the keys' names
	Journal   string // path of the file, for all processes
	Board     string // path of the file, for all processes
	Key       uint16
	Owner     uint16        // of all keys, by number: an owner has one key
	Life      time.Duration // from its first instruction on
	Crash     bool          // it ends with SIGKILL then, whatever it is doing
	Seed      uint64
}

// keyName is what a key is called.
func keyName(run string, key uint16) string { return fmt.Sprintf("%s/key-%d", run, key) }

// ownerName is what an owner is called.
func ownerName(owner uint16) string { return fmt.Sprintf("run-%d", owner) }

// Kinds of entries that functions note, beside those of nodes. Sender is the process, name the key.
const (
	functionBorn entryKind = iota + 100 // its first instruction
	functionDead                        // it was waited for, by its parent
	callBegan                           // a call is about to be made: seq is packBegan
	callEnded                           // it has returned: seq is packEnded, sent when the promise ends
	recordMoved                         // the store has moved a record: token is the old one, seq the new
	recordFreed                         // the store has removed a record, of this token, by a release
	callBroken                          // a call has failed in a way that it must not
)

// callOp is what a call does.
type callOp uint8

const (
	opAcquire callOp = iota + 1
	opRenew
	opRelease
	opTransfer
	opOwner
)

func (o callOp) String() string {
	return [...]string{"?", "acquire", "renew", "release", "transfer", "owner"}[o]
}

// callOutcome is what a call returned.
type callOutcome uint8

const (
	isNo callOutcome = iota + 1
	isYes
	isUnknown // an error; or none, as the process died over it
)

// packBegan and packEnded put what is to be known of a call into the seq of an entry.
func packBegan(n uint16, o callOp, owner, to uint16) uint64 {
	return uint64(n)<<48 | uint64(o)<<40 | uint64(owner)<<16 | uint64(to)
}

func unpackBegan(x uint64) (n uint16, o callOp, owner, to uint16) {
	return uint16(x >> 48), callOp(x >> 40), uint16(x >> 16), uint16(x)
}

func packEnded(n uint16, o callOutcome) uint64 { return uint64(n)<<48 | uint64(o) }

func unpackEnded(x uint64) (n uint16, o callOutcome) { return uint16(x >> 48), callOutcome(x) }

// board says for each key which owner is queued for it: a memory that all processes share. It is no
// part of what is judged.
type board struct {
	*lab.Shared
	queued []uint32 // owner and 1; 0: none
}

func newBoard(path string, keys int) (*board, error) {
	s, err := lab.MakeShared(path, 4*keys)
	return boardIn(s), err
}

func openBoard(path string) (*board, error) {
	s, err := lab.OpenShared(path)
	return boardIn(s), err
}

func boardIn(s *lab.Shared) *board {
	if s == nil {
		return nil
	}
	return &board{s, unsafe.Slice((*uint32)(unsafe.Pointer(&s.Bytes[0])), len(s.Bytes)/4)}
}

// enqueue makes owner the next one, unless another is.
func (b *board) enqueue(key, owner uint16) {
	atomic.CompareAndSwapUint32(&b.queued[key], 0, uint32(owner)+1)
}

// next takes who is queued off the board; false if nobody is.
func (b *board) next(key uint16) (owner uint16, ok bool) {
	x := atomic.SwapUint32(&b.queued[key], 0)
	return uint16(x - 1), x > 0
}
