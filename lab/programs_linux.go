package main

import (
	"context"
	"os"

	"github.com/holdfast-go/holdfast/lab/demo/bank"
	"github.com/holdfast-go/holdfast/lab/demo/scheduler"
	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lab/soak"
	"github.com/holdfast-go/holdfast/lab/torture"
	"github.com/holdfast-go/holdfast/test/cluster"
)

func init() {
	if cluster.IsBurner() {
		cluster.Burn()
	}
	for _, child := range []func() (int, bool){torture.Child, soak.Child} {
		if code, is := child(); is {
			os.Exit(code)
		}
	}
	programs["torture"] = torture.Main
	for name, main := range map[string]func(context.Context, []string) int{"singleton": schedulerMain, "sharding": bankMain} {
		programs[name] = func(args []string) int { return main(context.Background(), args) }
		if os.Getenv(stage.NodeEnv) != "" && len(os.Args) > 1 && os.Args[1] == name {
			os.Exit(programs[name](os.Args[2:]))
		}
	}
	for _, name := range soak.Names() {
		programs[name] = func(args []string) int { return soak.Main(name, args) }
	}
}

func schedulerMain(ctx context.Context, args []string) int {
	return scheduler.Main(ctx, args, os.Stdin, os.Stdout, os.Stderr)
}

func bankMain(ctx context.Context, args []string) int {
	return bank.Main(ctx, args, os.Stdin, os.Stdout, os.Stderr)
}
