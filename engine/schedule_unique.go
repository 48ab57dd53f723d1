package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

// uniqueTag keeps the uniqueness of a schedule's executions among its stored tags, as JSON. The executions don't have it.
const uniqueTag = "ffx.unique"

// scheduledUnique is the stored form of the uniqueness. A tick never changes the execution in its way.
type scheduledUnique struct {
	ByArgs   bool        `json:"by_args,omitempty"`
	Fields   []string    `json:"fields,omitempty"`
	ByLane   bool        `json:"by_lane,omitempty"`
	PeriodMs int64       `json:"period_ms,omitempty"`
	While    UniqueWhile `json:"while"`
}

// scheduledTags returns the tags to store with a schedule of checked executions.
func scheduledTags(x *ExecutionSpec) (map[string]string, error) {
	u := x.Unique
	if u == nil {
		return x.Tags, nil
	}
	text, err := json.Marshal(scheduledUnique{u.ByArgs, u.Fields, u.ByLane, u.Period.Milliseconds(), u.while()})
	tags := maps.Clone(x.Tags)
	if tags == nil {
		tags = make(map[string]string, 1)
	}
	tags[uniqueTag] = string(text)
	return tags, err
}

// takeUnique takes the uniqueness out of stored tags, nil without one.
func takeUnique(tags map[string]string) (*Unique, error) {
	text, has := tags[uniqueTag]
	if !has {
		return nil, nil
	}
	delete(tags, uniqueTag)
	var stored scheduledUnique
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, invalidBecause("Execution.Unique", fmt.Errorf("is stored in an unknown form: %w", err))
	}
	return &Unique{
		ByArgs: stored.ByArgs, Fields: stored.Fields, ByLane: stored.ByLane,
		Period: time.Duration(stored.PeriodMs) * time.Millisecond, While: stored.While,
	}, nil
}
