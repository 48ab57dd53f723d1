package executions

import (
	"context"
	"fmt"
	"strings"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// modelGrants are the calls of a scheduler and its workers.
var modelGrants = map[string]modelCall{
	"grant": {
		func(ctx context.Context, m *executionModel, e *engine.Engine, x *modelled) error {
			spec := m.f.GrantSpec(x.id)
			spec.TTL = fixture.LeaseTTL
			_, err := interop.IssueClaimGrant(ctx, e, spec)
			return err
		},
		func(m *executionModel, x *modelled) error {
			switch {
			case x.isGranted() && !m.isOver(x.granted):
				return fferr.ErrGrantExists
			case !isReady(x.state):
				return fferr.ErrNotLeaseable
			}
			x.state, x.granted = fixture.Granted(x.state), m.f.Time().Add(fixture.LeaseTTL)
			return nil
		},
	},
	"claim by a grant": {
		func(ctx context.Context, m *executionModel, e *engine.Engine, x *modelled) error {
			claimed, err := interop.ClaimExecution(ctx, e, m.f.Using(interop.ClaimGrant{Execution: x.id}))
			return m.leased(x, claimed, err)
		},
		func(m *executionModel, x *modelled) error {
			switch {
			case isReady(x.state):
				return fferr.ErrInvalidGrant
			case !x.isGranted():
				return fferr.ErrNotLeaseable
			case m.isOver(x.granted):
				return fferr.ErrGrantExpired
			}
			x.state = ungranted(x.state)
			x.lease(m)
			return nil
		},
	},
	"claim by an operator": {
		func(ctx context.Context, m *executionModel, e *engine.Engine, x *modelled) error {
			claimed, err := interop.IssueGrantAndClaim(ctx, e, x.id, "", fixture.LeaseTTL)
			return m.leased(x, claimed, err)
		},
		func(m *executionModel, x *modelled) error {
			if !isReady(x.state) && !x.isGranted() {
				return fferr.ErrNotLeaseable
			}
			x.state = ungranted(x.state)
			x.lease(m)
			return nil
		},
	},
}

func (x *modelled) isGranted() bool { return strings.Contains(x.state, "pending_claim") }

// ungranted is the state of a granted execution that has no grant any more.
func ungranted(state string) string {
	return strings.Replace(state, "pending_claim", "eligible_now", 1)
}

// leased compares a lease with that of the model.
func (m *executionModel) leased(x *modelled, claimed engine.Claimed, err error) error {
	if err != nil {
		return err
	}
	m.leases = append(m.leases, claimed.Lease)
	if claimed.Lease.Epoch != x.epoch || claimed.Lease.Attempt != x.pointer {
		return fmt.Errorf("claimed %+v, want epoch %d, attempt %d", claimed.Lease, x.epoch, x.pointer)
	}
	return nil
}
