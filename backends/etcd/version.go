package etcd

import (
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

// checkVersions refuses servers that are too old, once. A server that does not
// tell its version is not held against anybody.
func (s *Store) checkVersions(ctx context.Context) error {
	if s.checked.Load() {
		return nil
	}
	// All are asked at once: those that are down must not eat up ctx.
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	endpoints := s.client.Endpoints()
	refused := make(chan error, len(endpoints)) // nil: new enough
	var asked sync.WaitGroup
	for _, ep := range endpoints {
		asked.Go(func() {
			version, err := s.version(ctx, ep)
			if err != nil {
				return
			}
			if err := checkVersion(version); err != nil {
				refused <- fmt.Errorf("%s: %w", ep, err)
				return
			}
			refused <- nil
		})
	}
	go func() { asked.Wait(); close(refused) }()
	// One answer is enough: members of a cluster are of one minor version, or on
	// their way to it.
	err, known := <-refused
	if err != nil {
		return err
	}
	if !known {
		s.log.Warn("no etcd server told its version", zap.Strings("endpoints", endpoints))
	}
	s.checked.Store(known)
	return nil
}

// versionTimeout bounds the question.
const versionTimeout = 300 * time.Millisecond

func (s *Store) version(ctx context.Context, endpoint string) (string, error) {
	st, err := s.client.Maintenance.Status(ctx, endpoint)
	if err != nil {
		return "", err
	}
	return st.Version, nil
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
