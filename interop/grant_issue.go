package interop

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// IssueClaimGrant grants a claimable execution to one worker, and takes the execution out of its lane until the grant is used
// or expires.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrGrantExists] while the execution is granted; [fferr.ErrNotLeaseable] if it is not
// claimable; [fferr.ErrInvalidInput] for another lane than the execution's, or a worker without the required capabilities;
// [fferr.ErrUnsupported] without a signing key; [fferr.ErrHalted] while the lane is paused or the worker drained;
// [fferr.ErrContention].
//
// Transaction: locks the execution and its attempt, deletes its older claim grants; emits nothing. A repetition after an
// unknown outcome fails with [fferr.ErrGrantExists] until the first grant has expired.
func IssueClaimGrant(ctx context.Context, eng *engine.Engine, spec GrantSpec) (ClaimGrant, error) {
	c := core.Of(eng)
	const op = "issue claim grant"
	if err := spec.validate(); err != nil {
		return ClaimGrant{}, core.Wrap(op, err)
	}
	key, err := c.SigningKeyOf(ctx, c.Reader())
	if err != nil {
		return ClaimGrant{}, core.Wrap(op, err)
	}
	return onGrantable(ctx, c, op, spec.Execution, spec.Instance, nil, func(tx *core.Txn, x *grantable) (fferr.Outcome[ClaimGrant], error) {
		grant, err := issueClaimGrant(ctx, c, tx, x, spec, key)
		return fferr.Outcome[ClaimGrant]{Value: grant}, err
	})
}

// issueClaimGrant grants a locked execution.
func issueClaimGrant(ctx context.Context, c *core.Core, tx *core.Txn, x *grantable, spec GrantSpec, key core.SigningKey) (ClaimGrant, error) {
	if x.Granted() {
		grants, err := grantsOf(ctx, c, tx, x, wire.ClaimGrant)
		if err != nil {
			return ClaimGrant{}, err
		}
		if slices.ContainsFunc(grants, func(g db.ListGrantsRow) bool { return g.ExpiresAtMs > x.NowMs }) {
			return ClaimGrant{}, &fferr.GrantError{Execution: x.ID, Err: fferr.ErrGrantExists}
		}
	}
	if x.LifecyclePhase != "runnable" || !x.Free() || x.EligibilityState != "eligible_now" {
		return ClaimGrant{}, x.cannot(fferr.ErrNotLeaseable, "it is not claimable")
	}
	if err := cmp.Or(x.checkLane(spec.Lane), x.checkCapabilities(spec.Capabilities), x.notAdmitted()); err != nil {
		return ClaimGrant{}, err
	}
	if err := deleteGrants(ctx, c, tx, x.ID, wire.ClaimGrant); err != nil {
		return ClaimGrant{}, err
	}
	grant, err := insertGrant(ctx, c, tx, x, wire.ClaimGrant, spec, key)
	if err != nil {
		return ClaimGrant{}, err
	}
	return ClaimGrant(grant), c.Q.HoldForGrant(ctx, tx, db.HoldForGrantParams{
		PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID(), NowMs: x.NowMs,
	})
}

// insertGrant signs and writes a grant.
func insertGrant(
	ctx context.Context, c *core.Core, tx *core.Txn, x *grantable, kind wire.GrantKind, spec GrantSpec, key core.SigningKey,
) (ReclaimGrant, error) {
	ttlMs := spec.TTL.Milliseconds()
	signed := wire.Grant{
		Kind: kind, Execution: x.ID, Worker: spec.Worker, WorkerInstance: spec.Instance, ExpiresAtMs: core.AddTTL(x.NowMs, ttlMs),
	}
	text := signed.Sign(key.Secret, key.Kid)
	grantID := text.ID()
	err := c.Q.InsertGrant(ctx, tx, db.InsertGrantParams{
		PartitionKey:       x.ID.Partition(),
		GrantID:            grantID[:],
		ExecutionID:        x.ID.UUID(),
		Kind:               string(kind),
		WorkerID:           string(spec.Worker),
		WorkerInstanceID:   string(spec.Instance),
		LaneID:             x.LaneID,
		CapabilityHash:     spec.CapabilityHash,
		WorkerCapabilities: id.NewCapabilities(spec.Capabilities...),
		RouteSnapshot:      spec.RouteSnapshot,
		AdmissionSummary:   spec.AdmissionSummary,
		GrantTTLMs:         ttlMs,
		IssuedAtMs:         x.NowMs,
		ExpiresAtMs:        signed.ExpiresAtMs,
	})
	return ReclaimGrant{
		Execution: x.ID, Lane: id.LaneID(x.LaneID), Key: text, ExpiresAt: time.UnixMilli(signed.ExpiresAtMs),
	}, err
}

func grantsOf(ctx context.Context, c *core.Core, conn db.DBTX, x *grantable, kind wire.GrantKind) ([]db.ListGrantsRow, error) {
	return c.Q.ListGrants(ctx, conn, db.ListGrantsParams{
		PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID(), Kind: string(kind),
	})
}

// WorkerSpec describes a worker in need of work, and the lane. Capabilities and Kinds are optional.
type WorkerSpec struct {
	Lane         id.LaneID
	Capabilities id.Capabilities // of the worker; executions requiring more are skipped
	Kinds        []string        // with a handler in the worker; others are skipped. Empty: any kind
	Worker       id.WorkerID
	Instance     id.WorkerInstanceID
	TTL          time.Duration // how long the grant is valid: one millisecond to [engine.MaxLeaseTTL]
}

func (s WorkerSpec) validate() error {
	if err := core.CheckClaim(s.Lane, s.Capabilities, s.Kinds, s.Worker, s.Instance, time.Second); err != nil {
		return err
	}
	return core.CheckTTL("grant TTL", s.TTL)
}

// grantPage is how many claimable executions ClaimForWorker reads at once.
const grantPage = 100

// ClaimForWorker grants the execution of a lane that a claim by this worker would take first: highest priority, then oldest,
// then by id. It returns false if there is none. It never waits for locks, and skips locked executions and executions not
// admitted by a budget or quota.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrHalted] if there is work and the lane is paused or the worker drained;
// [fferr.ErrUnsupported] without a signing key.
//
// Transaction: reads, then one transaction for the granted execution, as in [IssueClaimGrant]. A repetition after an unknown
// outcome grants another execution; the first one returns to its lane after its grant expires.
func ClaimForWorker(ctx context.Context, eng *engine.Engine, spec WorkerSpec) (ClaimGrant, bool, error) {
	c := core.Of(eng)
	const op = "claim for worker"
	grant, found, err := claimForWorker(ctx, c.ShortWait(), op, spec)
	return grant, found, core.Wrap(op, err)
}

func claimForWorker(ctx context.Context, c *core.Core, op string, spec WorkerSpec) (ClaimGrant, bool, error) {
	if err := spec.validate(); err != nil {
		return ClaimGrant{}, false, err
	}
	key, err := c.SigningKeyOf(ctx, c.Reader())
	if err != nil {
		return ClaimGrant{}, false, err
	}
	var kinds []string // nil for any
	if len(spec.Kinds) > 0 {
		kinds = spec.Kinds
	}
	scan := db.ScanEligibleParams{
		LaneID: string(spec.Lane), Capabilities: append([]string{}, spec.Capabilities...), Kinds: kinds,
		AfterRank: math.MinInt64, AfterExecutionID: core.PgUUID(id.ExecutionUUID{}), PageSize: grantPage,
	}
	for {
		rows, err := c.Q.ScanEligible(ctx, c.Reader(), scan)
		if err != nil {
			return ClaimGrant{}, false, err
		}
		var candidates []id.ExecutionID
		for _, row := range rows {
			if admits(row.Attached, row.Admitted) {
				candidates = append(candidates, id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID))
			}
		}
		grant, found, err := grantFirst(ctx, c, op, candidates, spec, key)
		if found || err != nil {
			return grant, found, err
		}
		if len(rows) < grantPage {
			return ClaimGrant{}, false, nil
		}
		last := &rows[len(rows)-1]
		scan.AfterRank, scan.AfterCreatedAtMs = last.Rank, last.CreatedAtMs
		scan.AfterExecutionID, scan.AfterPartitionKey = core.PgUUID(last.ExecutionID), last.PartitionKey
	}
}

// grantFirst grants the first candidate it can lock and that is still claimable.
func grantFirst(
	ctx context.Context, c *core.Core, op string, candidates []id.ExecutionID, spec WorkerSpec, key core.SigningKey,
) (ClaimGrant, bool, error) {
	for len(candidates) > 0 {
		taken := len(candidates)
		grant, err := core.InTx(ctx, c, op, func(tx *core.Txn) (ClaimGrant, error) {
			params := db.TakeEligibleParams{LaneID: string(spec.Lane)}
			for i, x := range candidates {
				params.PartitionKeys = append(params.PartitionKeys, x.Partition())
				params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(x.UUID()))
				params.Ords = append(params.Ords, int32(i))
			}
			taken = len(candidates)
			rows, err := c.Q.TakeEligible(ctx, tx, params)
			if err != nil || len(rows) == 0 {
				return ClaimGrant{}, err
			}
			taken = int(rows[0])
			reader := core.ExecutionReader(c, candidates)
			held, err := reader.Lock(ctx, tx, []int{taken})
			if err != nil {
				return ClaimGrant{}, err
			}
			x, err := asGrantable(ctx, c, tx, held[0], spec.Instance)
			if err != nil {
				return ClaimGrant{}, err
			}
			return issueClaimGrant(ctx, c, tx, x, GrantSpec{
				Execution: x.ID, Lane: spec.Lane, Capabilities: spec.Capabilities, Worker: spec.Worker, Instance: spec.Instance, TTL: spec.TTL,
			}, key)
		})
		switch {
		case err == nil && !grant.Execution.IsZero():
			return grant, true, nil
		case taken == len(candidates):
			return ClaimGrant{}, false, err
		}
		// The candidate has changed since the read, or one of its grants is locked.
		if _, lacks := errors.AsType[*fferr.UnsupportedError](err); !lacks && !errors.Is(err, fferr.ErrBusy) && !errors.Is(err, fferr.ErrNotLeaseable) &&
			!errors.Is(err, fferr.ErrInvalidInput) {
			return ClaimGrant{}, false, err
		}
		candidates = candidates[taken+1:]
	}
	return ClaimGrant{}, false, nil
}

// IssueReclaimGrant permits a worker to take over an execution whose lease expired, was revoked, or was returned to the lane
// by the job expire_leases. The execution does not change, and may be claimed before the grant is used.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrReclaimCapExceeded] after as many lost leases as the policy allows;
// [fferr.ErrNotReclaimable]; [fferr.ErrInvalidInput] for another lane than the execution's, or a worker without the required
// capabilities; [fferr.ErrHalted] while the lane is paused or the worker drained; [fferr.ErrUnsupported] without a signing
// key; [fferr.ErrContention].
//
// Transaction: locks the execution and its attempt; emits nothing. A repetition issues another grant; only one of the grants
// can be used.
func IssueReclaimGrant(ctx context.Context, eng *engine.Engine, spec GrantSpec) (ReclaimGrant, error) {
	c := core.Of(eng)
	const op = "issue reclaim grant"
	if err := spec.validate(); err != nil {
		return ReclaimGrant{}, core.Wrap(op, err)
	}
	key, err := c.SigningKeyOf(ctx, c.Reader())
	if err != nil {
		return ReclaimGrant{}, core.Wrap(op, err)
	}
	return onGrantable(ctx, c, op, spec.Execution, spec.Instance, nil, func(tx *core.Txn, x *grantable) (none fferr.Outcome[ReclaimGrant], err error) {
		switch {
		case x.LostTooOften:
			return none, &fferr.ReclaimCapError{Execution: x.ID, Reclaims: int(x.reclaims())}
		case !x.Reclaimable():
			return none, x.cannot(fferr.ErrNotReclaimable, "its worker has not lost it")
		}
		if err := cmp.Or(x.checkLane(spec.Lane), x.checkCapabilities(spec.Capabilities)); err != nil {
			return none, err
		}
		grant, err := insertGrant(ctx, c, tx, x, wire.ReclaimGrant, spec, key)
		return fferr.Outcome[ReclaimGrant]{Value: grant}, err
	})
}

// EligibleFilter selects claimable executions to list.
type EligibleFilter struct {
	Lane      id.LaneID
	Partition *int // a single partition; nil for all
}

// EligibleExecutions iterates over the claimable executions of a lane, in the order of claims, reading a page at a time. It
// checks neither capabilities nor whether a grant could be issued. Executions that become claimable or are claimed meanwhile
// may be missing or listed.
//
// Each page reads the queue of the lane up to the last item.
//
// Errors: [fferr.ErrInvalidInput] for an invalid lane or partition. Takes no locks.
func EligibleExecutions(ctx context.Context, eng *engine.Engine, filter EligibleFilter) iter.Seq2[id.ExecutionID, error] {
	c := core.Of(eng)
	return core.All("list eligible executions", func(after *db.ScanEligibleRow) ([]db.ScanEligibleRow, error) {
		params, err := filter.params(c)
		if err != nil {
			return nil, err
		}
		if after != nil {
			params.AfterRank, params.AfterCreatedAtMs = after.Rank, after.CreatedAtMs
			params.AfterPartitionKey, params.AfterExecutionID = after.PartitionKey, core.PgUUID(after.ExecutionID)
		}
		return c.Q.ScanEligible(ctx, c.Reader(), params)
	}, func(row *db.ScanEligibleRow) (id.ExecutionID, bool, error) {
		return id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), true, nil
	})
}

// params returns the parameters for the first page.
func (f *EligibleFilter) params(c *core.Core) (db.ScanEligibleParams, error) {
	params := db.ScanEligibleParams{
		LaneID: string(f.Lane), AfterRank: math.MinInt64, AfterExecutionID: core.PgUUID(id.ExecutionUUID{}), PageSize: core.MaxPage,
	}
	if err := f.Lane.Validate(); err != nil {
		return params, core.InvalidBecause("lane", err)
	}
	if p := f.Partition; p != nil {
		if *p < 0 || *p >= int(c.Partitions.WithDefaults().Flow) {
			return params, core.Invalid("partition", "does not exist in this database")
		}
		params.OnlyPartition = new(int16(*p))
	}
	return params, nil
}
