package interop

import (
	"context"
	"math"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// QuotaPolicySpec describes a quota: how many executions naming the policy run at once, and how many start within a window.
type QuotaPolicySpec struct {
	ID id.QuotaPolicyID // default: a new one

	// MaxRunning is how many executions run at once, all workers together. An execution takes its place at the admission, and
	// gives the place back when it ends or waits. Default 0: no limit.
	MaxRunning int64

	// MaxStarts is how many executions start within any time of the length Window, in whole seconds. Default 0: no limit.
	MaxStarts int64
	Window    time.Duration
}

// QuotaPolicyCreated is the result of [CreateQuotaPolicy].
type QuotaPolicyCreated struct {
	ID        id.QuotaPolicyID
	Duplicate bool // a policy with this id existed, and was not changed
}

// CreateQuotaPolicy creates a quota policy, for executions that name it in [engine.ExecutionSpec.QuotaPolicy]. An existing
// policy with the same id doesn't change, and the result is a Duplicate. Executions may name a policy before it exists; the
// policy limits executions admitted after its creation.
//
// Errors: [fferr.ErrInvalidInput] naming the field; [fferr.ErrContention]. Transaction: one statement. Safe to repeat with an
// id.
func CreateQuotaPolicy(ctx context.Context, eng *engine.Engine, spec QuotaPolicySpec) (QuotaPolicyCreated, error) {
	c := core.Of(eng)
	const op = "create quota policy"
	if err := spec.check(); err != nil {
		return QuotaPolicyCreated{}, core.Wrap(op, err)
	}
	if spec.ID.IsZero() {
		spec.ID = id.NewQuotaPolicyID()
	}
	inserted, err := core.InStatement(ctx, c, op, func(conn db.DBTX, due *core.Notifications) (int64, error) {
		due.Gated()
		return c.Q.InsertQuotaPolicy(ctx, conn, db.InsertQuotaPolicyParams{
			NowMs: c.NowMs(), PartitionKey: c.Partitions.QuotaPartition(spec.ID), QuotaPolicyID: spec.ID.String(),
			WindowSeconds: int64(spec.Window / time.Second), MaxStarts: spec.MaxStarts, MaxRunning: spec.MaxRunning,
		})
	})
	if err != nil {
		return QuotaPolicyCreated{}, err
	}
	return QuotaPolicyCreated{ID: spec.ID, Duplicate: inserted == 0}, nil
}

func (s *QuotaPolicySpec) check() error {
	switch {
	case s.MaxRunning < 0:
		return core.Invalid("MaxRunning", "is negative")
	case s.MaxStarts < 0:
		return core.Invalid("MaxStarts", "is negative")
	case s.Window < 0 || s.Window%time.Second != 0:
		return core.Invalid("Window", "must be whole seconds, and not negative")
	case s.MaxStarts > 0 && s.Window == 0:
		return core.Invalid("Window", "is missing: MaxStarts needs one")
	}
	return nil
}

// QuotaPolicy is a stored quota policy.
type QuotaPolicy struct {
	ID         id.QuotaPolicyID
	MaxRunning int64 // 0: no limit
	MaxStarts  int64 // 0: no limit
	Window     time.Duration
	CreatedAt  time.Time
}

// Unlimited reports whether the policy limits nothing.
func (p QuotaPolicy) Unlimited() bool { return p.MaxRunning == 0 && p.MaxStarts == 0 }

// GetQuotaPolicy returns a quota policy.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrCorruption] for a negative limit. One statement; takes no
// locks.
func GetQuotaPolicy(ctx context.Context, eng *engine.Engine, q id.QuotaPolicyID) (QuotaPolicy, error) {
	c := core.Of(eng)
	const op = "read quota policy"
	if err := checkQuota(q); err != nil {
		return QuotaPolicy{}, core.Wrap(op, err)
	}
	row, err := c.Q.GetQuotaPolicy(ctx, c.Reader(), db.GetQuotaPolicyParams{
		PartitionKey: c.Partitions.QuotaPartition(q), QuotaPolicyID: q.String(),
	})
	switch {
	case core.IsNoRow(err):
		return QuotaPolicy{}, core.Wrap(op, &fferr.NotFoundError{Entity: "quota policy", ID: q.String()})
	case err != nil:
		return QuotaPolicy{}, core.Wrap(op, err)
	case row.ActiveConcurrencyCap < 0 || row.MaxRequestsPerWindow < 0 || row.RequestsPerWindowSeconds < 0:
		return QuotaPolicy{}, core.Wrap(op, core.ErrNegativeQuota(q))
	}
	return QuotaPolicy{
		ID: q, MaxRunning: row.ActiveConcurrencyCap, MaxStarts: row.MaxRequestsPerWindow,
		Window:    time.Duration(min(row.RequestsPerWindowSeconds, math.MaxInt64/int64(time.Second))) * time.Second,
		CreatedAt: time.UnixMilli(row.CreatedAtMs),
	}, nil
}

// SetQuotaPolicy replaces the limits of an existing quota policy. Admitted executions keep their places. After the call
// nothing is admitted by the former limits.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput] naming the field, also without an ID; [fferr.ErrContention].
// Transaction: two statements; locks the policy, also at the gate. Safe to repeat.
func SetQuotaPolicy(ctx context.Context, eng *engine.Engine, spec QuotaPolicySpec) error {
	c := core.Of(eng)
	const op = "set quota policy"
	if err := spec.check(); err != nil {
		return core.Wrap(op, err)
	}
	if err := checkQuota(spec.ID); err != nil {
		return core.Wrap(op, err)
	}
	var n int64
	err := changeQuota(ctx, c, op, spec.ID, func(conn db.DBTX) (err error) {
		n, err = c.Q.SetQuotaPolicy(ctx, conn, db.SetQuotaPolicyParams{
			NowMs: c.NowMs(), PartitionKey: c.Partitions.QuotaPartition(spec.ID), QuotaPolicyID: spec.ID.String(),
			WindowSeconds: int64(spec.Window / time.Second), MaxStarts: spec.MaxStarts, MaxRunning: spec.MaxRunning,
		})
		return err
	})
	return changedQuota(op, spec.ID, n, err)
}

// DeleteQuotaPolicy deletes a quota policy. A policy that doesn't exist has no limits, so waiting executions are let in.
// After the call nothing is refused or admitted by the policy.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: two statements; locks the policy,
// also at the gate.
func DeleteQuotaPolicy(ctx context.Context, eng *engine.Engine, q id.QuotaPolicyID) error {
	c := core.Of(eng)
	const op = "delete quota policy"
	if err := checkQuota(q); err != nil {
		return core.Wrap(op, err)
	}
	var n int64
	err := changeQuota(ctx, c, op, q, func(conn db.DBTX) (err error) {
		n, err = c.Q.DeleteQuotaPolicy(ctx, conn, db.DeleteQuotaPolicyParams{
			PartitionKey: c.Partitions.QuotaPartition(q), QuotaPolicyID: q.String(),
		})
		return err
	})
	return changedQuota(op, q, n, err)
}

func checkQuota(q id.QuotaPolicyID) error {
	if q.IsZero() {
		return core.Invalid("quota policy id", "is empty")
	}
	return nil
}

// changeQuota changes a quota policy after the transactions that admit by the policy have ended.
func changeQuota(ctx context.Context, c *core.Core, op string, q id.QuotaPolicyID, change core.Step) error {
	return core.InStatements(ctx, c, op, func(due *core.Notifications) []core.Step {
		due.Gated()
		return []core.Step{lockQuota(ctx, c, q), change}
	})
}

// lockQuota locks a quota policy at the gate. A later statement sees all commits until then.
func lockQuota(ctx context.Context, c *core.Core, q id.QuotaPolicyID) core.Step {
	return func(conn db.DBTX) error {
		return c.Q.LockQuotaGate(ctx, conn, db.LockQuotaGateParams{
			PartitionKey: core.GatePartition(q), GateID: core.PgGate(q), NowMs: c.NowMs(),
			QuotaPartition: c.Partitions.QuotaPartition(q), QuotaPolicyID: q.String(),
		})
	}
}

// changedQuota returns the error of a change of a quota policy.
func changedQuota(op string, q id.QuotaPolicyID, changed int64, err error) error {
	if err == nil && changed == 0 {
		err = core.Wrap(op, &fferr.NotFoundError{Entity: "quota policy", ID: q.String()})
	}
	return err
}
