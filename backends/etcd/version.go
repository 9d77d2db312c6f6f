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

// versions are those of the servers behind the client's endpoints. Each endpoint is asked: before the
// first session, when it is new, and when there is a new connection, as after a restart. A server that
// does not answer is not refused.
type versions struct {
	conn *conn

	mu     sync.Mutex
	known  map[string]error     // by endpoint that answered last time: nil, or why it is refused
	asked  time.Time            // zero: never
	again  bool                 // a connection was made since they were asked
	open   map[string]*question // under way, by endpoint
	silent bool                 // that none told its version was logged
}

// connected notes that a new connection is made.
func (v *versions) connected() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.again = true
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

// due reports whether endpoints must be asked: none is known, one is refused, there was a new
// connection, or one has not answered for a while.
func (v *versions) due(endpoints []string) bool {
	known, refused := v.judge(endpoints)
	v.mu.Lock()
	defer v.mu.Unlock()
	unknown := slices.ContainsFunc(endpoints, func(ep string) bool { _, ok := v.known[ep]; return !ok })
	return !known || refused != nil || v.again || unknown && time.Since(v.asked) >= versionPause
}

// check refuses servers that are too old. Where it must ask it waits for the answers.
func (v *versions) check(ctx context.Context, endpoints []string) error {
	if v.due(endpoints) {
		v.askAll(ctx, endpoints)
	}
	_, refused := v.judge(endpoints)
	return refused
}

// confirm asks servers that answer all else once more if none has told its version: one that has
// just started does not at first. If none does, that is logged, and again only after one did.
func (v *versions) confirm(ctx context.Context, endpoints []string) error {
	known, _ := v.judge(endpoints)
	if !known {
		if err := v.check(ctx, endpoints); err != nil {
			return err
		}
		known, _ = v.judge(endpoints)
	}
	v.mu.Lock()
	warned := v.silent
	v.silent = !known
	v.mu.Unlock()
	if !known && !warned {
		v.conn.log.Warn("no etcd server told its version", zap.Strings("endpoints", endpoints))
	}
	return nil
}

// question is what one endpoint is asked.
type question struct {
	done    chan struct{} // closed when it is answered, or will not be
	known   bool
	refused error
}

// ask returns the question to endpoint that is under way, or a new one. There is one at
// a time: with authentication the client fetches a token first, which no timeout
// bounds, and more of them would pile up.
func (v *versions) ask(endpoint string) *question {
	v.mu.Lock()
	defer v.mu.Unlock()
	if q := v.open[endpoint]; q != nil {
		return q
	}
	if v.open == nil {
		v.open = map[string]*question{}
	}
	q := &question{done: make(chan struct{})}
	v.open[endpoint] = q
	go func() {
		ctx, cancel := context.WithTimeout(v.conn.client.Ctx(), versionTimeout)
		defer cancel()
		st, err := v.conn.client.Maintenance.Status(ctx, endpoint)
		if q.known = err == nil; q.known {
			if err = checkVersion(st.Version); err != nil {
				q.refused = fmt.Errorf("%s: %w", endpoint, err)
			}
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.open, endpoint)
		close(q.done)
	}()
	return q
}

// askAll asks all endpoints at once: those that are down must not eat up ctx.
func (v *versions) askAll(ctx context.Context, endpoints []string) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	v.mu.Lock()
	v.again = false // from here on
	v.mu.Unlock()
	asked := make(map[string]*question, len(endpoints))
	for _, ep := range endpoints {
		asked[ep] = v.ask(ep)
	}
	known := make(map[string]error, len(endpoints))
	for ep, q := range asked {
		select {
		case <-q.done:
		case <-ctx.Done():
		}
		select {
		case <-q.done: // perhaps at the last moment
			if q.known {
				known[ep] = q.refused
			}
		default:
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known, v.asked = known, time.Now()
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
