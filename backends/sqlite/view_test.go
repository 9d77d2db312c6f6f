//go:build linux

package sqlite

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

// reads are the ways to ask for a record of a session, which must all say the same: whether it
// stands.
func reads(s *Store, name string, sess store.Session) map[string]func(context.Context) (bool, error) {
	one := func(list func(yield func(store.Record, error) bool)) (bool, error) {
		for _, err := range list {
			return err == nil, err
		}
		return false, nil
	}
	return map[string]func(context.Context) (bool, error){
		"get":  func(ctx context.Context) (bool, error) { r, err := s.Get(ctx, name); return len(r) > 0, err },
		"list": func(ctx context.Context) (bool, error) { return one(s.List(ctx, store.Query{Prefix: name})) },
		"list session": func(ctx context.Context) (bool, error) {
			return one(s.List(ctx, store.Query{Session: sess.ID}))
		},
	}
}

// A session that is over by the clock, and whose renewal, begun in time, is not committed yet, is
// not told as gone: it would stand again. Until that is known the read waits.
func TestAReadWaitsForARenewalThatIsBeingCommitted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	path := file(t)
	var now atomic.Int64
	c := clock{boot: "boot", now: func() time.Duration { return time.Hour + time.Duration(now.Load()) }}
	at := func() *Store {
		s := must(newStore(ctx, path, c))(t)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	holder, reader := at(), at()
	long := open(t, holder, 2, owner("a"), time.Hour)
	win(t, holder, long, "long")
	sess := open(t, holder, 1, owner("a"), time.Minute)
	held := win(t, holder, sess, "job")
	must(holder.Renew(ctx, []store.Session{sess}))(t)
	began, goOn, renewed := make(chan bool, 1), make(chan struct{}), make(chan error, 1)
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	go func() {
		renewed <- holder.write(ctx, "renew", false, func(tx *tx) error {
			o, ok, err := tx.live(sess)
			if err == nil {
				o.TTL = time.Hour // so that it has not ended once more
				err = tx.renew(o)
			}
			began <- ok
			<-goOn
			return err
		})
	}()
	require.True(t, <-began, "it is renewed in time")
	now.Add(int64(time.Minute))
	for name, read := range reads(reader, "job", sess) {
		brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err := read(brief)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, "%s: it is said to be gone, and is renewed", name)
	}
	for name, read := range reads(reader, "long", long) {
		stands, err := read(ctx)
		require.NoError(t, err, name)
		require.True(t, stands, "%s: what stands is told at once", name)
	}
	var all sync.WaitGroup
	for name, read := range reads(reader, "job", sess) {
		all.Go(func() {
			stands, err := read(ctx)
			assert.NoError(t, err, name)
			assert.True(t, stands, "%s: it was renewed", name)
		})
	}
	time.Sleep(50 * time.Millisecond)
	release()
	require.NoError(t, <-renewed)
	all.Wait()
	found := must(reader.Get(ctx, "job"))(t)
	require.Equal(t, held.Token, found[0].Token)
	require.NotZero(t, found[0].Left)
}

// What has run out is told as gone also where it can't be removed, and at once.
func TestWhatHasRunOutIsGone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openAt(t, quickFile(t))
	sess := open(t, s, 1, owner("a"), 30*time.Millisecond)
	db := users(t, s.Path(), "")
	_, err := db.ExecContext(ctx, "INSERT INTO holdfast_lease VALUES ('job', 1, 1, 1, 1, 0, NULL)")
	require.NoError(t, err)
	time.Sleep(40 * time.Millisecond)
	for name, read := range reads(s, "job", sess) {
		stands, err := read(ctx)
		require.False(t, stands, name)
		if name == "list session" {
			require.ErrorIs(t, err, store.ErrSessionGone)
		} else {
			require.NoError(t, err, name)
		}
	}
	var rows int
	require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM holdfast_lease").Scan(&rows))
	require.Equal(t, 1, rows, "a read removes nothing")
}
