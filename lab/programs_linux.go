package main

import (
	"context"
	"os"

	"github.com/holdfast-go/holdfast/lab/demo/bank"
	"github.com/holdfast-go/holdfast/lab/demo/scheduler"
	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lab/nodes"
)

func init() {
	nodes.Child()
	scenarios = append(scenarios, nodes.Scenarios()...)
	for name, main := range map[string]func(context.Context, []string) int{"singleton": schedulerMain, "sharding": bankMain} {
		programs[name] = func(args []string) int { return main(context.Background(), args) }
		if os.Getenv(stage.NodeEnv) != "" && len(os.Args) > 1 && os.Args[1] == name {
			os.Exit(programs[name](os.Args[2:]))
		}
	}
}

func schedulerMain(ctx context.Context, args []string) int {
	return scheduler.Main(ctx, args, os.Stdin, os.Stdout, os.Stderr)
}

func bankMain(ctx context.Context, args []string) int {
	return bank.Main(ctx, args, os.Stdin, os.Stdout, os.Stderr)
}
