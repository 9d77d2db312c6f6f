// Package deletioncost tells Kubernetes what a pod holds, so that a ReplicaSet which shrinks
// deletes pods that hold little first.
package deletioncost

import (
	"context"
	"fmt"
	"math"
	"time"

	"go.uber.org/zap"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

const (
	// every is how often a pod is written at the most. The documentation of the annotation asks not
	// to write it often.
	every          = time.Minute
	requestTimeout = 10 * time.Second
)

// Run keeps the annotation controller.kubernetes.io/pod-deletion-cost of a pod at what held
// returns, until ctx is done, which is no error. pods is of the pod's namespace, from a clientset's
// CoreV1.
//
// It asks held once a minute, and writes the first answer, changes to and from 0, and changes by
// more than a tenth. 0 is the cost of a pod without the annotation, negative answers are 0, and the
// highest cost is 1<<31 - 1. A write that fails is logged to slog.Default, the first of several,
// and tried again a minute later. held is called on the goroutine of Run.
//
// Errors: lease.ErrInvalid if pods or held is nil, or pod is empty.
func Run(ctx context.Context, pods coreclient.PodInterface, pod string, held func() int) error {
	if input.Nil(pods) || pod == "" || held == nil {
		return fmt.Errorf("deletioncost.Run: %w: pods and held must not be nil, and pod not empty", lease.ErrInvalid)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	written := -1 // unknown
	for failed := false; ; {
		cost := min(max(held(), 0), math.MaxInt32)
		if differs(written, cost) && ctx.Err() == nil {
			err := write(ctx, pods, pod, cost)
			if written = cost; err != nil {
				written = -1
			}
			if err != nil && !failed && ctx.Err() == nil {
				boundary.Default().Warn("the pod's deletion cost can't be written, trying on", zap.String("pod", pod), zap.Error(err))
			}
			failed = err != nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// differs reports whether a cost is worth a write where another is written; -1: none is known.
func differs(written, cost int) bool {
	if written <= 0 {
		return written != cost
	}
	return max(cost-written, written-cost) > written/10
}

func write(ctx context.Context, pods coreclient.PodInterface, pod string, cost int) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, core.PodDeletionCost, cost)
	// By the subresource status, annotations can be written too, and images can't.
	_, err := pods.Patch(ctx, pod, types.MergePatchType, patch, meta.PatchOptions{}, "status")
	return err
}
