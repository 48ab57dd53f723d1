package system

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// stress is many goroutines that do everything at once to the same executions and flows.
type stress struct {
	*fixture.Fixture
	log *fixture.StatementLog

	mu       sync.Mutex
	leases   []engine.Lease // live ones, and ones that have been used
	grants   []interop.ClaimGrant
	reclaims []interop.ReclaimGrant
	flows    []id.FlowID
}

func (s *stress) keep(claimed []engine.Claimed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range claimed {
		s.leases = append(s.leases, c.Lease)
	}
	if n := len(s.leases); n > 200 {
		s.leases = s.leases[n-200:]
	}
}

// some returns leases in no order, live and stale ones, and now and then one twice.
func (s *stress) some(n int) []engine.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	var some []engine.Lease
	for range min(n, len(s.leases)) {
		l := s.leases[rand.IntN(len(s.leases))]
		if rand.IntN(8) == 0 {
			l.Epoch-- // a holder from before
		}
		some = append(some, l)
	}
	return some
}

// create makes a flow in which two upstreams lead to two downstreams each, so that everything meets.
func (s *stress) create(ctx context.Context) error {
	spec := engine.FlowSpec{}
	for i := range 8 {
		rules := []policy.Group{
			policy.AllOf(), policy.AnyOf(policy.LetRun), policy.AnyOf(policy.CancelRemaining), policy.Quorum(2, policy.CancelRemaining),
			policy.OnFailure(), policy.Always(),
		}
		when := rules[rand.IntN(len(rules))]
		spec.Nodes = append(spec.Nodes, engine.Node{
			Key: fmt.Sprint(i), When: when,
			Spec: engine.ExecutionSpec{Lane: s.Lane, Kind: "test", Policy: &policy.Execution{Retry: &policy.Retry{MaxRetries: 1}}},
		})
		if i >= 2 {
			above := i/2*2 - 2
			spec.Edges = append(spec.Edges, engine.Edge{From: fmt.Sprint(above), To: fmt.Sprint(i)}, engine.Edge{From: fmt.Sprint(above + 1), To: fmt.Sprint(i)})
		}
	}
	for i := range spec.Nodes[:2] {
		spec.Nodes[i].When = policy.Group{}
	}
	created, err := s.CreateFlow(ctx, spec)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.flows = append(s.flows, created.ID)
	}
	return err
}

// act does something on an engine, which may be bound to a transaction.
func (s *stress) act(ctx context.Context, t *testing.T, e *engine.Engine, what int) error {
	batch := func(name string) error {
		leases := s.some(1 + rand.IntN(12))
		if len(leases) == 0 {
			return nil
		}
		outcomes, err := fixture.Batches[name](ctx, e, leases)
		return errors.Join(append(outcomes, err)...)
	}
	single := func(name string) error {
		leases := s.some(1)
		if len(leases) == 0 {
			return nil
		}
		return fixture.HolderCalls[name](t, e, leases[0])
	}
	switch what {
	case 0, 1, 2:
		claimed, err := e.Claim(ctx, s.Worker(), 1+rand.IntN(8))
		s.keep(claimed)
		return err
	case 3:
		return batch("complete")
	case 4:
		return batch("fail")
	case 5:
		return batch("fail for good")
	case 6:
		return batch("renew")
	case 7:
		return batch("release")
	case 8:
		return single("complete")
	case 9:
		return single("fail for good")
	case 10:
		return single("progress")
	case 11:
		return single("complete and claim")
	case 12:
		if leases := s.some(1); len(leases) > 0 {
			return e.SetExecutionTag(ctx, leases[0].Execution, "app.set", "value")
		}
	case 13:
		return batch("delay")
	case 14:
		return single("delay")
	case 15:
		return batch("wait for children")
	case 16:
		return single("wait for children")
	case 17:
		if leases := s.some(1); len(leases) > 0 {
			return e.CancelExecution(ctx, engine.CancelSpec{ID: leases[0].Execution})
		}
	case 18:
		var specs []engine.CancelSpec
		for _, l := range s.some(1 + rand.IntN(6)) {
			spec := engine.CancelSpec{ID: l.Execution}
			if rand.IntN(2) == 0 {
				spec.Fence = &l.Fence
			}
			specs = append(specs, spec)
		}
		outcomes, err := e.CancelExecutions(ctx, specs)
		return errors.Join(append(outcomes, err)...)
	case 19, 20:
		return s.schedule(ctx, e, rand.IntN(7))
	case 21:
		return s.oversee(ctx, e, rand.IntN(5))
	default:
		if leases := s.some(1); len(leases) > 0 {
			return operators[what-22](ctx, e, leases[0].Execution)
		}
	}
	return nil
}

// operators are an operator's calls on executions, among it.
var operators = []func(context.Context, *engine.Engine, id.ExecutionID) error{
	func(ctx context.Context, o *engine.Engine, x id.ExecutionID) error {
		_, err := operator.Replay(ctx, o, x, operator.ReplayCompleted)
		return err
	},
	func(ctx context.Context, o *engine.Engine, x id.ExecutionID) error {
		_, err := operator.Replay(ctx, o, x, operator.ReplayCompleted)
		return err
	},
	func(ctx context.Context, o *engine.Engine, x id.ExecutionID) error {
		_, err := operator.Revoke(ctx, o, operator.RevokeSpec{ID: x})
		return err
	},
	func(ctx context.Context, o *engine.Engine, x id.ExecutionID) error {
		return operator.Prioritize(ctx, o, x, rand.IntN(4))
	},
	func(ctx context.Context, o *engine.Engine, x id.ExecutionID) error {
		return operator.Delay(ctx, o, x, fixture.Start.Add(time.Duration(rand.IntN(10))*time.Second))
	},
	func(ctx context.Context, o *engine.Engine, x id.ExecutionID) error {
		_, err := operator.Block(ctx, o, x, state.WaitingForCapableWorker, "")
		return err
	},
	func(ctx context.Context, o *engine.Engine, x id.ExecutionID) error {
		return operator.Unblock(ctx, o, x, "")
	},
}

// kinds is how many things there are to do.
func (*stress) kinds() int { return 22 + len(operators) }

// A6: every operation on the same flows at once, single and in batches, on a pool and in callers' transactions, with
// live and stale leases: the server never has to break a deadlock.
func TestOperationsNeverDeadlock(t *testing.T) {
	f := fixture.NewCloned(t)
	log := new(fixture.StatementLog)
	url := f.Url
	f = fixture.On(t, log.Open(t, url, func(config *pgxpool.Config) { config.MaxConns = 24 }), url)
	f.Engine = f.EngineOn(t, f.Pool, engine.Config{Retention: policy.MinRetention, OutboxRetention: policy.MinRetention})
	f.Signing(t)
	s := &stress{Fixture: f, log: log}
	ctx := t.Context()
	for range 20 {
		if err := s.create(ctx); err != nil {
			t.Fatal(err)
		}
	}
	goesOn := soak.For(t, fixture.Moment)
	var actors sync.WaitGroup
	for actor := range 14 {
		actors.Go(func() {
			for round := 0; goesOn() || round < 10; round++ { // a slow machine gets something done, too
				switch {
				case actor < 2:
					_ = s.job(ctx, rand.IntN(jobKinds))
				case actor == 2:
					_ = s.create(ctx)
				case actor < 7:
					_ = s.act(ctx, t, s.Engine, rand.IntN(s.kinds()))
				case actor == 7:
					_ = s.tend(ctx, s.Engine, rand.IntN(flowKinds))
				case actor == 8 && rand.IntN(2) == 0:
					_ = s.several(ctx)
				case actor == 8:
					_ = pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
						_ = s.tend(ctx, s.WithTx(tx), rand.IntN(flowKinds))
						return nil
					})
				default: // one call in a transaction of the caller's
					_ = pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
						_ = s.act(ctx, t, s.WithTx(tx), rand.IntN(s.kinds()))
						return nil
					})
				}
			}
		})
	}
	actors.Wait()
	deadlocks := 0
	for _, state := range log.Aborted() {
		if state == "40P01" {
			deadlocks++
		}
	}
	if deadlocks > 0 {
		t.Errorf("the server broke %d deadlocks", deadlocks)
	}
	// The invariants, that every end has its event among them, are judged at the end of the database.
	type count struct{ Ended, Replayed, Adopted, Deleted, Flows, Cancelled, Grown int }
	c := fixture.One[count](t, f.Pool, `SELECT count(*) FILTER (WHERE terminal_at_ms IS NOT NULL) AS ended,
		count(*) FILTER (WHERE raw_fields ? 'replay_count') AS replayed,
		count(*) FILTER (WHERE raw_fields ? 'total_attempt_count' AND ffx_retry_count IS NOT NULL) AS adopted,
		(SELECT coalesce(sum(deleted) FILTER (WHERE source <> 'flows'), 0)::bigint FROM ffx_retention) AS deleted,
		(SELECT coalesce(sum(deleted) FILTER (WHERE source = 'flows'), 0)::bigint FROM ffx_retention) AS flows,
		(SELECT count(*) FROM ff_flow_core WHERE public_flow_state = 'cancelled') AS cancelled,
		count(*) FILTER (WHERE raw_fields ->> 'ffx_node_key' LIKE 'grown%') AS grown
		FROM ff_exec_core`)
	if c.Ended+c.Deleted == 0 || soak.On(t) && (c.Cancelled == 0 || c.Grown == 0) {
		t.Errorf("too little was done: %+v", c)
	}
	t.Logf("%d executions ended, %d were replayed, %d adopted, %d deleted, %d flows deleted, %d cancelled, grown by %d; %d grants",
		c.Ended, c.Replayed, c.Adopted, c.Deleted, c.Flows, c.Cancelled, c.Grown, len(s.grants)+len(s.reclaims))
	abortions := make(map[string]int)
	for _, state := range log.Aborted() {
		abortions[state]++
	}
	t.Logf("the server gave up %v", abortions)
}
