package engine

import (
	"maps"
	"slices"

	"github.com/flowfabric/flowfabric-go/id"
)

// checkedSpecs remembers the last valid specs of a batch, as far as they differ. A similar spec reuses the result, except
// for the fields set by [Engine.setOwn].
type checkedSpecs struct {
	at [4]int // indexes; the newest is at next-1
	n  int
}

// like returns the index of a spec similar to spec i.
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

// isLike reports whether two specs differ at most in id, payload, priority, tags, limits and tenant, and neither has an idempotency
// key, a business key or a sequence.
func (s *ExecutionSpec) isLike(other *ExecutionSpec) bool {
	return s.Kind == other.Kind && s.Lane == other.Lane && s.Namespace == other.Namespace &&
		s.Flow == other.Flow && s.Policy == other.Policy && s.QuotaPolicy == other.QuotaPolicy &&
		slices.Equal(s.Budgets, other.Budgets) &&
		s.IdempotencyKey == "" && other.IdempotencyKey == "" && s.BusinessKey.IsZero() && other.BusinessKey.IsZero() &&
		s.Sequence.IsZero() && other.Sequence.IsZero() &&
		s.PayloadEncoding == other.PayloadEncoding && s.Creator == other.Creator &&
		s.DelayUntil == other.DelayUntil && s.Deadline == other.Deadline && s.CreatedAt == other.CreatedAt &&
		s.after == other.after && s.setsOwnTags == other.setsOwnTags && s.storedPolicy == other.storedPolicy && s.Unique == other.Unique && s.mistake == nil && other.mistake == nil
}

// setOwn checks and sets the fields in which similar specs may differ.
func (e *Engine) setOwn(c *creation, spec, like *ExecutionSpec) error {
	c.payload, c.priority, c.minted = spec.Payload, clampPriority(spec.Priority), false
	if err := e.setID(c, *spec, id.LaneID(c.lane)); err != nil {
		return err
	}
	if err := e.checkPayload(spec.Payload); err != nil {
		return err
	}
	otherLimits := !slices.Equal(spec.Limits, like.Limits)
	if otherLimits {
		if err := c.setLimits(spec); err != nil {
			return err
		}
	}
	otherShare := spec.Fair != like.Fair
	if otherShare {
		if err := c.setFair(spec.Fair); err != nil {
			return err
		}
	}
	if !otherLimits && !otherShare && maps.Equal(spec.Tags, like.Tags) {
		return nil
	}
	if err := spec.checkOwnTags(); err != nil {
		return err
	}
	tags, err := tagsField(spec.Tags)
	c.tags = tags + limitsField(spec.Limits) + c.fair.field()
	return err
}
