// Package leases is the laboratory's scenarios of leases and stores.
package leases

import "github.com/holdfast-go/holdfast/lab/scene"

// Scenarios returns them all.
func Scenarios() []scene.Scenario {
	return []scene.Scenario{
		{Name: "grains", About: "requests to another node's actor by its PID, as an entity and as a grain of protoactor's cluster", Do: grainsScenario},
	}
}
