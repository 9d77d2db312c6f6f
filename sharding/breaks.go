package sharding

import (
	"sync"
	"time"
)

// breaks are when links broke, by address.
type breaks struct {
	mu sync.Mutex
	at map[string]time.Duration
}

// maxBreaks bounds how many addresses are remembered.
const maxBreaks = 1024

func (b *breaks) note(address string, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at == nil || len(b.at) >= maxBreaks {
		b.at = map[string]time.Duration{}
	}
	b.at[address] = now
}

func (b *breaks) of(address string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at[address]
}
