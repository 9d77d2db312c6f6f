package membership

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// instruments are a Group's metrics. Each carries holdfast.keeper and
// holdfast.group.
type instruments struct {
	attrs   metric.MeasurementOption
	members metric.Int64Gauge
	losses  metric.Int64Counter
	changes metric.Int64Counter
	leading metric.Int64Gauge
}

func newInstruments(mp metric.MeterProvider, keeper, group string) (*instruments, error) {
	m := mp.Meter("github.com/holdfast-go/holdfast/membership")
	i := &instruments{attrs: metric.WithAttributeSet(attribute.NewSet(
		attribute.String("holdfast.keeper", keeper), attribute.String("holdfast.group", group)))}
	var errs [4]error
	i.members, errs[0] = m.Int64Gauge("holdfast.membership.members",
		metric.WithDescription("Members of the group, as this node sees it."))
	i.losses, errs[1] = m.Int64Counter("holdfast.membership.losses",
		metric.WithDescription("Times that this node lost its own membership against its will."))
	i.changes, errs[2] = m.Int64Counter("holdfast.membership.leader.changes",
		metric.WithDescription("Changes of leader that this node saw, those from and to nobody included."))
	i.leading, errs[3] = m.Int64Gauge("holdfast.membership.leading",
		metric.WithDescription("1 while this node leads, else 0."))
	return i, errors.Join(errs[:]...)
}

func (i *instruments) sawMembers(n int) { i.members.Record(context.Background(), int64(n), i.attrs) }
func (i *instruments) lost()            { i.losses.Add(context.Background(), 1, i.attrs) }

func (i *instruments) leader(change, leading bool) {
	var n int64
	if leading {
		n = 1
	}
	i.leading.Record(context.Background(), n, i.attrs)
	if change {
		i.changes.Add(context.Background(), 1, i.attrs)
	}
}
