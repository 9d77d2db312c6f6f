//go:build !linux && !darwin && !freebsd

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/lease"
)

func runProcess(context.Context, stage.Config, io.Reader, io.Writer, io.Writer) error {
	return fmt.Errorf("-etcd: %w on this system", lease.ErrUnsupported)
}

func runLocal(context.Context, config, io.Writer) (stage.Verdict, error) {
	return stage.Verdict{}, fmt.Errorf("-etcd: %w on this system", lease.ErrUnsupported)
}
