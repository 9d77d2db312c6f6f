package lease

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
)

// tickWarm keeps a session of the default TTL open that has room (Config.Warm).
func (k *Keeper) tickWarm(now Reading, soon func(time.Duration)) {
	if !k.cfg.Warm || k.closing {
		return
	}
	p := k.poolLocked(sharing{ttl: k.cfg.TTL})
	if k.roomLocked(p) != nil || p.opening != nil {
		return
	}
	if now.Mono >= k.warmAt {
		k.warmAt = now.Mono + k.cfg.RetryMax
		k.wg.Go(func() { k.warm(p) })
	}
	soon(k.warmAt)
}

func (k *Keeper) warm(p *pool) {
	s, err := k.reserve(context.Background(), p)
	if errors.Is(err, ErrDenied) {
		k.mu.Lock()
		k.warmAt = k.clock.Now().Mono + k.cfg.TTL
		k.mu.Unlock()
	}
	if err != nil {
		k.aside("no session could be opened ahead of need", zap.Error(err))
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unreserveLocked(s)
}

// spareLocked reports whether s, which holds nothing, is the one that is kept
// open ahead of need.
func (k *Keeper) spareLocked(s *session) bool {
	return k.cfg.Warm && s.pool == k.pools[sharing{ttl: k.cfg.TTL}] && k.roomLocked(s.pool) == s
}
