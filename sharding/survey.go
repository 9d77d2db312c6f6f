package sharding

import (
	"context"
	"encoding/json"
	"fmt"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// This file asks other nodes how they stand.

// statusRequest is a question to the node at an address.
type statusRequest struct {
	address string
	answers chan Info
}

// Survey returns the Info of every node that takes part, by its id: this node's
// with the table, those of others without, as they answer. A node that does not
// answer before ctx ends is missing, and the error, which is ctx's, names one. A Region
// that has ended asks no node: ErrClosed.
func (r *Region) Survey(ctx context.Context) (map[string]Info, error) {
	if err := r.may(ctx); err != nil {
		return nil, err
	}
	return r.survey(ctx, r.Info())
}

// survey is Survey with what this node tells given.
func (r *Region) survey(ctx context.Context, own Info) (map[string]Info, error) {
	all := map[string]Info{}
	if r.over.Load() {
		return all, r.closed()
	}
	all[own.Node] = own
	answers := make(chan Info, len(own.Nodes))
	asked := map[string]bool{}
	for _, n := range own.Nodes {
		if n.Incarnation == r.self.Incarnation {
			continue
		}
		if r.over.Load() {
			return all, r.closed()
		}
		asked[n.ID] = true
		number := r.surveyNumber.Add(1)
		r.asking.Store(number, statusRequest{n.Address, answers})
		defer r.asking.Delete(number)
		r.send(n.Address, &wire.Inquiry{Type: r.names.Key, From: r.self, Number: number})
	}
	for len(asked) > 0 {
		select {
		case in := <-answers:
			all[in.Node] = in
			delete(asked, in.Node)
		case <-r.life.Done():
			return all, r.closed()
		case <-ctx.Done():
			for id := range asked {
				return all, fmt.Errorf("no answer from node %q: %w", id, context.Cause(ctx))
			}
		}
	}
	return all, nil
}

// onStatusRequest answers another node.
func (c *controller) onStatusRequest(m *wire.Inquiry) {
	if m.Type != c.names.Key || m.From == nil {
		return
	}
	body, err := json.Marshal(c.info(false))
	if err != nil {
		c.log.Warn("a status request is not answered", zap.Error(err))
		return
	}
	c.send(m.From.Address, &wire.Account{Type: c.names.Key, Number: m.Number, From: c.self, Json: body})
}

// onStatusReply takes an answer.
func (c *controller) onStatusReply(m *wire.Account) {
	v, _ := c.asking.Load(m.Number)
	q, ok := v.(statusRequest)
	if !ok || m.Type != c.names.Key || m.From.GetAddress() != q.address || !c.asking.CompareAndDelete(m.Number, v) {
		return
	}
	var in Info
	if err := json.Unmarshal(m.Json, &in); err != nil {
		c.log.Warn("a status reply can't be read", zap.Error(err))
		return
	}
	q.answers <- in // there is room for each that was asked
}
