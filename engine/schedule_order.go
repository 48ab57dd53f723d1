package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// scheduledUnique is the stored form of what makes a schedule's executions unique. A tick never changes the execution in its
// way.
type scheduledUnique struct {
	ByArgs   bool        `json:"by_args,omitempty"`
	Fields   []string    `json:"fields,omitempty"`
	ByLane   bool        `json:"by_lane,omitempty"`
	PeriodMs int64       `json:"period_ms,omitempty"`
	While    UniqueWhile `json:"while"`
}

// storedUnique returns the stored form of checked uniqueness, "" without it.
func storedUnique(u *Unique) (string, error) {
	if u == nil {
		return "", nil
	}
	text, err := json.Marshal(scheduledUnique{u.ByArgs, u.Fields, u.ByLane, u.Period.Milliseconds(), u.while()})
	return string(text), err
}

// storedSequence returns the stored form of a checked sequence, "" without one.
func storedSequence(s Sequence) (string, error) {
	if s.IsZero() {
		return "", nil
	}
	text, err := json.Marshal(s.raw())
	return string(text), err
}

// orderOf returns the uniqueness and the sequence of a schedule's executions, nil and zero without them.
func orderOf(row *db.FfxSchedule) (unique *Unique, sequence Sequence, err error) {
	if len(row.UniqueWork) > 0 {
		var stored scheduledUnique
		if err := json.Unmarshal(row.UniqueWork, &stored); err != nil {
			return nil, Sequence{}, core.InvalidBecause("Execution.Unique", fmt.Errorf("is stored in an unknown form: %w", err))
		}
		unique = &Unique{
			ByArgs: stored.ByArgs, Fields: stored.Fields, ByLane: stored.ByLane,
			Period: time.Duration(stored.PeriodMs) * time.Millisecond, While: stored.While,
		}
	}
	if len(row.Sequence) > 0 {
		var stored rawSequence
		if err := json.Unmarshal(row.Sequence, &stored); err != nil {
			return nil, Sequence{}, core.InvalidBecause("Execution.Sequence", fmt.Errorf("is stored in an unknown form: %w", err))
		}
		sequence = Sequence{Key: stored.Key, OnFailure: stored.onFailure()}
	}
	return unique, sequence, nil
}

// storedLimits returns the stored form of checked limits, "" without any.
func storedLimits(limits []LimitKey) (string, error) {
	if len(limits) == 0 {
		return "", nil
	}
	stored := make([]rawLimit, len(limits))
	for i := range limits {
		stored[i] = rawLimit{Name: limits[i].Name, Key: limits[i].Key, Units: limits[i].Units}
	}
	text, err := json.Marshal(stored)
	return string(text), err
}

// limitsOfRow returns the limits of a schedule's executions.
func limitsOfRow(row *db.FfxSchedule) ([]LimitKey, error) {
	var stored []rawLimit
	if len(row.Limits) > 0 {
		if err := json.Unmarshal(row.Limits, &stored); err != nil {
			return nil, core.InvalidBecause("Execution.Limits", fmt.Errorf("is stored in an unknown form: %w", err))
		}
	}
	return keysOf(stored), nil
}

// storedFair returns the stored form of a checked share, "" without one.
func storedFair(share FairShare) (string, error) {
	if share.IsZero() {
		return "", nil
	}
	text, err := json.Marshal(rawFair(share))
	return string(text), err
}

// shareOf returns the share of a schedule's executions, the zero value without one.
func shareOf(row *db.FfxSchedule) (FairShare, error) {
	var stored rawFair
	if len(row.Fair) > 0 {
		if err := json.Unmarshal(row.Fair, &stored); err != nil {
			return FairShare{}, core.InvalidBecause("Execution.Fair", fmt.Errorf("is stored in an unknown form: %w", err))
		}
	}
	return FairShare(stored), nil
}
