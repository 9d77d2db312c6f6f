package sharding

import "github.com/holdfast-go/holdfast/internal/meters"

// instruments are a Region's metrics. They carry holdfast.node and holdfast.type.
type instruments struct {
	hosted        meters.Counter
	dropped       meters.Counter
	undeliverable meters.Counter
	relayed       meters.Counter
	unordered     meters.Counter
	overruns      meters.Counter
	crashes       meters.Counter
	handOff       meters.Times
}
