package gate

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestModeTransitions(t *testing.T) {
	table := []struct {
		from             Mode
		drain, lose, end Mode
	}{
		{Open, Draining, Lost, Ended},
		{Draining, Draining, Lost, Ended},
		{Lost, Lost, Lost, Ended},
		{Ended, Ended, Ended, Ended},
	}
	for _, row := range table {
		assert.Equal(t, row.drain, next(row.from, drain), "%v, drain", row.from)
		assert.Equal(t, row.lose, next(row.from, lose), "%v, lose", row.from)
		assert.Equal(t, row.end, next(row.from, end), "%v, end", row.from)
	}
}

func TestModeNames(t *testing.T) {
	assert.Equal(t, "open", Open.String())
	assert.Equal(t, "draining", Draining.String())
	assert.Equal(t, "lost", Lost.String())
	assert.Equal(t, "ended", Ended.String())
	assert.Equal(t, "mode 7", Mode(7).String())
}

func TestOneCallerCausesAChange(t *testing.T) {
	var s state
	var moved atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s.apply(drain)
			if _, ok := s.apply(lose); ok {
				moved.Add(1)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, moved.Load())
	assert.Equal(t, Lost, s.mode())
}
