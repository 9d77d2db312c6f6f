package sharding

import (
	"go.opentelemetry.io/otel/metric"
)

// instruments are a Region's metrics. They carry holdfast.node and holdfast.type.
type instruments struct {
	attrs         metric.MeasurementOption
	hosted        metric.Int64UpDownCounter
	entities      metric.Int64ObservableUpDownCounter
	waiting       metric.Int64ObservableUpDownCounter
	dropped       metric.Int64Counter
	undeliverable metric.Int64Counter
	unconfirmed   metric.Int64ObservableCounter
	relayed       metric.Int64Counter
	unordered     metric.Int64Counter
	overruns      metric.Int64Counter
	crashes       metric.Int64Counter
	handOff       metric.Float64Histogram
}
