package lease

import (
	"context"
	"fmt"
	"maps"
)

// This file is the metadata of a Handle's record: what the handle was made with, and
// what its holder says of itself.

// merged returns the keys of both; of a key in both b's value counts. Neither changes.
func merged(a, b map[string]string) map[string]string {
	all := make(map[string]string, len(a)+len(b))
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// Describe implements Describer.
func (h *Handle) Describe(about map[string]string) error {
	if err := h.check(context.Background()); err != nil {
		return err
	}
	for key := range about {
		if _, taken := h.metadata[key]; taken {
			return h.k.errorf(h.name, fmt.Errorf("metadata: %w: the key %.64q is in use", ErrInvalid, key))
		}
	}
	if err := h.k.limits.ValidateMetadata(merged(h.metadata, about)); err != nil {
		return h.k.errorf(h.name, err)
	}
	about = merged(about, nil)
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	h.about = about
	return nil
}

// metadataLocked is what an acquisition writes.
func (h *Handle) metadataLocked() map[string]string {
	if len(h.about) == 0 {
		return h.metadata
	}
	return merged(h.metadata, h.about)
}

// passedOnLocked is the metadata of a record that is transferred, without what this
// holder said of itself. It is never nil: that the store would have to look up.
func (h *Handle) passedOnLocked() map[string]string { return merged(h.metadata, nil) }
