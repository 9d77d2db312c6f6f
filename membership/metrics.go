package membership

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast/internal/meters"
)

// instruments are a Group's metrics. Each carries holdfast.keeper and
// holdfast.group.
type instruments struct {
	members meters.Gauge
	losses  meters.Counter
	changes meters.Counter
	leading meters.Gauge
}

func newInstruments(mp metric.MeterProvider, keeper, group string) (*instruments, error) {
	m := meters.New(mp, "membership", attribute.String("holdfast.keeper", keeper), attribute.String("holdfast.group", group))
	i := &instruments{
		members: m.Gauge("members", "Members of the group, as this node sees it."),
		losses:  m.Counter("losses", "Times that this node lost its own membership against its will."),
		changes: m.Counter("leader.changes", "Changes of leader that this node saw, including those from and to no leader."),
		leading: m.Gauge("leading", "1 while this node leads, else 0."),
	}
	return i, m.Err()
}

func (i *instruments) leader(changes int, leading bool) {
	n := int64(0)
	if leading {
		n = 1
	}
	i.leading.Set(n)
	i.changes.Add(int64(changes))
}
