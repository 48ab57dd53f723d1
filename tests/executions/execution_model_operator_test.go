package executions

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// modelCall is a call on an execution by a caller without a lease of it: the call of the engine, after its effect in
// the model, or the refusal.
type modelCall struct {
	call func(context.Context, *executionModel, *engine.Engine, *modelled) error
	does func(*executionModel, *modelled) error
}

var modelOperators = map[string]modelCall{
	"cancel": {
		func(ctx context.Context, _ *executionModel, e *engine.Engine, x *modelled) error {
			return e.CancelExecution(ctx, engine.CancelSpec{ID: x.id})
		},
		(*executionModel).cancel,
	},
	"cancel in a batch": {
		func(ctx context.Context, _ *executionModel, e *engine.Engine, x *modelled) error {
			outcomes, err := e.CancelExecutions(ctx, []engine.CancelSpec{{ID: x.id}})
			return errors.Join(append(outcomes, err)...)
		},
		(*executionModel).cancel,
	},
	"revoke": {
		func(ctx context.Context, _ *executionModel, e *engine.Engine, x *modelled) error {
			revoked, err := operator.Revoke(ctx, e, operator.RevokeSpec{ID: x.id})
			if err == nil && revoked.NotRevoked != "" {
				return fixture.ErrIdle
			}
			return err
		},
		func(_ *executionModel, x *modelled) error {
			if !x.active() {
				return fixture.ErrIdle
			}
			x.let("interrupted", true)
			x.state = fixture.StateReturned
			return nil
		},
	},
	"replay": {
		func(ctx context.Context, _ *executionModel, e *engine.Engine, x *modelled) error {
			_, err := operator.Replay(ctx, e, x.id, operator.ReplayCompleted)
			return err
		},
		func(m *executionModel, x *modelled) error {
			switch {
			case !x.hasEnded():
				return fferr.ErrNotEnded
			case x.replays == 10:
				return fferr.ErrMaxReplays
			}
			x.epoch++
			x.replays++
			x.retries, x.lost = 0, 0
			if x.pointer < len(x.attempts) { // or a retry was pending, which begins now
				*x.current() = modelledAttempt{epoch: x.epoch}
			}
			if m.isOver(x.deadline) {
				x.deadline = time.Time{}
			}
			x.state = fixture.StateReplayed
			return nil
		},
	},
	"postpone": {
		func(ctx context.Context, m *executionModel, e *engine.Engine, x *modelled) error {
			return operator.Delay(ctx, e, x.id, m.f.Time().Add(5*time.Second))
		},
		func(m *executionModel, x *modelled) error {
			if !isReady(x.state) && x.wake.IsZero() {
				return fferr.ErrNotEligible
			}
			x.wake = m.f.Time().Add(5 * time.Second)
			x.state = x.waiting("not_eligible_until_time delayed", "waiting_for_delay")
			return nil
		},
	},
	"wake": {
		func(ctx context.Context, m *executionModel, e *engine.Engine, x *modelled) error {
			return operator.Delay(ctx, e, x.id, m.f.Time())
		},
		func(_ *executionModel, x *modelled) error {
			switch {
			case isReady(x.state):
			case x.wake.IsZero():
				return fferr.ErrNotEligible
			default:
				x.wake = time.Time{}
				x.state = x.waiting("eligible_now waiting", "waiting_for_worker")
			}
			return nil
		},
	},
	"block": {
		func(ctx context.Context, _ *executionModel, e *engine.Engine, x *modelled) error {
			blocking, err := operator.Block(ctx, e, x.id, state.PausedByOperator, "")
			if err == nil && blocking.Rejected != "" {
				return fixture.ErrIdle
			}
			return err
		},
		func(_ *executionModel, x *modelled) error {
			switch {
			case x.isBlocked():
			case !isReady(x.state):
				return fixture.ErrIdle
			default:
				x.state = x.waiting("blocked_by_operator waiting", "paused_by_operator")
			}
			return nil
		},
	},
	"unblock": {
		func(ctx context.Context, _ *executionModel, e *engine.Engine, x *modelled) error {
			return operator.Unblock(ctx, e, x.id, "")
		},
		func(_ *executionModel, x *modelled) error {
			if !x.isBlocked() {
				return fferr.ErrNotEligible
			}
			x.state = x.waiting("eligible_now waiting", "waiting_for_worker")
			return nil
		},
	},
	"prefer": {
		func(ctx context.Context, _ *executionModel, e *engine.Engine, x *modelled) error {
			return operator.Prioritize(ctx, e, x.id, 5)
		},
		func(_ *executionModel, x *modelled) error {
			if !isReady(x.state) {
				return fferr.ErrNotEligible
			}
			return nil
		},
	},
}

func (x *modelled) isBlocked() bool { return strings.Contains(x.state, "blocked_by_operator") }

func (*executionModel) cancel(x *modelled) error {
	switch {
	case x.state == fixture.StateCancelled:
		return nil
	case x.hasEnded():
		return fferr.ErrEnded
	}
	if len(x.attempts) > 0 && x.pointer < len(x.attempts) {
		outcome := ""
		if x.active() {
			outcome = "cancelled"
		}
		x.let(outcome, true)
	}
	x.end(fixture.StateCancelled, "cancelled")
	return nil
}

// operate makes a call on one of the executions.
func (m *executionModel) operate(t *testing.T, r *rapid.T, name string, c modelCall) {
	if len(m.all) == 0 {
		return
	}
	x := rapid.SampledFrom(m.all).Draw(r, "execution")
	from := x.state
	want := c.does(m, x)
	if err := c.call(t.Context(), m, m.actor(r), x); !errors.Is(err, want) {
		r.Fatalf("%s of %s, which is %s, answers %v, want %v", name, x.id, from, err, want)
	}
}
