package open

import (
	"context"
	"fmt"
	"regexp"
	"sync"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/store"
)

var (
	memoriesMu sync.Mutex
	memories   = map[string]*memory.Store{}
	memoryName = regexp.MustCompile(`^[A-Za-z0-9._-]{0,64}$`)
)

func openMemory(_ context.Context, name string) (store.Store, func() error, error) {
	if !memoryName.MatchString(name) {
		return nil, nil, fmt.Errorf("name: %w: %.64q, must be at most 64 letters, digits, '.', '_' and '-'", store.ErrInvalid, name)
	}
	memoriesMu.Lock()
	defer memoriesMu.Unlock()
	if memories[name] == nil {
		memories[name] = memory.New()
	}
	return memories[name], func() error { return nil }, nil
}
