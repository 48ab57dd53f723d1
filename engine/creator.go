package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/state"
)

// creator creates executions for the packages above the engine.
type creator struct{ e *Engine }

var _ core.Creator[ExecutionSpec] = creator{}

// Template implements [core.Creator].
func (r creator) Template(spec ExecutionSpec) (t core.Template, err error) {
	switch {
	case !spec.ID.IsZero() || spec.Flow != nil || spec.IdempotencyKey != "" || !spec.BusinessKey.IsZero():
		return t, core.Invalid("Execution", "has an id, a flow or a key, but each tick creates a new execution outside flows")
	case spec.after > 0 || !spec.DelayUntil.IsZero() || !spec.Deadline.IsZero() || !spec.CreatedAt.IsZero():
		return t, core.Invalid("Execution", "has an instant, but it is created at each tick: a deadline belongs to the policy")
	}
	c, err := r.e.prepare(spec)
	if err != nil {
		return t, err
	}
	if spec.Unique != nil {
		if err := new(uniqueKeyer).setUnique(&c, spec.Unique, 0); err != nil { // a wrong field fails now
			return t, err
		}
	}
	t = core.Template{
		Namespace: c.namespace, Lane: c.lane, Kind: c.kind, Payload: c.payload, PayloadEncoding: c.encoding,
		Priority: c.priority, Creator: spec.Creator, Tags: spec.Tags, Policy: c.policy,
		Budgets: c.gates.budgets, QuotaPolicy: spec.QuotaPolicy,
	}
	for _, part := range [...]struct {
		document *string
		has      bool
		value    any
	}{
		{&t.Unique, spec.Unique != nil, rawUniqueOf(spec.Unique)},
		{&t.Sequence, !spec.Sequence.IsZero(), spec.Sequence.raw()},
		{&t.Limits, len(spec.Limits) > 0, rawLimits(spec.Limits)},
		{&t.Fair, !c.fair.IsZero(), rawFair(c.fair)},
	} {
		if part.has {
			text, err := json.Marshal(part.value)
			if err != nil {
				return t, err
			}
			*part.document = string(text)
		}
	}
	return t, nil
}

// Spec implements [core.Creator].
func (r creator) Spec(t core.Template) (ExecutionSpec, error) {
	var unique *rawUnique
	var sequence rawSequence
	var limits []rawLimit
	var share rawFair
	err := cmp.Or(
		readPart("Unique", t.Unique, &unique), readPart("Sequence", t.Sequence, &sequence),
		readPart("Limits", t.Limits, &limits), readPart("Fair", t.Fair, &share),
	)
	return ExecutionSpec{
		Namespace: id.Namespace(t.Namespace), Lane: id.LaneID(t.Lane), Kind: t.Kind,
		Payload: t.Payload, PayloadEncoding: t.PayloadEncoding, Priority: int(t.Priority), Creator: t.Creator, Tags: t.Tags,
		Budgets: t.Budgets, QuotaPolicy: t.QuotaPolicy, Limits: keysOf(limits), Fair: FairShare(share),
		Unique: unique.unique(), Sequence: Sequence{Key: sequence.Key, OnFailure: sequence.onFailure()},
		storedPolicy: t.Policy, setsOwnTags: true,
	}, err
}

// readPart decodes a document of a template. Without a document the value stays.
func readPart(part, document string, into any) error {
	if document == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(document), into); err != nil {
		return core.InvalidBecause("Execution."+part, fmt.Errorf("is stored in an unknown form: %w", err))
	}
	return nil
}

// Register implements [core.Creator].
func (r creator) Register(ctx context.Context, specs []ExecutionSpec) (func(context.Context, db.DBTX) error, error) {
	creations := make([]creation, len(specs))
	for i := range specs {
		var err error
		if creations[i], err = r.e.prepare(specs[i]); err != nil {
			return nil, err
		}
	}
	if err := r.e.findAllLimits(ctx, creations); err != nil {
		return nil, err
	}
	return func(ctx context.Context, tx db.DBTX) error { return r.e.register(ctx, tx, r.e.unregistered(creations)) }, nil
}

// Copy implements [core.Creator].
func (r creator) Copy(ctx context.Context, tx *core.Txn, of core.Stored, fill func(id.ExecutionID) error) (x id.ExecutionID, s state.PublicState, err error) {
	c, err := r.copyOf(of)
	if err != nil {
		return x, "", err
	}
	created, err := r.e.insert(ctx, tx, []creation{c}, nil, r.e.c.NowMs(), &tx.Due)
	if err != nil {
		return x, "", err
	}
	inserted, isNew := created[c.id]
	if !isNew {
		return c.id, "", nil
	}
	if err := fill(c.id); err != nil {
		return x, "", err
	}
	return c.id, inserted.State, r.e.register(ctx, tx, registration{lanes: []string{c.lane}, period: c.retentionMs})
}

// copyOf returns the creation of a copy.
func (r creator) copyOf(of core.Stored) (creation, error) {
	spec := ExecutionSpec{
		ID: of.ID, Namespace: id.Namespace(of.Namespace), Lane: id.LaneID(of.Lane), Kind: of.Kind,
		Payload: of.Payload, PayloadEncoding: of.PayloadEncoding, Priority: int(of.Priority), Creator: of.Creator, Tags: of.Tags,
		Budgets: of.Budgets, QuotaPolicy: of.QuotaPolicy, setsOwnTags: true,
	}
	if of.Limits != "" {
		var limits []rawLimit
		if err := json.Unmarshal([]byte(of.Limits), &limits); err != nil {
			return creation{}, core.Corrupt("ff_exec_core.raw_fields.ffx_limits", err)
		}
		spec.Limits = keysOf(limits)
	}
	c, err := r.e.prepare(spec)
	if err != nil || of.Policy == "" {
		return c, err
	}
	var stored document.Execution
	if err := json.Unmarshal([]byte(of.Policy), &stored); err != nil {
		return c, core.Corrupt("ff_exec_core.policy", err)
	}
	c.setDocument(of.Policy, &stored)
	c.capabilities = of.Capabilities
	return c, nil
}

// RememberLanes implements [core.Creator].
func (r creator) RememberLanes(lanes []string) { r.e.lanes.add(lanes) }

// Order implements [core.Creator].
func (r creator) Order(spec ExecutionSpec, nowMs int64) (unique, sequence pgtype.UUID, err error) {
	if s := spec.Sequence; !s.IsZero() {
		sequence = core.SequenceOf(string(spec.Namespace), s.Key).PG()
	}
	if spec.Unique == nil {
		return unique, sequence, nil
	}
	c, err := r.e.prepare(spec)
	if err == nil {
		err = new(uniqueKeyer).setUnique(&c, spec.Unique, nowMs)
	}
	if err == nil {
		unique = c.unique.key.pg()
	}
	return unique, sequence, err
}

// rawUnique is the stored form of [Unique] in a template. Executions of templates never change an existing execution.
type rawUnique struct {
	ByArgs   bool        `json:"by_args,omitempty"`
	Fields   []string    `json:"fields,omitempty"`
	ByLane   bool        `json:"by_lane,omitempty"`
	PeriodMs int64       `json:"period_ms,omitempty"`
	While    UniqueWhile `json:"while"`
}

func rawUniqueOf(u *Unique) (raw rawUnique) {
	if u != nil {
		raw = rawUnique{u.ByArgs, u.Fields, u.ByLane, u.Period.Milliseconds(), u.while()}
	}
	return raw
}

// unique is the reverse of rawUniqueOf, nil for nil.
func (r *rawUnique) unique() *Unique {
	if r == nil {
		return nil
	}
	return &Unique{
		ByArgs: r.ByArgs, Fields: r.Fields, ByLane: r.ByLane, Period: time.Duration(r.PeriodMs) * time.Millisecond, While: r.While,
	}
}

func rawLimits(limits []LimitKey) []rawLimit {
	stored := make([]rawLimit, len(limits))
	for i := range limits {
		stored[i] = rawLimit{Name: limits[i].Name, Key: limits[i].Key, Units: limits[i].Units}
	}
	return stored
}
