//go:build linux

package soak

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
)

// shardSettings make a node one that hosts shards; the same for all of a cluster.
type shardSettings struct {
	Shards int
	Each   int // entities of each shard
	Hosts  int // nodes from this index on host none

	Idle      time.Duration // entities that are, for so long, are stopped; 0: none
	MaxActive int           // entities that run on a node; 0: no bound

	Leaks string // what each entity that starts leaks: goroutines, heap, or both

	Remembered int // entities, e0 and on, in place of Each, that are remembered in etcd; 0: none are
}

// What is ordered and reported, besides what nodes with singletons know: host is
// to take part, ask is not known.
const (
	doLeave = "leave" // hands all over, leaves, and ends; told left
	hasLeft = "left"
)

// What is noted about shards; name is the shard's number.
const (
	hosted        entryKind = iota + 16 // entities of it may run here
	unhosted                            // they may no more
	coordinating                        // this node is in charge
	disordered                          // a move after which order is not known to be kept
	sweepAnswered                       // an ask of a sweep had its answer
	entityBegan                         // of what is remembered: sender is its number
	entityEnded                         // likewise
)

// entityIDs returns ids of so many entities for each shard: those of shard i stand
// at i*each and after.
func entityIDs(shards, each int) []string {
	ids, has, missing := make([]string, shards*each), make([]int, shards), shards*each
	for k := 0; missing > 0; k++ {
		id := fmt.Sprintf("e%d", k)
		if i := sharding.ShardOf(id, shards); has[i] < each {
			ids[i*each+has[i]] = id
			has[i]++
			missing--
		}
	}
	return ids
}

// entities are the ids of all that are asked.
func (s shardSettings) entities() []string {
	if s.Remembered == 0 {
		return entityIDs(s.Shards, s.Each)
	}
	ids := make([]string, s.Remembered)
	for i := range ids {
		ids[i] = fmt.Sprintf("e%d", i)
	}
	return ids
}

// asker is which of a cluster's askers a sender is, and which entity it asks:
// order is kept between the two.
type asker struct{ node, life, number, entity int }

const askersPerNode, nodesPerLife = 2, 10

// sender is the number of an asker.
func (a asker) sender(entities int) uint32 {
	return uint32(((a.life*nodesPerLife+a.node)*askersPerNode+a.number)*entities + a.entity)
}

// lifeOf tells from a journal's path which life of its node it is.
func lifeOf(path string) (life int, err error) {
	_, err = fmt.Sscanf(path[strings.LastIndex(path, "-")+1:], "%d", &life)
	return life, err
}

// receipt answers a parcel.
type receipt struct {
	Sender uint32
	Seq    uint64
	Token  uint64
}

func registerReceipt() error {
	return remoting.Register[receipt]("soak.receipt", remoting.WithCodec(receiptCodec{}))
}

// receiptCodec writes the three numbers.
type receiptCodec struct{}

func (receiptCodec) Name() string { return "soak.receipts" }

func (receiptCodec) Marshal(v any) ([]byte, error) {
	p := v.(*receipt)
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 20), p.Sender)
	b = binary.LittleEndian.AppendUint64(b, p.Seq)
	return binary.LittleEndian.AppendUint64(b, p.Token), nil
}

func (receiptCodec) Unmarshal(data []byte, v any) error {
	if len(data) != 20 {
		return fmt.Errorf("%d bytes, must be 20", len(data))
	}
	*v.(*receipt) = receipt{Sender: binary.LittleEndian.Uint32(data), Seq: binary.LittleEndian.Uint64(data[4:]), Token: binary.LittleEndian.Uint64(data[12:])}
	return nil
}
