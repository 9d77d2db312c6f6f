package etcd

import (
	"cmp"
	"context"
	"fmt"
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
	versionTimeout = 500 * time.Millisecond
	// versionPause is between questions to endpoints that do not answer.
	versionPause = 10 * time.Second
)

// versions are those of the servers behind the client's endpoints. Each endpoint is asked: before the
// first session, when it is new, and when there is a new connection, as after a restart. A server that
// does not answer is not refused.
type versions struct {
	conn *conn

	mu     sync.Mutex
	known  map[string]error // by endpoint that answered last time: nil, or why it is refused
	asked  time.Time        // zero: never
	again  bool             // a connection was made since they were asked
	silent bool             // that none told its version was logged
}

// connected notes that a new connection is made.
func (v *versions) connected() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.again = true
}

// judgeLocked tells how many of endpoints are known, and the first refusal of one.
func (v *versions) judgeLocked(endpoints []string) (known int, refused error) {
	for _, ep := range endpoints {
		err, ok := v.known[ep]
		if ok {
			known++
		}
		refused = cmp.Or(refused, err)
	}
	return known, refused
}

// check refuses servers that are too old. It asks, and waits for the answers, if none is known, one was
// refused, there was a new connection, or one has not answered for a while. That none tells its version
// is logged, and again only after one did.
func (v *versions) check(ctx context.Context, endpoints []string) error {
	v.mu.Lock()
	known, refused := v.judgeLocked(endpoints)
	silent := known < len(endpoints) && time.Since(v.asked) >= versionPause
	if known > 0 && refused == nil && !v.again && !silent {
		v.mu.Unlock()
		return nil
	}
	v.again = false // from here on
	v.mu.Unlock()

	answers := v.ask(ctx, endpoints)
	v.mu.Lock()
	v.known, v.asked = answers, time.Now()
	known, refused = v.judgeLocked(endpoints)
	warned := v.silent
	v.silent = known == 0
	v.mu.Unlock()
	if known == 0 && !warned {
		v.conn.log.Warn("no etcd server told its version", zap.Strings("endpoints", endpoints))
	}
	return refused
}

// ask asks all endpoints at once: those that are down must not eat up ctx.
func (v *versions) ask(ctx context.Context, endpoints []string) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	var mu sync.Mutex
	answers := make(map[string]error, len(endpoints))
	var asking sync.WaitGroup
	for _, ep := range endpoints {
		asking.Go(func() {
			st, err := v.conn.client.Maintenance.Status(ctx, ep)
			if err != nil {
				return
			}
			if err = checkVersion(st.Version); err != nil {
				err = fmt.Errorf("%s: %w", ep, err)
			}
			mu.Lock()
			defer mu.Unlock()
			answers[ep] = err
		})
	}
	asking.Wait()
	return answers
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
