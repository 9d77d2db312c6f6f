package main

import "github.com/holdfast-go/holdfast/lab/leases"

func init() {
	leases.Child()
	scenarios = append(scenarios, leases.Scenarios()...)
}
