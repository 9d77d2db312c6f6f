//go:build linux

package sqlite

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

// follow collects the events of a watch, behind its snapshot, and how it ended.
func follow(t *testing.T, s *Store) (events <-chan store.Event, ended <-chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	synced, told, end := make(chan struct{}), make(chan store.Event, 100), make(chan error, 1)
	go func() {
		var last error
		for e, err := range s.Watch(ctx, store.Scope{}) {
			switch {
			case err != nil:
				last = err
			case e.Kind == store.EventSynced:
				close(synced)
			case e.Kind != store.EventPut:
				told <- e
			}
		}
		end <- last
		close(end)
	}()
	t.Cleanup(func() { cancel(); <-end })
	<-synced
	return told, end
}

// What is done by hand, with any program, is told to watches.
func TestADeletionByHandIsTold(t *testing.T) {
	s := openAt(t, file(t))
	db := users(t, s.Path(), "")
	r := win(t, s, open(t, s, 1, owner("a"), time.Minute), "job")
	events, _ := follow(t, s)
	must(db.Exec("DELETE FROM holdfast_lease WHERE name = 'job'"))(t)
	e := <-events
	require.Equal(t, store.EventDelete, e.Kind)
	require.Equal(t, "job", e.Record.Name)
	require.Greater(t, e.Revision, r.Token)
	next := win(t, s, open(t, s, 2, owner("b"), time.Minute), "job")
	require.Greater(t, next.Token, e.Revision)
}

// A watch that is behind by more than is kept ends with an error, and not with a gap.
func TestAWatchThatIsTooFarBehind(t *testing.T) {
	s := openAt(t, file(t))
	db := users(t, s.Path(), "&_txlock=immediate")
	sess := open(t, s, 1, owner("a"), time.Minute)
	win(t, s, sess, "one")
	win(t, s, sess, "two")
	_, ended := follow(t, s)
	tx := begin(t, db)
	must(tx.Exec("DELETE FROM holdfast_lease"))(t)
	_, err := tx.Exec("DELETE FROM holdfast_change WHERE seq < (SELECT max(seq) FROM holdfast_change)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.ErrorIs(t, <-ended, ErrWatchOverrun)

	_, again := follow(t, s) // and another snapshot can be had
	win(t, s, sess, "three")
	require.Empty(t, again)
}

// The log does not grow for ever.
func TestTheLogIsCut(t *testing.T) {
	ctx := context.Background()
	s := openAt(t, file(t))
	sess := open(t, s, 1, owner("a"), time.Hour)
	db := users(t, s.Path(), "")
	_, err := db.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2 * ?)
		INSERT INTO holdfast_change (rev, kind, name) SELECT 1, 2, 'x' FROM n`, kept)
	require.NoError(t, err)
	r := win(t, s, sess, "job")
	must(s.Release(ctx, []store.Held{r.Held()}))(t)
	var rows int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM holdfast_change").Scan(&rows))
	require.Equal(t, kept, rows)
}
