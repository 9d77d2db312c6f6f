package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

// oldest maps a minor version to the first release without the known faults in
// leases.
var oldest = map[[2]int]int{{3, 4}: 38, {3, 5}: 23, {3, 6}: 5}

const (
	// versionTimeout bounds the question.
	versionTimeout = 300 * time.Millisecond
	// versionPause is between questions to endpoints that do not answer.
	versionPause = 10 * time.Second
)

// versions is what the servers behind the client's endpoints say theirs are. Each
// endpoint is asked: before the first session, when it is new, and when there is a
// new connection, as after a restart. A server that does not tell is not held
// against anybody.
type versions struct {
	mu     sync.Mutex
	known  map[string]error // by endpoint, of those that answered last time: nil, or why it is refused
	asked  time.Time        // zero: never
	asking bool             // in the background
	anew   bool             // a connection was made since they were asked
}

// connected notes that a new connection is made.
func (v *versions) connected() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.anew = true
}

// judge tells whether any of endpoints is known, and the first refusal of one.
func (v *versions) judge(endpoints []string) (known bool, refused error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, ep := range endpoints {
		err, ok := v.known[ep]
		known = known || ok
		if refused == nil {
			refused = err
		}
	}
	return known, refused
}

// due tells whether endpoints are to be asked in the background, and that they
// then are.
func (v *versions) due(endpoints []string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	unknown := slices.ContainsFunc(endpoints, func(ep string) bool { _, ok := v.known[ep]; return !ok })
	if v.asking || v.asked.IsZero() || !v.anew && !(unknown && time.Since(v.asked) >= versionPause) {
		return false
	}
	v.asking = true
	return true
}

// checkVersions refuses servers that are too old. It asks, and waits for the
// answers, if none is known, or one is refused; else what is due is asked in the
// background, for the next call.
func (s *Store) checkVersions(ctx context.Context, endpoints []string) error {
	known, refused := s.versions.judge(endpoints)
	if known && refused == nil {
		s.recheckVersions(endpoints)
		return nil
	}
	s.askVersions(ctx, endpoints)
	if known, refused = s.versions.judge(endpoints); !known {
		s.log.Warn("no etcd server told its version", zap.Strings("endpoints", endpoints))
	}
	return refused
}

// recheckVersions asks in the background if that is due. What is too old then is
// logged: sessions that are open are renewed all the same, and no new one is opened.
func (s *Store) recheckVersions(endpoints []string) {
	if !s.versions.due(endpoints) {
		return
	}
	go func() {
		s.askVersions(s.client.Ctx(), endpoints)
		s.versions.mu.Lock()
		s.versions.asking = false
		s.versions.mu.Unlock()
		if _, refused := s.versions.judge(endpoints); refused != nil {
			defer func() { _ = recover() }() // the logger is the user's, and the goroutine ours
			s.log.Error("an etcd server is too old: no further session is opened", zap.Error(refused))
		}
	}()
}

// askVersions asks all endpoints at once: those that are down must not eat up ctx.
func (s *Store) askVersions(ctx context.Context, endpoints []string) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	s.versions.mu.Lock()
	s.versions.anew = false // from here on
	s.versions.mu.Unlock()
	type answer struct {
		endpoint string
		refused  error
		none     bool
	}
	answers := make(chan answer, len(endpoints))
	for _, ep := range endpoints {
		go func() { // with authentication it fetches a token first, for which ctx is no bound
			st, err := s.client.Maintenance.Status(ctx, ep)
			if err != nil {
				answers <- answer{none: true}
				return
			}
			if err = checkVersion(st.Version); err != nil {
				err = fmt.Errorf("%s: %w", ep, err)
			}
			answers <- answer{endpoint: ep, refused: err}
		}()
	}
	known := make(map[string]error, len(endpoints))
	for range endpoints {
		select {
		case a := <-answers:
			if !a.none {
				known[a.endpoint] = a.refused
			}
			continue
		case <-ctx.Done():
		}
		break
	}
	s.versions.mu.Lock()
	defer s.versions.mu.Unlock()
	s.versions.known, s.versions.asked = known, time.Now()
}

func checkVersion(version string) error {
	var v [3]int
	if n, _ := fmt.Sscanf(strings.SplitN(version, "-", 2)[0], "%d.%d.%d", &v[0], &v[1], &v[2]); n < 3 {
		return nil
	}
	patch, listed := oldest[[2]int{v[0], v[1]}]
	if old := v[0] < 3 || v[0] == 3 && v[1] < 4; old || listed && v[2] < patch {
		return fmt.Errorf("%w: %s, must be at least 3.4.38, 3.5.23 or 3.6.5", ErrServerTooOld, version)
	}
	return nil
}
