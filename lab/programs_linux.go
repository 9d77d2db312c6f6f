package main

import (
	"github.com/holdfast-go/holdfast/lab/leases"
	"github.com/holdfast-go/holdfast/lab/nodes"
)

func init() {
	leases.Child()
	nodes.Child()
	scenarios = append(leases.Scenarios(), nodes.Scenarios()...)
}
