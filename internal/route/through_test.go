package route

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// What went straight on may still be under way: a marker goes behind it until it has
// been quiet for Rest since the Tick that it asked for.
func TestWhatWentThroughIsNotOvertaken(t *testing.T) {
	const rest = 5 * time.Second
	for _, c := range []struct {
		name   string
		after  func(d *desk)
		marker bool
	}{
		{"at once", func(*desk) {}, true},
		{"long after, with no Tick yet", func(d *desk) { d.now += time.Hour }, true},
		{"just before Rest after the Tick", func(d *desk) { d.now += rest; d.r.Tick(); d.now += rest - 1 }, true},
		{"Rest after the Tick", func(d *desk) { d.now += rest; d.r.Tick(); d.now += rest }, false},
		{"and once more", func(d *desk) { d.now += rest; d.r.Tick(); d.now += rest; d.through() }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(0, 10, DropNewest)
			d.now = time.Hour
			d.r.Host(self(1), 5, true)
			d.accept(1, 1) // finds the way
			d.now += time.Hour
			d.wakes = nil
			for range 3 {
				require.True(t, d.through())
			}
			require.Equal(t, []time.Duration{rest}, d.wakes)
			c.after(d)
			d.sent = nil
			d.r.Host(self(2), 7, true)
			d.accept(2, 2)
			require.Len(t, d.sent, 1)
			if _, marker := d.sent[0].(*wire.Marker); marker != c.marker {
				t.Fatalf("sent %T", d.sent[0])
			}
		})
	}
}

func (d *desk) through() bool {
	_, _, ok := d.r.Through()
	return ok
}
