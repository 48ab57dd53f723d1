package engine

import (
	"maps"

	"github.com/flowfabric/flowfabric-go/id"
)

// checkedSpecs are the specs of a batch that were checked last and passed, each unlike the others. What is like one of
// them, save in what [Engine.setOwn] sets, takes over what became of it.
type checkedSpecs struct {
	at [4]int // indexes; the newest is at next-1
	n  int
}

// like returns the index of a spec that spec i is like.
func (k *checkedSpecs) like(specs []ExecutionSpec, i int) (int, bool) {
	for back := 1; back <= min(k.n, len(k.at)); back++ {
		if at := k.at[(k.n-back)%len(k.at)]; specs[i].isLike(&specs[at]) {
			return at, true
		}
	}
	return 0, false
}

func (k *checkedSpecs) add(i int) {
	k.at[k.n%len(k.at)] = i
	k.n++
}

// isLike says whether two specs differ in id, payload, priority and tags at most, and neither has an idempotency key.
func (s *ExecutionSpec) isLike(other *ExecutionSpec) bool {
	return s.Kind == other.Kind && s.Lane == other.Lane && s.Namespace == other.Namespace &&
		s.Flow == other.Flow && s.Policy == other.Policy && s.QuotaPolicy == other.QuotaPolicy &&
		s.IdempotencyKey == "" && other.IdempotencyKey == "" &&
		s.PayloadEncoding == other.PayloadEncoding && s.Creator == other.Creator &&
		s.DelayUntil == other.DelayUntil && s.Deadline == other.Deadline && s.CreatedAt == other.CreatedAt &&
		s.mistake == nil && other.mistake == nil
}

// setOwn checks and fills in what a spec has for itself, in the creation of a spec that it is like.
func (e *Engine) setOwn(c *creation, spec, like *ExecutionSpec) error {
	c.payload, c.priority, c.minted = spec.Payload, clampPriority(spec.Priority), false
	if err := e.setID(c, *spec, id.LaneID(c.lane)); err != nil {
		return err
	}
	err := e.checkPayload(spec.Payload)
	if err == nil && !maps.Equal(spec.Tags, like.Tags) {
		c.tags, err = tagsField(spec.Tags)
	}
	return err
}
