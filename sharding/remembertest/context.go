package remembertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

var contextCases = []testCase{
	{"cancelled", cancelled},
	{"cancelled-while-it-runs", cancelledLate},
}

func cancelled(k *kit, o lease.Ownership) {
	k.update(o, []string{"a"}, nil)
	ctx, cancel := context.WithCancel(k.Context())
	cancel()
	began := time.Now()
	for range 20 {
		if err := k.store.Update(ctx, o, []string{"b"}, []string{"a"}); !errors.Is(err, context.Canceled) {
			k.Fatalf("an Update whose context is done must say so: %v", err)
		}
		if ids, err := k.store.Load(ctx, o); !errors.Is(err, context.Canceled) || len(ids) > 0 {
			k.Fatalf("a Load whose context is done must say so: %q, %v", ids, err)
		}
	}
	k.soon(began)
	k.stands(o, "an Update whose context is done already applies nothing", "a")
}

// cancelledLate: what a call did whose context ended on the way is not known; the
// same once more makes it known.
func cancelledLate(k *kit, o lease.Ownership) {
	ids := numbered(2000)
	for _, after := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(k.Context(), after)
		err := k.store.Update(ctx, o, ids, nil)
		ended := time.Now().Add(-after)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			k.Fatalf("an Update whose context ended must say so: %v", err)
		}
		k.soon(ended)
		k.update(o, ids, nil)
		k.stands(o, "the same Update once more", ids...)
		k.update(o, nil, ids)
		k.stands(o, "all was removed")
	}
}

func (k *kit) soon(since time.Time) {
	k.Helper()
	if took := time.Since(since); took > soon {
		k.Errorf("calls must end soon after their context: took %v", took)
	}
}
