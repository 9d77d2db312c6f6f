//go:build !linux && !darwin && !freebsd

package bank

import (
	"context"
	"fmt"
	"io"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/test/demo/stage"
)

func runProcess(context.Context, stage.Config, io.Reader, io.Writer, io.Writer) error {
	return fmt.Errorf("-etcd: %w on this system", lease.ErrUnsupported)
}

func runLocal(context.Context, config, io.Writer) (stage.Verdict, error) {
	return stage.Verdict{}, fmt.Errorf("-etcd: %w on this system", lease.ErrUnsupported)
}
