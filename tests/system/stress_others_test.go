package system

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// jobKinds is how much background work there is.
const jobKinds = 15

// job runs background work, and moves the clock so that there is some.
func (s *stress) job(ctx context.Context, what int) error {
	var err error
	m := upkeep.Of(s.Engine)
	switch what {
	case 0:
		s.Advance(fixture.LeaseTTL / 20)
		_, err = m.ExpireLeases(ctx, 100)
	case 1:
		_, err = m.ExpireDeadlines(ctx, 100)
	case 2:
		_, err = m.PromoteDelayed(ctx, 100)
	case 3:
		_, err = m.RepairQueue(ctx, 100)
	case 4:
		if _, err = m.DispatchCompletions(ctx, 100); err == nil {
			_, err = m.CancelSiblings(ctx, 100)
		}
	case 5:
		_, err = m.ExpireAttempts(ctx, 100)
	case 6:
		s.Advance(fixture.LeaseTTL / 5)
		_, err = m.ExpireGrants(ctx, 100)
	case 7:
		_, err = m.UnblockRoutes(ctx, 100)
	case 8:
		_, err = m.Retain(ctx, 20)
	case 9:
		_, err = m.PurgeFlows(ctx, 20)
	case 10:
		_, err = m.PruneCreationKeys(ctx, 100)
	case 11:
		// The invariants are judged by the events: these stay. Only their locks matter here.
		tx, began := s.Pool.Begin(ctx)
		if began != nil {
			return began
		}
		_, err = upkeep.Of(s.WithTx(tx)).TrimOutboxes(ctx, 20)
		_ = tx.Rollback(context.WithoutCancel(ctx))
	case 12:
		_, err = m.RepairGroups(ctx, 100)
	case 13:
		_, err = m.SummariseFlows(ctx, 100)
	case 14:
		_, err = m.CancelFlows(ctx, 100)
	}
	return err
}

// schedule makes the calls of a scheduler and its workers, with good grants, and some that no longer are.
func (s *stress) schedule(ctx context.Context, e *engine.Engine, what int) error {
	g := e
	leases := s.some(1)
	if len(leases) == 0 {
		return nil
	}
	x := leases[0].Execution
	var claimed engine.Claimed
	var err error
	switch what {
	case 0:
		var grant interop.ClaimGrant
		if grant, err = interop.IssueClaimGrant(ctx, g, s.GrantSpec(x)); err == nil {
			s.keepGrant(grant)
		}
		return err
	case 1:
		grant, found, err := interop.ClaimForWorker(ctx, g, s.WorkerSpec())
		if found {
			s.keepGrant(grant)
		}
		return err
	case 2:
		claimed, err = interop.ClaimExecution(ctx, g, s.Using(s.grant()))
	case 3:
		claimed, err = interop.ClaimFromResumeGrant(ctx, g, s.Resuming(s.grant()))
	case 4:
		claimed, err = interop.IssueGrantAndClaim(ctx, g, x, "", fixture.LeaseTTL)
	case 5:
		var grant interop.ReclaimGrant
		if grant, err = interop.IssueReclaimGrant(ctx, g, s.GrantSpec(x)); err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.reclaims = append(s.reclaims, grant)
		}
		return err
	case 6:
		s.mu.Lock()
		var grant interop.ReclaimGrant
		if n := len(s.reclaims); n > 0 {
			grant = s.reclaims[n-1-rand.IntN(min(n, 8))]
		}
		s.mu.Unlock()
		claimed, err = interop.ReclaimExecution(ctx, g, s.Reclaiming(grant))
	}
	if err == nil {
		s.keep([]engine.Claimed{claimed})
	}
	return err
}

func (s *stress) keepGrant(grant interop.ClaimGrant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grants = append(s.grants, grant)
}

// grant returns one of the newest, in any state.
func (s *stress) grant() (grant interop.ClaimGrant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.grants); n > 0 {
		grant = s.grants[n-1-rand.IntN(min(n, 8))]
	}
	return grant
}

// oversee makes an operator's calls on the lane and the worker. A pause is ended at once, so that work goes on.
func (s *stress) oversee(ctx context.Context, e *engine.Engine, what int) error {
	o, instance := e, id.WorkerInstanceID(s.Name)
	switch what {
	case 0, 1:
		_ = operator.PauseLane(ctx, o, s.Lane, operator.LanePause{Reason: "stress"})
		return operator.ResumeLane(ctx, o, s.Lane)
	case 2:
		_ = operator.DrainWorker(ctx, o, instance)
		return operator.ResumeWorker(ctx, o, instance)
	case 3:
		return operator.SetLaneRetention(ctx, o, s.Lane, time.Minute)
	default:
		return operator.SetLaneRetention(ctx, o, s.Lane, time.Duration(1+rand.IntN(3))*time.Minute)
	}
}
