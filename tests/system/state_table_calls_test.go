package system

import (
	"context"
	"errors"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The calls of the state table: each operation in all of its forms.

// specOf is the spec of the state table, and changes to it.
func specOf(f *fixture.Fixture, x *subject, change func(*engine.ExecutionSpec, time.Time)) engine.ExecutionSpec {
	spec := engine.ExecutionSpec{
		ID: x.x, Lane: f.Lane, Kind: "test", Payload: []byte{1}, Priority: 7, Creator: "tester",
		Tags: map[string]string{"cairn.instance_id": "i-1"},
	}
	if change != nil {
		change(&spec, f.Time())
	}
	return spec
}

// creations create one and many, by each statement.
func creations(change func(*engine.ExecutionSpec, time.Time)) []call {
	many := func(fill int) func(context.Context, *stage, []*subject) error {
		return func(ctx context.Context, s *stage, subjects []*subject) error {
			specs := make([]engine.ExecutionSpec, 0, fill+len(subjects))
			for _, x := range subjects {
				specs = append(specs, specOf(s.Fixture, x, change))
			}
			for range fill {
				spec := specOf(s.Fixture, subjects[0], change)
				spec.ID = id.ExecutionID{}
				specs = append(specs, spec)
			}
			outcomes, err := s.e.CreateExecutions(ctx, specs)
			for _, o := range outcomes[:min(len(outcomes), len(subjects))] {
				err = errors.Join(err, o.Err, unlessExisted(o.Value.Duplicate))
			}
			return err
		}
	}
	return []call{
		single("CreateExecution", func(ctx context.Context, s *stage, x *subject) error {
			created, err := s.e.CreateExecution(ctx, specOf(s.Fixture, x, change))
			return errors.Join(err, unlessExisted(created.Duplicate))
		}),
		{"CreateExecutions", many(0)},
		{"CreateExecutions, a hundred", many(100)},
	}
}

var errDuplicate = errors.New("it was there before")

func unlessExisted(existed bool) error {
	if existed {
		return errDuplicate
	}
	return nil
}

// members are created in flows, below an upstream on a lane of its own.
func members(change func(*engine.ExecutionSpec, time.Time)) []call {
	create := func(ctx context.Context, s *stage, subjects []*subject) error {
		spec := engine.FlowSpec{ID: subjects[0].flow, Nodes: []engine.Node{{Key: "up", Spec: engine.ExecutionSpec{Kind: "test", Lane: s.Lane + ".up"}}}}
		if spec.ID == (id.FlowID{}) {
			spec.ID = id.NewFlowID()
		}
		for _, x := range subjects {
			key := x.x.String()
			if x.key != "" {
				key = x.key
			}
			x.key, x.flow, x.x = key, spec.ID, s.NodeID(spec.ID, key)
			node := specOf(s.Fixture, x, change)
			node.ID = id.ExecutionID{}
			spec.Nodes = append(spec.Nodes, engine.Node{Key: key, Spec: node})
			spec.Edges = append(spec.Edges, engine.Edge{From: "up", To: key})
		}
		made, err := s.e.CreateFlow(ctx, spec)
		return errors.Join(err, unlessExisted(made.Existed))
	}
	return []call{
		single("CreateFlow", func(ctx context.Context, s *stage, x *subject) error { return create(ctx, s, []*subject{x}) }),
		{"CreateFlow, two members", create},
	}
}

// upstream ends the upstreams of members.
func upstream(fails bool) []call {
	end := func(one bool) func(context.Context, *stage, []*subject) error {
		return func(ctx context.Context, s *stage, subjects []*subject) error {
			spec := s.Worker()
			spec.Lane += ".up"
			claimed, err := s.e.Claim(ctx, spec, 10)
			if err != nil || len(claimed) == 0 {
				return errors.Join(err, fixture.ErrIdle)
			}
			leases := make([]engine.Lease, len(claimed))
			for i, c := range claimed {
				leases[i] = c.Lease
			}
			if one {
				for _, l := range leases {
					if fails {
						_, err = s.e.FailExecution(ctx, l, fixture.ForGood)
					} else {
						err = s.e.CompleteExecution(ctx, l, nil)
					}
					if err != nil {
						return err
					}
				}
				return nil
			}
			outcomes, err := fixture.Batches[map[bool]string{true: "fail for good", false: "complete"}[fails]](ctx, s.e, leases)
			return errors.Join(append(outcomes, err)...)
		}
	}
	return []call{{"one by one", end(true)}, {"in a batch", end(false)}}
}

var claiming = append(
	claims("Claim", func(ctx context.Context, s *stage, limit int) ([]engine.Claimed, error) {
		return s.e.Claim(ctx, s.Worker(), limit)
	}),
	claims("Claimer.Claim", func(ctx context.Context, s *stage, limit int) ([]engine.Claimed, error) {
		claimer, err := s.e.NewClaimer(s.Worker())
		if err != nil {
			return nil, err
		}
		return claimer.Claim(ctx, limit)
	})...,
)

var renewing = []call{
	single("RenewLease", func(ctx context.Context, s *stage, x *subject) error {
		_, err := s.e.RenewLease(ctx, x.lease, 0)
		return err
	}),
	several("RenewLeases", fixture.Batches["renew"]),
}

var reporting = []call{
	single("ReportProgress", func(ctx context.Context, s *stage, x *subject) error {
		return s.e.ReportProgress(ctx, x.lease, engine.Progress{Percent: new(50), Message: new("half")})
	}),
}

var completing = []call{
	single("CompleteExecution", func(ctx context.Context, s *stage, x *subject) error {
		return s.e.CompleteExecution(ctx, x.lease, []byte{2})
	}),
	several("CompleteExecutions", func(ctx context.Context, e *engine.Engine, leases []engine.Lease) ([]error, error) {
		return e.CompleteExecutions(ctx, withTwo(leases))
	}),
	several("CompleteAndClaim", func(ctx context.Context, e *engine.Engine, leases []engine.Lease) ([]error, error) {
		claimer, err := e.NewClaimer(engine.ClaimSpec{Lane: leases[0].Lane + ".next", Worker: "worker", Instance: "worker", LeaseTTL: fixture.LeaseTTL})
		if err != nil {
			return nil, err
		}
		outcomes, _, err := claimer.CompleteAndClaim(ctx, withTwo(leases), 1)
		return outcomes, err
	}),
}

func withTwo(leases []engine.Lease) []engine.Completion {
	completions := make([]engine.Completion, len(leases))
	for i, l := range leases {
		completions[i] = engine.Completion{Lease: l, Result: []byte{2}}
	}
	return completions
}

func failing(failure engine.Failure) []call {
	return []call{
		single("FailExecution", func(ctx context.Context, s *stage, x *subject) error {
			_, err := s.e.FailExecution(ctx, x.lease, failure)
			return err
		}),
		several("FailExecutions", func(ctx context.Context, e *engine.Engine, leases []engine.Lease) ([]error, error) {
			return fixture.FailBatch(ctx, e, leases, failure)
		}),
	}
}

var releasing = []call{several("ReleaseLeases", fixture.Batches["release"])}

// delaying gives the attempt back until a minute after the start.
var delaying = []call{
	single("DelayExecution", func(ctx context.Context, s *stage, x *subject) error {
		return s.e.DelayExecution(ctx, x.lease, fixture.Start.Add(time.Minute))
	}),
	several("DelayExecutions", func(ctx context.Context, e *engine.Engine, leases []engine.Lease) ([]error, error) {
		delays := make([]engine.Delay, len(leases))
		for i, l := range leases {
			delays[i] = engine.Delay{Lease: l, Until: fixture.Start.Add(time.Minute)}
		}
		return e.DelayExecutions(ctx, delays)
	}),
}

var parking = []call{
	single("WaitForChildren", func(ctx context.Context, s *stage, x *subject) error {
		_, err := s.e.WaitForChildren(ctx, x.lease)
		return err
	}),
	several("WaitForChildrenEach", fixture.Batches["wait for children"]),
}

var deadlines = background("ExpireDeadlines", (*upkeep.Upkeep).ExpireDeadlines)

var cancelling = func() []call {
	spec := func(x *subject) engine.CancelSpec { return engine.CancelSpec{ID: x.x, Reason: "not wanted"} }
	return []call{
		single("CancelExecution", func(ctx context.Context, s *stage, x *subject) error { return s.e.CancelExecution(ctx, spec(x)) }),
		{"CancelExecutions", func(ctx context.Context, s *stage, subjects []*subject) error {
			var specs []engine.CancelSpec
			for _, x := range subjects {
				specs = append(specs, spec(x))
			}
			outcomes, err := s.e.CancelExecutions(ctx, specs)
			return errors.Join(append(outcomes, err)...)
		}},
		where("CancelWhere", nil, func(ctx context.Context, o *engine.Engine, filter engine.ExecutionFilter) (operator.BulkProgress, error) {
			return operator.CancelWhere(ctx, o, filter, "not wanted", operator.Bulk{})
		}),
	}
}()

var cancellingByHolder = []call{
	single("CancelExecution with a fence", func(ctx context.Context, s *stage, x *subject) error {
		return s.e.CancelExecution(ctx, engine.CancelSpec{ID: x.x, Reason: "not wanted", Fence: &x.lease.Fence})
	}),
}

var revoking = []call{single("RevokeLease", func(ctx context.Context, s *stage, x *subject) error {
	revoked, err := operator.Revoke(ctx, s.e, operator.RevokeSpec{ID: x.x, Reason: "wrong"})
	if err == nil && revoked.NotRevoked != "" {
		err = fixture.ErrIdle
	}
	return err
})}

var preferring = []call{
	single("ChangePriority", func(ctx context.Context, s *stage, x *subject) error {
		return operator.Prioritize(ctx, s.e, x.x, 9)
	}),
	where("PrioritizeWhere", fferr.ErrNotEligible, func(ctx context.Context, o *engine.Engine, filter engine.ExecutionFilter) (operator.BulkProgress, error) {
		return operator.PrioritizeWhere(ctx, o, filter, 9, operator.Bulk{})
	}),
}

// moving moves to another lane.
var moving = []call{where("MoveWhere", nil, func(ctx context.Context, o *engine.Engine, filter engine.ExecutionFilter) (operator.BulkProgress, error) {
	return operator.MoveWhere(ctx, o, filter, filter.Lane+".moved", operator.Bulk{})
})}

// postponing delays by as much, or wakes.
func postponing(d time.Duration) []call {
	return []call{single("DelayExecution", func(ctx context.Context, s *stage, x *subject) error {
		return operator.Delay(ctx, s.e, x.x, s.Time().Add(d))
	})}
}

var replaying = []call{
	single("ReplayExecution", func(ctx context.Context, s *stage, x *subject) error {
		_, err := operator.Replay(ctx, s.e, x.x, operator.ReplayCompleted)
		return err
	}),
	where("ReplayWhere", fferr.ErrNotEnded, func(ctx context.Context, o *engine.Engine, filter engine.ExecutionFilter) (operator.BulkProgress, error) {
		return operator.ReplayWhere(ctx, o, filter, operator.Bulk{}, operator.ReplayCompleted)
	}),
}

// granting issues a claim grant for each subject.
var granting = []call{single("IssueClaimGrant", func(ctx context.Context, s *stage, x *subject) (err error) {
	grant, err := interop.IssueClaimGrant(ctx, s.e, s.GrantSpec(x.x))
	if err == nil {
		x.grant = grant
	}
	return err
})}

// grantingNext issues claim grants for the next executions.
var grantingNext = []call{{"ClaimForWorker", func(ctx context.Context, s *stage, subjects []*subject) error {
	for range subjects {
		if _, found, err := interop.ClaimForWorker(ctx, s.e, s.WorkerSpec()); !found || err != nil {
			return errors.Join(err, fixture.ErrIdle)
		}
	}
	return nil
}}}

// leasing makes a call that gives a lease, for each subject.
func leasing(name string, lease func(context.Context, *stage, *subject) (engine.Claimed, error)) []call {
	return []call{single(name, func(ctx context.Context, s *stage, x *subject) error {
		claimed, err := lease(ctx, s, x)
		if err == nil {
			x.lease = claimed.Lease
		}
		return err
	})}
}

var claimingByGrant = leasing("ClaimExecution", func(ctx context.Context, s *stage, x *subject) (engine.Claimed, error) {
	return interop.ClaimExecution(ctx, s.e, s.Using(x.grant))
})

var claimingByOperator = leasing("IssueGrantAndClaim", func(ctx context.Context, s *stage, x *subject) (engine.Claimed, error) {
	return interop.IssueGrantAndClaim(ctx, s.e, x.x, s.Lane, fixture.LeaseTTL)
})

var resumingByGrant = leasing("ClaimFromResumeGrant", func(ctx context.Context, s *stage, x *subject) (engine.Claimed, error) {
	return interop.ClaimFromResumeGrant(ctx, s.e, s.Resuming(x.grant))
})

// reclaimingUpTo issues a reclaim grant and uses it, under a limit if one is given, which ends the execution.
func reclaimingUpTo(limit *int) []call {
	return leasing("ReclaimExecution", func(ctx context.Context, s *stage, x *subject) (engine.Claimed, error) {
		grant, err := interop.IssueReclaimGrant(ctx, s.e, s.GrantSpec(x.x))
		if err != nil {
			return engine.Claimed{}, err
		}
		spec := s.Reclaiming(grant)
		spec.MaxReclaims = limit
		claimed, err := interop.ReclaimExecution(ctx, s.e, spec)
		if limit != nil && errors.Is(err, fferr.ErrReclaimCapExceeded) {
			err = nil
		}
		return claimed, err
	})
}
