package provider_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/provider"
	"github.com/holdfast-go/holdfast/store"
)

// bounded is a store with limits, which counts what it is asked.
type bounded struct {
	*memory.Store
	limits func() store.Limits
}

func (b bounded) Limits() store.Limits { return b.limits() }

func asked(s *memory.Store) uint64 {
	x := s.Stats()
	return x.OpenSession + x.CloseSession + x.Acquire + x.Renew + x.Release + x.Transfer + x.Get
}

// Every call with every bad argument is refused before the store is asked, with the argument's name
// and its bound.
func TestEveryCallRefusesBadArguments(t *testing.T) {
	limits := store.Limits{Name: "small", MinTTL: 2 * time.Second, MaxTTL: time.Hour, MaxMetadata: 64, CheckName: func(name string) error {
		if len(name) > 20 {
			return errors.New("at most 20 bytes")
		}
		return nil
	}}
	s := memory.New()
	p := over(t, bounded{s, func() store.Limits { return limits }})
	type args struct {
		ctx             context.Context
		key, owner, to  string
		ttl             time.Duration
		name, says, not string
	}
	good := args{ctx: t.Context(), key: "k", owner: "a", to: "b", ttl: time.Minute}
	with := func(change func(*args), name, says, not string) args {
		a := good
		change(&a)
		a.name, a.says, a.not = name, says, not
		return a
	}
	calls := map[string]func(args) error{
		"acquire":  func(a args) error { _, err := p.Acquire(a.ctx, a.key, a.owner, a.ttl); return err },
		"owner":    func(a args) error { _, err := p.Owner(a.ctx, a.key); return err },
		"renew":    func(a args) error { _, err := p.Renew(a.ctx, a.key, a.owner, a.ttl); return err },
		"release":  func(a args) error { return p.Release(a.ctx, a.key, a.owner) },
		"transfer": func(a args) error { _, err := p.Transfer(a.ctx, a.key, a.owner, a.to, a.ttl); return err },
	}
	for call, do := range calls {
		require.NoError(t, do(good), call)
	}
	for _, a := range []args{
		with(func(a *args) { a.ctx = nil }, "ctx", "nil", ""),
		with(func(a *args) { a.key = "" }, "name", "empty", ""),
		with(func(a *args) { a.key = "\xff" }, "name", "not UTF-8", ""),
		with(func(a *args) { a.key = strings.Repeat("x", store.MaxName) }, "name", "at most 512", ""),
		with(func(a *args) { a.key = strings.Repeat("x", 15) }, "name", "at most 20 bytes (a bound of store small)", ""),
		with(func(a *args) { a.owner = "" }, "owner", "empty", "owner"),
		with(func(a *args) { a.owner = "\xff" }, "owner", "not UTF-8", "owner"),
		with(func(a *args) { a.owner = strings.Repeat("x", 257) }, "owner", "257 bytes, at most 256", "owner"),
		with(func(a *args) { a.to = "" }, "to", "empty", "acquire owner renew release"),
		with(func(a *args) { a.to = "\xff" }, "to", "not UTF-8", "acquire owner renew release"),
		with(func(a *args) { a.to = strings.Repeat("x", 257) }, "to", "at most 256", "acquire owner renew release"),
		with(func(a *args) { a.ttl = 0 }, "ttl", "at least 2s", "owner release"),
		with(func(a *args) { a.ttl = -time.Second }, "ttl", "at least 2s", "owner release"),
		with(func(a *args) { a.ttl = time.Second }, "ttl", "at least 2s", "owner release"),
		with(func(a *args) { a.ttl = time.Hour + 1 }, "ttl", "at most 1h0m0s", "owner release"),
	} {
		for call, do := range calls {
			before := asked(s)
			err := do(a)
			if strings.Contains(" "+a.not+" ", " "+call+" ") {
				require.NoError(t, err, call)
				continue
			}
			require.ErrorIs(t, err, lease.ErrInvalid, "%s: %+v", call, a)
			require.Equal(t, before, asked(s), "the store was asked")
			require.NotErrorIs(t, err, lease.ErrUnknown)
			require.ErrorContains(t, err, "provider: "+call)
			require.ErrorContains(t, err, a.name)
			require.ErrorContains(t, err, a.says)
		}
	}
}

// Stores with which no call could succeed are refused at once.
func TestStoresThatCanHoldNothing(t *testing.T) {
	for says, l := range map[string]store.Limits{
		"must leave a TTL of 1ms to 8760h0m0s (store s)": {Name: "s", MinTTL: 8761 * time.Hour},
		"MinTTL -1ns":                    {MinTTL: -1},
		"MaxTTL -1ns":                    {MaxTTL: -1},
		"MinTTL 2s and MaxTTL 1s":        {MinTTL: 2 * time.Second, MaxTTL: time.Second},
		"MinTTL 0s and MaxTTL 100":       {MaxTTL: 100},
		"at most 40 (a bound of store s": {Name: "s", MaxMetadata: 40},
		"(store provider_test.bounded)":  {MaxTTL: 1},
	} {
		_, err := provider.New(bounded{memory.New(), func() store.Limits { return l }})
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, "provider.New: ")
		require.ErrorContains(t, err, says)
	}
	_, err := provider.New(bounded{memory.New(), func() store.Limits { panic("rude") }})
	require.ErrorContains(t, err, "rude")
	p := over(t, bounded{memory.New(), func() store.Limits {
		return store.Limits{CheckName: func(string) error { panic("rude") }, MaxMetadata: 53}
	}})
	_, err = p.Acquire(t.Context(), "k", "a", time.Second)
	require.ErrorContains(t, err, "rude")
	p = over(t, bounded{memory.New(), func() store.Limits { return store.Limits{MaxMetadata: 53} }})
	require.True(t, acquire(t, p, "k", "a", 8760*time.Hour-1).Acquired, "the longest metadata")
	require.NoError(t, p.Release(t.Context(), "k", "a"))
}
