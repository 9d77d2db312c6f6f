package etcd

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/store"
)

var values = &records{conn: conn{prefix: "p/"}}

func keyValue(value string) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte("p/a/b"), Value: []byte(value), Lease: 7, ModRevision: 42}
}

func TestRecordsComeBackAsTheyWere(t *testing.T) {
	for _, want := range []store.Record{
		{Owner: store.Owner{ID: "n", Incarnation: "i", Address: "h:1"}, Nonce: 1, TTL: 2 * time.Second, Metadata: map[string]string{"k": "v"}},
		{Owner: store.Owner{Incarnation: "i"}, Nonce: math.MaxUint64, TTL: 1500 * time.Millisecond},
		{Owner: store.Owner{Incarnation: "i"}, Nonce: 1, TTL: 1500 * time.Millisecond}, // the body of the one before, as are no others
		{Owner: store.Owner{Incarnation: "i"}, Nonce: 1, TTL: time.Second},
		{Owner: store.Owner{Incarnation: "i", Address: "h:1"}, Nonce: 1, TTL: time.Second},
		{Owner: store.Owner{Incarnation: "i", Address: "h:1"}, Nonce: 1, TTL: time.Second, Metadata: map[string]string{"k": "v"}},
		{Owner: store.Owner{Incarnation: "i", Address: "h:1"}, Nonce: 2, TTL: time.Second},
		{Owner: store.Owner{ID: "ü \" \\ \x00 !~", Incarnation: "i"}, Nonce: 0xabc, TTL: 365 * 24 * time.Hour},
	} {
		v := must(values.encode(want.Nonce, want.Owner, want.TTL, want.Metadata))(t)
		want.Name, want.Session, want.Token = "a/b", 7, 42
		got := must(values.decode(keyValue(v)))(t)
		require.Equal(t, want, got)
	}
}

// Of very many records of a few owners each body is parsed once, though callers change the records
// that they got:
// a listing reads all of them again and again.
func TestABodyIsReadOnce(t *testing.T) {
	s, at := &records{conn: conn{prefix: "p/"}}, time.UnixMilli(5)
	decode := func(inc string) store.Record {
		v, err := s.encode(1, store.Owner{ID: "n", Incarnation: inc, Address: "h:1"}, time.Second, map[string]string{"a": "b"})
		require.NoError(t, err)
		at = at.Add(time.Second) // each record has a time of its own
		r, err := s.decode(keyValue(stamp(v, at)))
		require.True(t, r.Granted.Equal(at))
		require.NoError(t, err)
		return r
	}
	first := decode("i")
	first.Metadata["a"] = "changed"
	require.Equal(t, map[string]string{"a": "b"}, decode("i").Metadata)
	for i := range 3 * mostBodies {
		decode(fmt.Sprint("i", i))
		require.LessOrEqual(t, len(s.bodies.byText), mostBodies)
	}
	v, err := s.encode(1, store.Owner{ID: "n", Incarnation: "i"}, time.Second, map[string]string{"a": "b"})
	require.NoError(t, err)
	kv := keyValue(stamp(v, at))
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = s.decode(kv) }), 6.0)
}

func TestWhatIsNoRecord(t *testing.T) {
	good := must(values.encode(0xab, store.Owner{ID: "n", Incarnation: "i"}, time.Second, nil))(t)
	for value, says := range map[string]string{
		"":                                      "foreign",
		"hello":                                 "foreign",
		"hf2" + good[3:]:                        "newer format",
		good[:10]:                               "truncated",
		good[:jsonStart]:                        "JSON",
		good[:len(good)-1]:                      "JSON",
		good + "x":                              "x",
		strings.Replace(good, "ab ", "AB ", 1):  "nonce",
		strings.Replace(good, "ab ", "xy ", 1):  "nonce",
		noncePrefix(1) + "{}":                   "no owner",
		noncePrefix(1) + `{"inc":"i","ttl":-1}`: "TTL",
		noncePrefix(1) + `{"inc":"i","ttl":9223372036854775807}`: "TTL",
	} {
		r, err := values.decode(keyValue(value))
		require.ErrorIs(t, err, store.ErrBadRecord, "%q", value)
		require.ErrorContains(t, err, says, "%q", value)
		require.ErrorContains(t, err, "p/a/b", "%q", value)
		require.Equal(t, store.Record{Name: "a/b"}, r, "%q", value)
	}
	kv := keyValue(good)
	kv.Lease = 0
	_, err := values.decode(kv)
	require.ErrorContains(t, err, "never expire")
}

// TestNonceConditions: a value lies between the bounds of its nonce, and of no
// other.
func TestNonceConditions(t *testing.T) {
	nonces := []uint64{0, 1, 0xf, 0x10, math.MaxUint32, math.MaxUint64 - 1, math.MaxUint64}
	for _, n := range nonces {
		for _, id := range []string{"", "~~", "\x00"} {
			v := must(values.encode(n, store.Owner{ID: id, Incarnation: id}, time.Second, nil))(t)
			for _, m := range nonces {
				require.Equal(t, n == m, noncePrefix(m) < v && v < nonceAfter(m), "a value of %x, bounds of %x", n, m)
			}
		}
	}
}

// FuzzDecode: no value makes it panic; what it takes for a record means the same
// when it is written again.
func FuzzDecode(f *testing.F) {
	good, err := values.encode(0xab, store.Owner{ID: "n", Incarnation: "i", Address: "a"}, time.Second, map[string]string{"k": "v"})
	require.NoError(f, err)
	stamped := stamp(good, time.Now())
	for _, seed := range []string{good, "", "hf1 ", good[:jsonStart], good[:len(good)-1], good + " ", "hf2" + good[3:],
		stamped, stamped[:len(good)+9],
		noncePrefix(1) + `{"inc":"i","ttl":9223372036854775807}`, noncePrefix(1) + `{"INC":"i","inc":"j"}`, noncePrefix(1) + `[]`, noncePrefix(1) + `null`,
		"hf1 +00000000000000a {}", "hf1 0x0000000000000a {}", noncePrefix(2) + `{"inc":"\ud800"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := values.decode(keyValue(string(value)))
		if err != nil {
			require.ErrorIs(t, err, store.ErrBadRecord)
			require.Equal(t, store.Record{Name: "a/b"}, r)
			return
		}
		require.NotEmpty(t, r.Owner.Incarnation)
		require.GreaterOrEqual(t, r.TTL, time.Duration(0))
		require.True(t, noncePrefix(r.Nonce) < string(value) && string(value) < nonceAfter(r.Nonce), "conditions on it would not hold")
		again := must(values.encode(r.Nonce, r.Owner, r.TTL, r.Metadata))(t)
		r2 := must(values.decode(keyValue(again)))(t)
		if len(r.Metadata) == 0 {
			r.Metadata = nil // {} is not told from none
		}
		require.True(t, r2.Granted.IsZero())
		r2.Granted = r.Granted
		require.Equal(t, r, r2)
	})
}

func TestVersions(t *testing.T) {
	for version, ok := range map[string]bool{
		"2.3.8": false, "3.3.27": false, "3.4.37": false, "3.4.38": true, "3.5.22": false, "3.5.23": true,
		"3.6.0-rc.1": false, "3.6.4": false, "3.6.5": true, "3.7.0": true, "3.7.3": true, "4.0.0": true,
		"": true, "git": true, // told nothing: held against nobody
	} {
		err := checkVersion(version)
		if ok {
			require.NoError(t, err, version)
			continue
		}
		require.ErrorIs(t, err, ErrServerTooOld, version)
		require.ErrorContains(t, err, version)
	}
}

// must returns what a call returned, which may not have failed.
func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}
