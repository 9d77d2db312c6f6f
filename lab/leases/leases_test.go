package leases

import (
	"testing"

	"github.com/holdfast-go/holdfast/lab/scene"
)

// short are the scenarios that the commit tier plays, in their short form.
var short = []string{"grains"}

func TestShortScenarios(t *testing.T) {
	for _, name := range short {
		t.Run(name, func(t *testing.T) {
			for _, s := range Scenarios() {
				if s.Name == name {
					if err := s.Play(t.Context(), &scene.Run{Short: true, Out: t.Output()}); err != nil {
						t.Fatal(err)
					}
					return
				}
			}
			t.Fatal("there is no such scenario")
		})
	}
}
