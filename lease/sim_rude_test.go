package lease_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/lease"
)

// rudeUser is the loggers and meters of a node: code of the user's, which may do as
// it likes.
type rudeUser struct {
	manner string
	keeper atomic.Pointer[lease.Keeper]
	calm   chan struct{} // closed when it may block no more

	mu sync.Mutex
	r  *rand.Rand
}

var manners = []string{"polite", "polite", "blocks", "panics", "calls back"}

func (s *sim) newUser() *rudeUser {
	return &rudeUser{manner: manners[s.r.IntN(len(manners))], calm: s.polite, r: rand.New(rand.NewPCG(s.r.Uint64(), 3))}
}

// serve makes it the user of a Keeper that is to be.
func (u *rudeUser) serve(cfg *lease.Config) {
	cfg.Logger = zap.NewNop()
	if u.manner != "polite" {
		cfg.Logger, cfg.MeterProvider = calling(func(string) { u.act() }), measuring{f: u.act}
	}
}

func (u *rudeUser) act() {
	u.mu.Lock()
	now := u.r.IntN(4) == 0
	u.mu.Unlock()
	k := u.keeper.Load()
	if !now || k == nil {
		return
	}
	switch u.manner {
	case "blocks":
		<-u.calm
	case "panics":
		panic("a rude user")
	case "calls back":
		done, cancel := context.WithCancel(context.Background())
		cancel()
		_ = k.Health(done)
		if h, err := k.Lease("the logger's own"); err == nil {
			_ = h.Close(done)
		}
	}
}
