//go:build linux

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/store"
)

func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("text"), []byte(strings.Repeat("this is no database. ", 500)), 0o600))
	require.NoError(t, os.Symlink(at("nothing"), at("dangling")))
	require.NoError(t, os.WriteFile(at("one"), nil, 0o600))
	require.NoError(t, os.Link(at("one"), at("two")))
	require.NoError(t, unix.Mkfifo(at("fifo"), 0o600))
	for _, c := range []struct {
		path string
		want error
		says string
	}{
		{"", store.ErrInvalid, "or a URI"},
		{"a\x00b", store.ErrInvalid, "or a URI"},
		{":memory:", store.ErrInvalid, "or a URI"},
		{"file:" + at("a"), store.ErrInvalid, "or a URI"},
		{at("none/leases"), store.ErrInvalid, "no such file"},
		{dir, store.ErrInvalid, "is no file"},
		{at("fifo"), store.ErrInvalid, "is no file"},
		{at("dangling"), store.ErrInvalid, "is no file"},
		{at("two"), store.ErrInvalid, "hard links"},
		{at("text"), store.ErrDenied, "not a database"},
		{"/proc/self/leases", store.ErrUnsupported, "local disk"},
	} {
		_, err := New(context.Background(), c.path)
		require.ErrorIs(t, err, c.want, "%q", c.path)
		require.ErrorContains(t, err, c.says, "%q", c.path)
	}
	unmade, ctx := &Store{}, context.Background()
	made := openAt(t, at("leases"))
	closed := openAt(t, at("leases"))
	require.NoError(t, closed.Close())
	for name, f := range calls() {
		require.ErrorIs(t, f(ctx, unmade), store.ErrInvalid, name)
		require.ErrorIs(t, f(inputtest.None, made), store.ErrInvalid, name)
		require.ErrorIs(t, f(ctx, closed), errClosed, name)
	}
	require.ErrorIs(t, unmade.Close(), store.ErrInvalid)
}

// calls are all that take a context.
func calls() map[string]func(context.Context, *Store) error {
	sess := store.Session{ID: 1, Owner: owner("a"), TTL: time.Minute}
	return map[string]func(context.Context, *Store) error{
		"OpenSession":  func(ctx context.Context, s *Store) error { _, err := s.OpenSession(ctx, sess); return err },
		"CloseSession": func(ctx context.Context, s *Store) error { return s.CloseSession(ctx, sess) },
		"Acquire":      func(ctx context.Context, s *Store) error { _, err := s.Acquire(ctx, sess, nil); return err },
		"Renew":        func(ctx context.Context, s *Store) error { _, err := s.Renew(ctx, nil); return err },
		"Release":      func(ctx context.Context, s *Store) error { _, err := s.Release(ctx, nil); return err },
		"Transfer":     func(ctx context.Context, s *Store) error { _, err := s.Transfer(ctx, nil); return err },
		"Get":          func(ctx context.Context, s *Store) error { _, err := s.Get(ctx); return err },
		"List": func(ctx context.Context, s *Store) (err error) {
			for _, err = range s.List(ctx, store.Query{}) {
				break
			}
			return err
		},
		"List of a session": func(ctx context.Context, s *Store) (err error) {
			for _, err = range s.List(ctx, store.Query{Session: sess.ID}) {
				break
			}
			return err
		},
		"Watch": func(ctx context.Context, s *Store) (err error) {
			for _, err = range s.Watch(ctx, store.Scope{}) {
				break
			}
			return err
		},
	}
}

// A path with what means something in URIs, and through a link, is that very file.
func TestPathsAreLiteral(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a b?mode=ro#x%41&.db")
	a := openAt(t, path)
	require.FileExists(t, path)
	require.NoError(t, os.Symlink(path, filepath.Join(dir, "link")))
	b := openAt(t, filepath.Join(dir, "link"))
	require.Equal(t, a.place.path, b.place.path)
	r := win(t, a, open(t, a, 1, owner("a"), time.Minute), "n")
	found := must(b.Get(context.Background(), "n"))(t)
	require.Len(t, found, 1)
	require.Equal(t, r.Token, found[0].Token)
}

// A file that is deleted, moved or replaced while processes use it ends everything there, and no
// process begins another at the path while a holder may believe in the former.
func TestAFileThatIsReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		replace func(t *testing.T, path string)
		says    string
	}{
		"deleted": {func(t *testing.T, path string) {
			for _, suffix := range []string{"", "-wal", "-shm"} {
				require.NoError(t, os.Remove(path+suffix))
			}
		}, "is gone"},
		"moved": {func(t *testing.T, path string) { require.NoError(t, os.Rename(path, path+".old")) }, "is gone"},
		"replaced": {func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path+".new", nil, 0o600))
			require.NoError(t, os.Rename(path+".new", path))
		}, "another file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			path := file(t)
			var now atomic.Int64
			machine := clock{boot: "boot", now: func() time.Duration { return time.Hour + time.Duration(now.Load()) }}
			s := must(newStore(ctx, path, machine))(t)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			const ttl = time.Minute
			sess := open(t, s, 1, owner("a"), ttl)
			old := win(t, s, sess, "job")
			watched := make(chan error, 1)
			go func() {
				var last error
				for _, err := range s.Watch(ctx, store.Scope{}) {
					last = err
				}
				watched <- last
			}()
			c.replace(t, path)
			other := func() error { // begins there, if it may
				brief, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
				defer cancel()
				s, err := newStore(brief, path, machine)
				if err == nil {
					require.NoError(t, s.Close())
				}
				return err
			}
			err := other() // the holder has perhaps not even noticed
			require.ErrorIs(t, err, ErrReplaced)
			require.ErrorContains(t, err, "still use")
			require.ErrorIs(t, <-watched, ErrReplaced)
			for name, f := range calls() {
				err := f(ctx, s)
				require.ErrorIs(t, err, ErrReplaced, name)
				require.ErrorIs(t, err, store.ErrSetback, name)
				require.ErrorContains(t, err, c.says, name)
			}
			now.Add(int64(ttl))
			require.ErrorIs(t, s.CloseSession(ctx, store.Session{ID: 1}), ErrReplaced)
			require.ErrorIs(t, other(), ErrReplaced, "it has noticed, and holders may believe in what it held")
			now.Add(1)
			require.ErrorIs(t, s.CloseSession(ctx, store.Session{ID: 1}), ErrReplaced) // no holder believes any more: it makes room
			if _, err := s.Get(ctx); err == nil {
				t.Fatal("it answers")
			}
			next := must(newStore(ctx, path, machine))(t)
			t.Cleanup(func() { require.NoError(t, next.Close()) })
			require.Greater(t, win(t, next, open(t, next, 2, owner("b"), time.Minute), "job").Token, old.Token)
			_, err = s.Renew(ctx, []store.Session{sess})
			require.ErrorIs(t, err, ErrReplaced, "also when another stands there")
		})
	}
}

// Also a call that has found the file where it was, and opens it when another stands there, or none,
// says that it was replaced, and not what SQLite finds there.
func TestAFileThatIsReplacedUnderACall(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	replace := []func(path string) error{
		os.Remove,
		func(path string) error { return os.Rename(path+".new", path) },
	}
	for i := range 60 {
		path := file(t)
		s := openAt(t, path)
		require.NoError(t, os.WriteFile(path+".new", nil, 0o600))
		end := make(chan error, 1)
		go func() {
			time.Sleep(time.Duration(i) * 10 * time.Microsecond)
			end <- replace[i%len(replace)](path)
		}()
		for _, prefix := range []string{"a", "b", "c"} { // each by a connection of its own
			for _, err := range s.List(ctx, store.Query{Prefix: prefix}) {
				require.ErrorIs(t, err, ErrReplaced)
				require.NotErrorIs(t, err, store.ErrDenied)
			}
		}
		require.NoError(t, <-end)
		_, err := s.Get(ctx, "a")
		require.ErrorIs(t, err, ErrReplaced)
		require.NoError(t, s.Close())
	}
}

// Without the file beside it the file is still the one that it was.
func TestTheFileBesideItIsLost(t *testing.T) {
	ctx := context.Background()
	path := file(t)
	s := openAt(t, path)
	sess := open(t, s, 1, owner("a"), time.Hour)
	win(t, s, sess, "job")
	require.NoError(t, os.Remove(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-holdfast")))
	other := openAt(t, path)
	require.False(t, claim1(t, other, open(t, other, 2, owner("b"), time.Hour), store.Claim{Name: "job", Nonce: 2}).OK)
	must(s.Renew(ctx, []store.Session{sess}))(t)
}

// An older copy that was put back while no process used the file has no sessions, and its tokens go
// on above those that it has forgotten.
func TestACopyThatWasPutBack(t *testing.T) {
	ctx := context.Background()
	path := file(t)
	s := must(New(ctx, path))(t)
	sess := open(t, s, 1, owner("a"), time.Hour)
	win(t, s, sess, "job")
	db := must(sql.Open("sqlite", path))(t)
	must(db.Exec("VACUUM INTO ?", path+".backup"))(t)
	require.NoError(t, db.Close())
	last := win(t, s, sess, "later")
	require.NoError(t, s.Close())
	for _, in := range []string{"its place", "the file itself"} {
		backup := must(os.ReadFile(path + ".backup"))(t)
		if in == "its place" {
			require.NoError(t, os.Remove(path))
		}
		require.NoError(t, os.WriteFile(path, backup, 0o600))
		s = must(New(ctx, path))(t)
		found := must(s.Get(ctx, "job", "later"))(t)
		if in == "its place" {
			require.Empty(t, found)
		}
		sess := open(t, s, 2, owner("b"), time.Hour)
		r := win(t, s, sess, "new"+in[:3])
		require.Greater(t, r.Token, last.Token)
		last = r
		require.NoError(t, s.Close())
	}
}

// An older copy that is written over the file while it is used is noticed by the processes that use it.
func TestACopyThatIsWrittenOverTheFile(t *testing.T) {
	ctx := context.Background()
	s := openAt(t, file(t))
	win(t, s, open(t, s, 1, owner("a"), time.Hour), "job")
	db := users(t, s.place.path, "")
	must(db.Exec("UPDATE holdfast_meta SET last = last - 1000000"))(t)
	_, err := s.Renew(ctx, nil)
	require.ErrorIs(t, err, ErrReplaced)
	require.ErrorContains(t, err, "went back")
}

// A reboot ends all sessions; what is held under another boot by a process that lives is of
// another machine.
func TestABootEndsEverySession(t *testing.T) {
	ctx := context.Background()
	path := file(t)
	now := time.Hour
	before := clock{boot: "before", now: func() time.Duration { return now }}
	s := must(newStore(ctx, path, before))(t)
	sess := open(t, s, 1, owner("a"), time.Hour)
	old := win(t, s, sess, "job")

	// It has not ended, and another machine can't begin: it would have to be on the same file
	// by a file system that is not refused, without locks.
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := newStore(brief, path, clock{boot: "other", now: func() time.Duration { return 0 }})
	require.ErrorIs(t, err, ErrReplaced)

	// Where locks do not reach, the one that was first is told.
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-holdfast")
	require.NoError(t, os.Rename(name, name+"-elsewhere"))
	after, err := newStore(ctx, path, clock{boot: "after", now: func() time.Duration { return time.Second }})
	require.NoError(t, err)
	found := must(after.Get(ctx, "job"))(t)
	require.Empty(t, found, "though its end would be an hour away by the new clock")
	r := win(t, after, open(t, after, 2, owner("b"), time.Minute), "job")
	require.Greater(t, r.Token, old.Token)
	_, err = s.Renew(ctx, []store.Session{sess})
	require.ErrorIs(t, err, ErrOtherMachine)
	require.ErrorIs(t, err, store.ErrSetback)
	_, err = s.Get(ctx, "job")
	require.ErrorIs(t, err, ErrOtherMachine)
	require.NoError(t, s.Close())
	require.NoError(t, after.Close())

	// And with no process left it is simply the next boot.
	again, err := newStore(ctx, path, clock{boot: "again", now: func() time.Duration { return 0 }})
	require.NoError(t, err)
	found = must(again.Get(ctx, "job"))(t)
	require.Empty(t, found)
	require.NoError(t, again.Close())
}

func TestSchemasOfOtherVersions(t *testing.T) {
	for version, says := range map[int]string{0: ": 0, this program knows 1", 2: ": 2, this program knows 1"} {
		path := file(t)
		s := openAt(t, path)
		db := users(t, path, "")
		must(db.Exec("UPDATE holdfast_meta SET version = ?", version))(t)
		_, err := New(context.Background(), path)
		require.ErrorIs(t, err, ErrSchema)
		require.ErrorIs(t, err, store.ErrDenied)
		require.ErrorContains(t, err, says)
		_, err = s.Get(context.Background(), "job")
		require.ErrorIs(t, err, ErrSchema, "also where it is open")
		must(db.Exec("UPDATE holdfast_meta SET version = 1"))(t) // and it goes on
		win(t, s, open(t, s, 1, owner("a"), time.Minute), "job")
	}
	utf16 := file(t)
	db := must(sql.Open("sqlite", utf16))(t)
	must(db.Exec("PRAGMA encoding = 'UTF-16'; CREATE TABLE t (x)"))(t)
	require.NoError(t, db.Close())
	_, err := New(context.Background(), utf16)
	require.ErrorIs(t, err, store.ErrUnsupported)
	require.ErrorContains(t, err, "UTF-8")
}

// A damaged file is an error that says so, and no panic.
func TestADamagedFile(t *testing.T) {
	path := file(t)
	s := must(New(context.Background(), path))(t)
	sess := open(t, s, 1, owner("a"), time.Hour)
	for i := range 100 {
		win(t, s, sess, fmt.Sprintf("job/%d", i))
	}
	require.NoError(t, s.Close())
	good := must(os.ReadFile(path))(t)
	for from := 4096; from < len(good); from += 4096 { // page by page
		bad := append([]byte{}, good...)
		for i := from; i < min(from+4096, len(bad)); i++ {
			bad[i] ^= 0xa5
		}
		require.NoError(t, os.WriteFile(path, bad, 0o600))
		s, err := New(context.Background(), path)
		if err == nil {
			for name, f := range calls() {
				if err := f(context.Background(), s); err != nil {
					require.NotErrorIs(t, err, ErrReplaced, name)
				}
			}
			require.NoError(t, s.Close())
			continue
		}
		require.ErrorIs(t, err, store.ErrDenied, "page %d", from/4096)
		require.ErrorContains(t, err, "damaged")
	}
	require.NoError(t, os.WriteFile(path, good[:len(good)/2], 0o600))
	_, err := New(context.Background(), path)
	require.ErrorIs(t, err, store.ErrDenied)
	require.False(t, errors.Is(err, ErrReplaced))
}

// The clock of leases is the time since the boot, with suspends, as the kernel tells it to
// everybody: no step of the machine's wall clock moves it.
func TestTheClockIsTheTimeSinceTheBoot(t *testing.T) {
	c := must(machineClock())(t)
	before := c.now()
	b := must(os.ReadFile("/proc/uptime"))(t)
	after := c.now()
	var up float64
	must(fmt.Sscan(string(b), &up))(t)
	tick := 10 * time.Millisecond // of /proc/uptime, which rounds down
	is := time.Duration(up * float64(time.Second))
	require.GreaterOrEqual(t, is, before-2*tick)
	require.LessOrEqual(t, is, after+2*tick)
}

func init() { roles["shifted"] = shifted }

// shifted opens a file, and guards a transaction in it, and says what came of it.
func shifted() {
	s, err := New(context.Background(), os.Getenv("FILE"))
	fmt.Println("new:", errors.Is(err, store.ErrUnsupported), err)
	if err == nil {
		_ = s.Close()
	}
	err = Guard(context.Background(), nil, nil)
	fmt.Println("guard:", errors.Is(err, store.ErrUnsupported), err)
}

// A process whose clock is shifted is refused: here in a time namespace that the kernel has made.
func TestAProcessInATimeNamespaceIsRefused(t *testing.T) {
	args := []string{"--time", "--boottime", "1000"}
	if out, err := exec.Command("unshare", append(args, "true")...).CombinedOutput(); err != nil {
		t.Skipf("no time namespace can be made here: %v: %s", err, out)
	}
	cmd := exec.Command("unshare", append(args, os.Args[0])...)
	cmd.Env = append(os.Environ(), roleEnv+"=shifted", "FILE="+file(t))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, 2, strings.Count(string(out), ": true "), "%s", out)
}

func TestTimeNamespaces(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, sharedTime(dir), "a kernel without")
	require.NoError(t, os.Symlink(machineTime, dir+"/time"))
	require.NoError(t, sharedTime(dir))
	require.NoError(t, os.Remove(dir+"/time"))
	require.NoError(t, os.Symlink("time:[4026532999]", dir+"/time"))
	require.ErrorIs(t, sharedTime(dir), store.ErrUnsupported)
	require.ErrorIs(t, sharedTime(dir+"/none"), store.ErrUnsupported, "no /proc")
}

// Names, metadata and owners of the greatest lengths and of odd letters come back as they were.
func TestOddTexts(t *testing.T) {
	ctx := t.Context()
	s := openAt(t, file(t))
	sess := store.Session{ID: math.MaxInt64, TTL: time.Hour, Owner: store.Owner{ID: "'; DROP TABLE holdfast_lease; --", Incarnation: "ü\u2028", Address: strings.Repeat("a", 255)}}
	must(s.OpenSession(ctx, sess))(t)
	names := []string{strings.Repeat("n", store.MaxName), "%_*?[a]", "Job", "job", "jöb", "\u00e9", "e\u0301", "\U0010ffff", "'\"`"}
	for i, name := range names {
		m := map[string]string{"": "", "nul": "a\x00b", "quotes": `'"`, "wide": "\U0010ffff"}
		out, err := s.Acquire(ctx, sess, []store.Claim{{Name: name, Nonce: math.MaxUint64 - uint64(i), Metadata: m}})
		require.NoError(t, err)
		require.True(t, out[0].OK, "%q: %+v", name, out)
		found := must(s.Get(ctx, name))(t)
		require.Len(t, found, 1, "%q", name)
		require.Equal(t, name, found[0].Name)
		require.Equal(t, m, found[0].Metadata)
		require.Equal(t, sess.Owner, found[0].Owner)
		require.Equal(t, sess.ID, found[0].Session)
		require.Equal(t, math.MaxUint64-uint64(i), found[0].Nonce)
		var listed int
		for r, err := range s.List(ctx, store.Query{Prefix: name}) {
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(r.Name, name))
			listed++
		}
		require.NotZero(t, listed)
	}
	for _, bad := range []string{"a\x00b", "\xff", "a\xc3", strings.Repeat("n", store.MaxName+1), ""} {
		out := must(s.Acquire(ctx, sess, []store.Claim{{Name: bad, Nonce: 1}}))(t)
		require.ErrorIs(t, out[0].Err, store.ErrInvalid, "%q", bad)
		found := must(s.Get(ctx, bad))(t)
		require.Empty(t, found, "%q", bad)
		for _, prefix := range []string{bad, bad + "\xff"} {
			for _, err := range s.List(ctx, store.Query{Prefix: prefix}) {
				require.NoError(t, err)
			}
		}
		require.ErrorIs(t, Guard(ctx, begin(t, users(t, s.place.path, "")), ownership{bad, 1}), store.ErrInvalid)
	}
	out, err := s.Acquire(ctx, sess, []store.Claim{{Name: "big", Nonce: 1, Metadata: map[string]string{"x": strings.Repeat("\x01", 1<<20)}}})
	require.NoError(t, err)
	require.True(t, out[0].OK || out[0].Err != nil)
}

// At the end of the numbers calls fail, and nothing is issued twice or below what was.
func TestTheEndOfNumbers(t *testing.T) {
	ctx := t.Context()
	path := file(t)
	s := openAt(t, path)
	sess := open(t, s, 1, owner("a"), time.Hour)
	db := users(t, path, "")
	must(db.ExecContext(ctx, "UPDATE holdfast_meta SET last = ?", int64(math.MaxInt64-1)))(t)
	last := win(t, s, sess, "last")
	require.Equal(t, store.Token(math.MaxInt64), last.Token)
	_, err := s.Acquire(ctx, sess, []store.Claim{{Name: "one more", Nonce: 1}})
	require.Error(t, err)
	must(s.Renew(ctx, []store.Session{sess}))(t)
	found := must(s.Get(ctx, "last", "one more"))(t)
	require.Len(t, found, 1)

	for _, year := range []int{1, 1969, 2300, 9999} { // a time of day that is far off
		other := openAt(t, file(t))
		other.wall = func() time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
		sess := open(t, other, 1, owner("a"), time.Hour)
		first := win(t, other, sess, "a")
		require.NotZero(t, first.Token)
		require.Greater(t, win(t, other, sess, "b").Token, first.Token)
	}
}

// A session that was taken away by hand leaves nothing to one that gets its ID.
func TestASessionThatIsTakenAwayByHand(t *testing.T) {
	ctx := t.Context()
	s := openAt(t, file(t))
	db := users(t, s.place.path, "")
	sess := open(t, s, 1, owner("a"), time.Hour)
	win(t, s, sess, "job")
	must(db.ExecContext(ctx, "DELETE FROM holdfast_session"))(t)
	found := must(s.Get(ctx, "job"))(t)
	require.Empty(t, found)
	g := must(s.Renew(ctx, []store.Session{sess}))(t)
	require.ErrorIs(t, g[0].Err, store.ErrSessionGone)
	open(t, s, 1, owner("b"), time.Hour)
	found = must(s.Get(ctx, "job"))(t)
	require.Empty(t, found, "it was told as free")
}
