package storetest

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

// These tests write histories by hand. Times are in steps; a forever return is
// an unknown outcome.

const forever = math.MaxInt64

var (
	anna = store.Session{ID: 1, Owner: store.Owner{ID: "anna", Incarnation: "anna-1"}}
	bert = store.Session{ID: 2, Owner: store.Owner{ID: "bert", Incarnation: "bert-1"}}
)

func did(call, ret int64, in request, out reply) porcupine.Operation {
	out.unknown = ret == forever
	in.name = "n"
	return porcupine.Operation{Input: in, Output: out, Call: call, Return: ret}
}

func claims(by store.Session, nonce uint64, over store.Token) request {
	return request{kind: opAcquire, by: by, nonce: nonce, over: over}
}

func releases(token store.Token, nonce uint64) request {
	return request{kind: opRelease, present: store.Held{Token: token, Nonce: nonce}}
}

func gives(token store.Token, nonce uint64, to store.Session, next uint64) request {
	return request{kind: opTransfer, present: store.Held{Token: token, Nonce: nonce}, by: to, nonce: next}
}

func standing(of store.Session, token store.Token, nonce uint64) reply {
	return reply{record: store.Record{Name: "n", Owner: of.Owner, Session: of.ID, Token: token, Nonce: nonce}}
}

func done(out reply) reply { out.ok = true; return out }

func TestHistories(t *testing.T) {
	get, nothing := request{kind: opGet}, reply{}
	for _, c := range []struct {
		name string
		want bool
		ops  []porcupine.Operation
	}{
		{"win, see, release, see nothing", true, []porcupine.Operation{
			did(1, 2, claims(anna, 1, 0), done(standing(anna, 5, 1))),
			did(3, 4, get, standing(anna, 5, 1)),
			did(5, 6, releases(5, 1), done(nothing)),
			did(7, 8, get, nothing),
		}},
		{"two winners with a release between", true, []porcupine.Operation{
			did(1, 9, claims(anna, 1, 0), done(standing(anna, 5, 1))),
			did(2, 8, releases(5, 1), done(nothing)),
			did(3, 7, claims(bert, 2, 0), done(standing(bert, 6, 2))),
		}},
		{"a token that does not grow", false, []porcupine.Operation{
			did(1, 2, claims(anna, 1, 0), done(standing(anna, 5, 1))),
			did(3, 4, releases(5, 1), done(nothing)),
			did(5, 6, claims(bert, 2, 0), done(standing(bert, 5, 2))),
		}},
		{"a read of what stood before", false, []porcupine.Operation{
			did(1, 2, claims(anna, 1, 0), done(standing(anna, 5, 1))),
			did(3, 4, releases(5, 1), done(nothing)),
			did(5, 6, get, standing(anna, 5, 1)),
		}},
		{"a read beside the release may see either", true, []porcupine.Operation{
			did(1, 2, claims(anna, 1, 0), done(standing(anna, 5, 1))),
			did(3, 8, releases(5, 1), done(nothing)),
			did(4, 5, get, standing(anna, 5, 1)),
			did(6, 7, get, nothing),
		}},
		{"but not one and then back", false, []porcupine.Operation{
			did(1, 2, claims(anna, 1, 0), done(standing(anna, 5, 1))),
			did(3, 8, releases(5, 1), done(nothing)),
			did(4, 5, get, nothing),
			did(6, 7, get, standing(anna, 5, 1)),
		}},
		{"a refusal without a holder", false, []porcupine.Operation{
			did(1, 2, claims(anna, 1, 0), done(standing(anna, 5, 1))),
			did(3, 4, claims(bert, 2, 0), nothing),
		}},
		{"superseding one's own", true, []porcupine.Operation{
			did(1, 2, claims(anna, 1, 0), done(standing(anna, 5, 1))),
			did(3, 4, claims(anna, 2, 5), done(standing(anna, 6, 2))),
			did(5, 6, releases(5, 1), nothing),
			did(7, 8, releases(6, 2), done(nothing)),
		}},
		{"superseding another's", false, []porcupine.Operation{
			did(1, 2, claims(anna, 1, 0), done(standing(anna, 5, 1))),
			did(3, 4, claims(bert, 2, 5), done(standing(bert, 6, 2))),
		}},
		{"a refused release of what stands", false, []porcupine.Operation{
			did(1, 2, claims(anna, 1, 0), done(standing(anna, 5, 1))),
			did(3, 4, releases(5, 1), standing(anna, 5, 1)),
		}},
		{"a transfer", true, []porcupine.Operation{
			did(1, 2, claims(anna, 1, 0), done(standing(anna, 5, 1))),
			did(3, 4, gives(5, 1, bert, 2), done(standing(bert, 6, 2))),
			did(5, 6, get, standing(bert, 6, 2)),
		}},
		{"one ownership given away twice", false, []porcupine.Operation{
			did(1, 2, claims(anna, 1, 0), done(standing(anna, 5, 1))),
			did(3, 9, gives(5, 1, bert, 2), done(standing(bert, 6, 2))),
			did(3, 9, gives(5, 1, anna, 3), done(standing(anna, 7, 3))),
		}},
		{"a name won amid a transfer", false, []porcupine.Operation{
			did(1, 2, claims(anna, 1, 0), done(standing(anna, 5, 1))),
			did(3, 9, gives(5, 1, bert, 2), done(standing(bert, 7, 2))),
			did(4, 8, claims(anna, 3, 0), done(standing(anna, 6, 3))),
		}},
		{"an unknown acquire that was applied", true, []porcupine.Operation{
			did(1, forever, claims(anna, 1, 0), nothing),
			did(3, 4, claims(bert, 2, 0), standing(anna, 5, 1)),
			did(5, 6, releases(5, 1), done(nothing)),
		}},
		{"an unknown acquire that never was", true, []porcupine.Operation{
			did(1, forever, claims(anna, 1, 0), nothing),
			did(3, 4, claims(bert, 2, 0), done(standing(bert, 5, 2))),
			did(5, 6, releases(5, 2), done(nothing)),
			did(7, 8, get, nothing),
		}},
		{"an unknown acquire that lands after a read", true, []porcupine.Operation{
			did(1, forever, claims(anna, 1, 0), nothing),
			did(3, 4, get, nothing),
			did(5, 6, get, standing(anna, 5, 1)),
		}},
		{"an unknown acquire that lands twice", false, []porcupine.Operation{
			did(1, forever, claims(anna, 1, 0), nothing),
			did(3, 4, get, standing(anna, 5, 1)),
			did(5, 6, releases(5, 1), done(nothing)),
			did(7, 8, get, standing(anna, 6, 1)),
		}},
		{"an unknown acquire over another's", false, []porcupine.Operation{
			did(1, 2, claims(bert, 2, 0), done(standing(bert, 5, 2))),
			did(3, forever, claims(anna, 1, 0), nothing),
			did(5, 6, get, standing(anna, 6, 1)),
		}},
		{"an unseen token between is still a floor", false, []porcupine.Operation{
			did(1, forever, claims(anna, 1, 0), nothing),
			did(3, 4, get, standing(anna, 5, 1)),
			did(5, forever, releases(5, 1), nothing),
			did(7, 8, claims(bert, 2, 0), done(standing(bert, 4, 2))),
		}},
		{"an unknown release that takes another's", false, []porcupine.Operation{
			did(1, 2, claims(anna, 1, 0), done(standing(anna, 5, 1))),
			did(3, forever, releases(5, 1), nothing),
			did(5, 6, claims(anna, 2, 5), done(standing(anna, 6, 2))),
			did(7, 8, get, nothing),
		}},
		{"an unknown transfer that was applied", true, []porcupine.Operation{
			did(1, 2, claims(anna, 1, 0), done(standing(anna, 5, 1))),
			did(3, forever, gives(5, 1, bert, 2), nothing),
			did(5, 6, claims(anna, 3, 5), standing(bert, 6, 2)),
			did(7, 8, claims(bert, 4, 6), done(standing(bert, 7, 4))),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ok, decided := linearizable(c.ops)
			require.True(t, decided)
			require.Equal(t, c.want, ok)
			if !c.want {
				require.NotEmpty(t, shortest(c.ops))
			}
		})
	}
}

// TestShortest: of a long history, the report shows the end of the beginning
// that went wrong.
func TestShortest(t *testing.T) {
	var ops []porcupine.Operation
	token, now := store.Token(1), int64(1)
	for i := range 40 {
		nonce := uint64(i + 1)
		ops = append(ops,
			did(now, now+1, claims(anna, nonce, 0), done(standing(anna, token, nonce))),
			did(now+2, now+3, releases(token, nonce), done(reply{})))
		token, now = token+1, now+4
		if i == 20 {
			ops = append(ops, did(now, now+1, claims(bert, 999, 0), standing(bert, 1, 888)))
			now += 2
		}
	}
	said := shortest(ops)
	require.Equal(t, 25+1, strings.Count(said, "\n"), said)
	require.Contains(t, strings.Split(strings.TrimSpace(said), "\n")[25], "acquire by bert nonce=999")
}

// TestSeedRepeats: the draws of a run come from its seed alone.
func TestSeedRepeats(t *testing.T) {
	draws := func(seed uint64) (all []int) {
		synctest.Test(t, func(t *testing.T) {
			c := newT(t, twins(flawless), options{fake: true, seed: seed})
			for range 20 {
				all = append(all, c.random(1000))
			}
		})
		return all
	}
	require.Equal(t, draws(7), draws(7))
	require.NotEqual(t, draws(7), draws(8))
}

// TestDefaults: what the limits and options of a run come to.
func TestDefaults(t *testing.T) {
	c := newT(t, twins(flawless), options{})
	require.Equal(t, "1s 3s", c.ttl.String()+" "+c.slack.String())
	c = newT(t, twins(flawless), options{fake: true})
	require.Equal(t, "1s 100ms", c.ttl.String()+" "+c.slack.String())
	c = newT(t, func(TB) func() store.Store { return func() store.Store { return limited{newTwin(t, flawless)} } }, options{})
	require.Equal(t, "2s 4s", c.ttl.String()+" "+c.slack.String())
	require.Equal(t, 7, c.batch(c.client(), 50))
	require.Equal(t, 3, c.batch(c.client(), 3))
}

type limited struct{ *twin }

func (limited) Limits() store.Limits {
	return store.Limits{Name: "limited", MinTTL: 2e9, Batch: 7}
}
