package etcd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/store"
)

type ownership struct {
	name  string
	token store.Token
}

func (o ownership) Name() string       { return o.name }
func (o ownership) Token() store.Token { return o.token }

// holds tells whether etcd finds the comparison true of a key with that mod
// revision; 0: it is absent.
func holds(t *testing.T, c *pb.Compare, revision int64) bool {
	t.Helper()
	require.Equal(t, pb.Compare_MOD, c.Target)
	switch c.Result {
	case pb.Compare_EQUAL:
		return revision == c.GetModRevision()
	case pb.Compare_LESS:
		return revision < c.GetModRevision()
	default:
		require.Fail(t, "unexpected", "%v", c)
		return false
	}
}

// checkGuard: whatever owns, a guard holds of the one revision that is its token, and
// never of a key that is absent.
func checkGuard(t *testing.T, name string, token uint64) {
	t.Helper()
	guard := bare().Guard(ownership{name, store.Token(token)})
	c := guard.GetCompare()
	require.False(t, holds(t, c, 0), "%v holds of a key that is absent: fencing is off", c)
	for _, revision := range []int64{1, 2, 42, math.MaxInt64} {
		want := uint64(revision) == token && store.ValidateName(name) == nil
		require.Equal(t, want, holds(t, c, revision), "%v of revision %d", c, revision)
	}
	if store.ValidateName(name) == nil && token > 0 && token <= math.MaxInt64 {
		require.Equal(t, "p/"+name, string(c.Key))
		require.True(t, holds(t, c, int64(token)))
	}
}

var guardTokens = []uint64{0, 1, 42, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64}

func TestGuardsOfAllKinds(t *testing.T) {
	for range 1000 {
		token := rand.Uint64() >> rand.IntN(64)
		checkGuard(t, "a/b", token)
	}
	for _, token := range guardTokens {
		for _, name := range []string{"a/b", "", "/", "\xff"} {
			checkGuard(t, name, token)
		}
	}
}

func FuzzGuard(f *testing.F) {
	for _, token := range guardTokens {
		f.Add("a/b", token)
		f.Add("", token)
	}
	f.Fuzz(checkGuard)
}

// fleeting is an ownership that ends while it is looked at.
type fleeting struct{ ownership }

func (f *fleeting) Token() store.Token {
	token := f.token
	f.token = 0
	return token
}

func TestGuardOfAnOwnershipThatEndsMeanwhile(t *testing.T) {
	guard := bare().Guard(&fleeting{ownership{"a/b", 7}})
	c := guard.GetCompare()
	require.False(t, holds(t, c, 0), "%v holds of a key that is absent: fencing is off", c)
	require.True(t, holds(t, c, 7))
}

// bare is a Store without a client.
func bare() *Store {
	s := new(Store)
	s.prefix = "p/"
	return s
}
