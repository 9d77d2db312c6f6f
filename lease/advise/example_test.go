package advise_test

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/lease/advise"
)

// A scheduler: a crash each quarter of a year, a minute without it costs 1; the store fails over
// once a month, for two seconds, and a run that is broken off costs 30.
func ExampleTTL() {
	const perMonth = 1. / (30 * 24)
	a, err := advise.TTL(advise.Input{
		RoundTrip: 2 * time.Millisecond, Tail: 80 * time.Millisecond,
		Crashes: perMonth / 3, OutageCost: 1. / 60,
		Stalls: perMonth, Stall: 2 * time.Second, FalseLossCost: 30,
	})
	fmt.Println(err)
	fmt.Println("TTL", a.TTL, "renewed every", a.Renewal.Round(time.Millisecond))
	fmt.Println("without a holder after a crash:", a.Outage.Round(100*time.Millisecond))
	// Output:
	// <nil>
	// TTL 29.6s renewed every 9.867s
	// without a holder after a crash: 24.7s
}
