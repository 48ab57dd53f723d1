package dependencies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// dice chooses a number below n, for a purpose.
type dice func(what string, n int) int

// flowLife is a flow to which anything may happen, by several actors: its facts follow at any moment from its edges,
// and at its end from its history.
type flowLife struct {
	*fixture.Flows
	actors []*fixture.Rival
	log    fixture.StatementLog
	flow   id.FlowID
	waits  map[id.ExecutionUUID]wait // of all members that there may ever be
	spare  []string                  // keys of those that there are not

	mu     sync.Mutex
	keys   []string // of members
	leases []engine.Lease
	staged []id.EdgeID
}

// newLives returns the common start of lives of flows.
func newLives(t *testing.T, actors int) *flowLife {
	l := &flowLife{Flows: fixture.CloneFlowFixture(t)}
	keepHistory(t, l.Flows)
	for range actors {
		l.actors = append(l.actors, l.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = &l.log }))
	}
	return l
}

func (w wait) group() policy.Group {
	switch {
	case w.cancels && w.rule == 1:
		return policy.AnyOf(policy.CancelRemaining)
	case w.cancels && w.rule > 1:
		return policy.Quorum(int(w.rule), policy.CancelRemaining)
	}
	return w.rule.Group()
}

func drawWait(c dice, fanIn int) wait {
	if fanIn == 0 {
		return wait{}
	}
	w := wait{rule: fixture.Rules(c("rule", min(fanIn, 4)+3)) - 2}
	w.cancels = w.rule > 0 && c("cancels", 2) == 0
	return w
}

func (l *flowLife) spec(key string, c dice) engine.Node {
	w := l.waits[l.NodeID(l.flow, key).UUID()]
	n := engine.Node{Key: key, When: w.group(), Spec: engine.ExecutionSpec{
		Kind: "test", Lane: l.Lane, Policy: &policy.Execution{Retry: &policy.Retry{MaxRetries: 1}},
	}}
	if c("deadline", 20) == 0 {
		n.Spec.Deadline = l.Time().Add(time.Duration(1+c("seconds", 30)) * time.Second)
	}
	return n
}

// beginLife creates a flow with up to most nodes, where there was another.
func (l *flowLife) beginLife(t *testing.T, c dice, most int) {
	t.Helper()
	if _, err := l.Pool.Exec(t.Context(), `TRUNCATE ff_flow_core, ff_edge, ff_edge_group, ff_pending_cancel_groups, ff_cancel_backlog, ff_cancel_backlog_member,
		ff_exec_core, ff_attempt, ffx_ready, ffx_blocked, ffx_lease_timer, ff_lease_event, ff_completion_event, ff_operator_event, history`); err != nil {
		t.Fatal(err)
	}
	l.flow, l.waits, l.Names = id.NewFlowID(), make(map[id.ExecutionUUID]wait), make(map[id.ExecutionUUID]string)
	l.spare, l.keys, l.leases, l.staged = nil, nil, nil, nil
	named := func(key string, fanIn int) string {
		x := l.NodeID(l.flow, key).UUID()
		l.Names[x], l.waits[x] = key, drawWait(c, fanIn)
		return key
	}
	n := 2 + c("nodes", 10)
	if c("many", 5) == 0 {
		n = min(most, 12+c("more nodes", 189))
	}
	chained := c("chained", 3) == 0
	spec := engine.FlowSpec{ID: l.flow}
	for to := range n {
		from := make(map[int]bool)
		if chained && to > 0 {
			from[to-1] = true
		}
		if to > 0 {
			fanIn := c("fan-in", 4)
			if c("wide", 30) == 0 {
				fanIn = to
			}
			for range fanIn {
				from[c("upstream", to)] = true
			}
		}
		l.keys = append(l.keys, named(fmt.Sprint(to), len(from)))
		spec.Nodes = append(spec.Nodes, l.spec(l.keys[to], c))
		for up := range to {
			if from[up] {
				spec.Edges = append(spec.Edges, engine.Edge{From: l.keys[up], To: l.keys[to]})
			}
		}
	}
	for i := range 60 {
		l.spare = append(l.spare, named(fmt.Sprintf("new%d", i), c("fan-in of new", 4)))
	}
	if _, err := l.CreateFlow(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
}

// An act does something on an engine, which may be bound to a transaction, and returns a function that records it
// once that is committed.
type act func(ctx context.Context, l *flowLife, e *engine.Engine, c dice) (note func(), err error)

func (l *flowLife) some(c dice, most int) (keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range 1 + c("how many", most) {
		if key := l.keys[c("which", len(l.keys))]; !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// newKeys takes keys of members to be.
func (l *flowLife) newKeys(c dice, most int) (keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(1+c("how many", most), len(l.spare))
	keys, l.spare = l.spare[:n:n], l.spare[n:]
	return keys
}

// take takes leases away from all actors.
func (l *flowLife) take(c dice, most int) (taken []engine.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range min(1+c("how many", most), len(l.leases)) {
		i := c("lease", len(l.leases))
		taken = append(taken, l.leases[i])
		l.leases = slices.Delete(l.leases, i, i+1)
	}
	return taken
}

func (l *flowLife) hold(leases ...engine.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases = append(l.leases, leases...)
}

// mayRefuse reports whether an error is a valid answer in a flow with several actors.
func mayRefuse(err error) bool {
	for _, refusal := range []error{
		fferr.ErrStaleLease, fferr.ErrLeaseExpired, fferr.ErrNotActive, fferr.ErrEnded, fferr.ErrNotEnded, fferr.ErrStarted, fferr.ErrCycle,
		fferr.ErrFlowTerminal, fferr.ErrEdgeExists, fferr.ErrMaxReplays, fferr.ErrNotMember, fferr.ErrBusy, fferr.ErrContention,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// edges are some edges to a member, from others.
func (l *flowLife) edgesTo(c dice, to string, least int, among []string) (edges []engine.Edge) {
	for _, from := range l.some(c, 3+least) {
		if from != to && len(edges) < least+2 {
			edges = append(edges, engine.Edge{From: from, To: to})
		}
	}
	for _, from := range among {
		if len(edges) < least || c("among", 3) == 0 {
			edges = append(edges, engine.Edge{From: from, To: to})
		}
	}
	return edges
}

var flowActs = map[string]act{
	"claim": func(ctx context.Context, l *flowLife, e *engine.Engine, c dice) (func(), error) {
		claimed, err := e.Claim(ctx, l.Worker(), 1+c("limit", 40))
		return func() {
			for _, x := range claimed {
				l.hold(x.Lease)
			}
		}, err
	},
	"succeed": func(ctx context.Context, l *flowLife, e *engine.Engine, c dice) (func(), error) {
		leases := l.take(c, 20)
		if len(leases) == 1 {
			return nil, e.CompleteExecution(ctx, leases[0], []byte("1"))
		}
		outcomes, err := fixture.Batches["complete"](ctx, e, leases)
		return nil, errors.Join(append(outcomes, err)...)
	},
	"fail": func(ctx context.Context, l *flowLife, e *engine.Engine, c dice) (func(), error) {
		leases, way := l.take(c, 4), []string{"fail", "fail for good", "fail for good", "release"}[c("way", 4)]
		if len(leases) == 1 && way == "fail for good" {
			_, err := e.FailExecution(ctx, leases[0], fixture.ForGood)
			return nil, err
		}
		outcomes, err := fixture.Batches[way](ctx, e, leases)
		return nil, errors.Join(append(outcomes, err)...)
	},
	"cancel members": func(ctx context.Context, l *flowLife, e *engine.Engine, c dice) (func(), error) {
		var specs []engine.CancelSpec
		for _, key := range l.some(c, 3) {
			specs = append(specs, engine.CancelSpec{ID: l.NodeID(l.flow, key)})
		}
		outcomes, err := e.CancelExecutions(ctx, specs)
		return nil, errors.Join(append(outcomes, err)...)
	},
	"replay": func(ctx context.Context, l *flowLife, e *engine.Engine, c dice) (func(), error) {
		_, err := operator.Replay(ctx, e, l.NodeID(l.flow, l.some(c, 1)[0]), operator.ReplayCompleted)
		return nil, err
	},
	"grow": func(ctx context.Context, l *flowLife, e *engine.Engine, c dice) (func(), error) {
		growth, keys := engine.Growth{Flow: l.flow}, l.newKeys(c, 4)
		for i, key := range keys {
			needs := int(l.waits[l.NodeID(l.flow, key).UUID()].rule)
			if needs < 0 {
				needs = 1
			}
			edges := l.edgesTo(c, key, needs, keys[:i])
			if len(edges) < needs {
				return nil, nil
			}
			growth.Nodes, growth.Edges = append(growth.Nodes, l.spec(key, c)), append(growth.Edges, edges...)
		}
		if to := l.some(c, 1)[0]; len(keys) > 0 && c("into a member", 3) == 0 {
			growth.Edges = append(growth.Edges, engine.Edge{From: keys[0], To: to})
		}
		_, err := e.GrowFlow(ctx, growth)
		return l.joined(keys), err
	},
	"add and set": func(ctx context.Context, l *flowLife, e *engine.Engine, c dice) (func(), error) {
		keys := l.newKeys(c, 1)
		if len(keys) == 0 {
			return nil, nil
		}
		x := l.NodeID(l.flow, keys[0])
		w := l.waits[x.UUID()]
		if _, err := e.CreateExecution(ctx, engine.ExecutionSpec{ID: x, Kind: "test", Lane: l.Lane}); err != nil {
			return nil, err
		}
		// As a member it may be given children at once, by its claimer.
		if _, err := e.SetGroupPolicy(ctx, l.flow, x, w.group()); err != nil {
			return nil, err
		}
		if _, err := e.AddMembers(ctx, l.flow, []id.ExecutionID{x}); err != nil {
			return nil, err
		}
		edges := l.edgesTo(c, keys[0], max(int(w.rule), 0), nil)
		if len(edges) < int(w.rule) {
			return l.joined(keys), nil
		}
		_, err := e.GrowFlow(ctx, engine.Growth{Flow: l.flow, Edges: edges})
		return l.joined(keys), err
	},
	"stage": func(ctx context.Context, l *flowLife, e *engine.Engine, c dice) (func(), error) {
		staging := engine.EdgeStaging{Flow: l.flow, Apply: c("apply", 2) == 0}
		for _, edge := range l.edgesTo(c, l.some(c, 1)[0], 1, nil) {
			staging.Edges = append(staging.Edges, engine.StagedEdge{
				Upstream: l.NodeID(l.flow, edge.From), Downstream: l.NodeID(l.flow, edge.To),
			})
		}
		staged, err := e.StageEdges(ctx, staging)
		return func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if !staging.Apply {
				l.staged = append(l.staged, staged.New...)
			}
		}, err
	},
	"apply": func(ctx context.Context, l *flowLife, e *engine.Engine, c dice) (func(), error) {
		l.mu.Lock()
		edges := slices.Clone(l.staged[:c("how many", len(l.staged)+1)])
		l.mu.Unlock()
		_, err := e.ApplyEdges(ctx, l.flow, edges)
		return nil, err
	},
	"have children": func(ctx context.Context, l *flowLife, e *engine.Engine, c dice) (func(), error) {
		leases := l.take(c, 1)
		if len(leases) == 0 {
			return nil, nil
		}
		parent := l.Names[leases[0].Execution.UUID()]
		var children []string
		growth := engine.Growth{Flow: l.flow}
		for _, key := range l.newKeys(c, 2) {
			if l.waits[l.NodeID(l.flow, key).UUID()].rule != 0 {
				continue
			}
			children = append(children, key)
			growth.Nodes = append(growth.Nodes, l.spec(key, c))
			growth.Edges = append(growth.Edges, engine.Edge{From: key, To: parent, AllowStarted: true})
		}
		if len(children) == 0 {
			return nil, nil
		}
		if _, err := e.GrowFlow(ctx, growth); err != nil {
			return nil, err
		}
		_, err := e.WaitForChildren(ctx, leases[0])
		return l.joined(children), err
	},
	"time": func(ctx context.Context, l *flowLife, e *engine.Engine, c dice) (func(), error) {
		l.Advance(time.Duration(1+c("seconds", 5)) * time.Second)
		_, deadlines := upkeep.Of(e).ExpireDeadlines(ctx, 100)
		_, leases := upkeep.Of(e).ExpireLeases(ctx, 100)
		_, delays := upkeep.Of(e).PromoteDelayed(ctx, 100)
		return nil, errors.Join(deadlines, leases, delays)
	},
	"dispatch": func(ctx context.Context, _ *flowLife, e *engine.Engine, c dice) (func(), error) {
		_, err := upkeep.Of(e).DispatchCompletions(ctx, 1+c("batch", 20))
		return nil, err
	},
	"cancel siblings": func(ctx context.Context, _ *flowLife, e *engine.Engine, c dice) (func(), error) {
		_, err := upkeep.Of(e).CancelSiblings(ctx, 1+c("batch", 20))
		return nil, err
	},
	"cancel the flow": func(ctx context.Context, l *flowLife, e *engine.Engine, c dice) (func(), error) {
		policies := []state.FlowCancelPolicy{state.CancelFlowOnly, state.CancelPending, state.CancelAll, state.CancelEverything}
		switch c("cancel", 12) {
		case 0:
			_, err := e.CancelFlow(ctx, engine.CancelFlowSpec{ID: l.flow, Policy: policies[c("policy", 4)]})
			return nil, err
		case 1:
			_, err := e.RequestFlowCancel(ctx, engine.FlowCancelRequest{
				ID: l.flow, Policy: policies[c("policy", 4)], Grace: time.Duration(c("grace", 3)) * 5 * time.Second,
			})
			return nil, err
		}
		_, err := upkeep.Of(e).CancelFlows(ctx, 10)
		return nil, err
	},
}

// joined notes new members.
func (l *flowLife) joined(keys []string) func() {
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.keys = append(l.keys, keys...)
	}
}

// act lets an actor act: by a call, or in a transaction, which may be rolled back.
func (l *flowLife) act(ctx context.Context, c dice, does act) error {
	actor := l.actors[c("actor", len(l.actors))]
	way := c("way", 6)
	if way < 4 {
		note, err := does(ctx, l, actor.Engine, c)
		if note != nil && err == nil {
			note()
		}
		return unless(mayRefuse, err)
	}
	tx, err := actor.Pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	e := actor.WithTx(tx)
	if err := e.LockFlows(ctx, l.flow); err != nil {
		return unless(mayRefuse, err)
	}
	note, err := does(ctx, l, e, c)
	if err := unless(mayRefuse, err); err != nil {
		return err
	}
	if way == 5 {
		return tx.Rollback(ctx)
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	if note != nil && err == nil {
		note()
	}
	return nil
}

// unless returns an error that is none of some.
func unless(these func(error) bool, err error) error {
	joined, several := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case several:
		var rest []error
		for _, err := range joined.Unwrap() {
			rest = append(rest, unless(these, err))
		}
		return errors.Join(rest...)
	case these(err):
		return nil
	}
	return err
}

// outlive brings a flow to its end: staged edges are applied, every claimable member is claimed and ends, and the
// jobs run. Then it judges.
func (l *flowLife) outlive(t *testing.T, r fixture.Reporter, c dice) {
	t.Helper()
	jobs := map[string]fixture.Job{
		"dispatch": upkeep.Of(l.Engine).DispatchCompletions, "siblings": upkeep.Of(l.Engine).CancelSiblings, "flows": upkeep.Of(l.Engine).CancelFlows,
		"leases": upkeep.Of(l.Engine).ExpireLeases, "deadlines": upkeep.Of(l.Engine).ExpireDeadlines, "delays": upkeep.Of(l.Engine).PromoteDelayed,
	}
	l.Advance(2 * fixture.LeaseTTL)
	for _, edge := range l.staged {
		if _, err := l.ApplyEdges(t.Context(), l.flow, []id.EdgeID{edge}); unless(mayRefuse, err) != nil {
			t.Fatal(err)
		}
	}
	pauses := []time.Duration{time.Second, time.Minute}
	for still := 0; still < len(pauses); still++ {
		l.Advance(pauses[still]) // failed ones may wait before the next attempt
		moves := 0
		for name, job := range jobs {
			n, err := job(t.Context(), 1000)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			moves += n
		}
		claimed, err := l.Claim(t.Context(), l.Worker(), engine.MaxBatch)
		if err != nil {
			t.Fatal(err)
		}
		var succeed, fail []engine.Lease
		for _, x := range claimed {
			if moves++; c("fails", 6) == 0 {
				fail = append(fail, x.Lease)
			} else {
				succeed = append(succeed, x.Lease)
			}
		}
		succeeded, err := fixture.Batches["complete"](t.Context(), l.Engine, succeed)
		if err := errors.Join(append(succeeded, err)...); err != nil {
			t.Fatal(err)
		}
		failed, err := fixture.Batches["fail for good"](t.Context(), l.Engine, fail)
		if err := errors.Join(append(failed, err)...); err != nil {
			t.Fatal(err)
		}
		if moves > 0 {
			still = -1
		}
	}
	wantSound(t, l.Flows, r, l.flow, l.waits).wantEnded(r, l.Flows, l.waits)
	wantHistory(t, l.Flows, r, l.flow, l.waits)
	l.Advance(time.Minute)
	if n, err := upkeep.Of(l.Engine).RepairGroups(t.Context(), 1000); err != nil || n > 0 {
		r.Errorf("%d groups are repaired, %v", n, err)
	}
	if broken, err := fixture.BrokenInvariants(t.Context(), l.Url, nil); err != nil || len(broken) > 0 {
		r.Errorf("%q, %v", broken, err)
	}
}

// Several processes change a flow, one after the other, in calls and in transactions of their own. At each step its
// counters are those of its edges, and exactly the members wait whose edges require it; all that can end ends, once,
// and ended members do not change.
func TestFlowsMatchTheModel(t *testing.T) {
	l := newLives(t, 3)
	lives := fixture.ForAMoment(t, func(r *rapid.T) {
		c := func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(r, what) }
		l.beginLife(t, c, 200)
		actions := map[string]func(*rapid.T){"": func(r *rapid.T) {
			if wantSound(t, l.Flows, r, l.flow, l.waits); r.Failed() {
				r.FailNow()
			}
		}}
		for name, does := range flowActs {
			actions[name] = func(r *rapid.T) {
				if err := l.act(t.Context(), c, does); err != nil {
					r.Fatalf("%s: %v", name, err)
				}
			}
		}
		r.Repeat(actions)
		l.outlive(t, r, c)
	})
	t.Logf("%d flows", lives)
}

// So it is where they do all that at the same time.
func TestConcurrentFlowsMatchTheModel(t *testing.T) {
	const actors = 6
	l := newLives(t, 3)
	lives := fixture.ForAMoment(t, func(r *rapid.T) {
		l.beginLife(t, func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(r, what) }, 200)
		seed := rapid.Uint64().Draw(r, "seed")
		var crew sync.WaitGroup
		ctx, over := context.WithCancel(t.Context())
		defer over()
		for i := range actors {
			crew.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				c := func(_ string, n int) int { return random.IntN(n) }
				// Claims, and ends, come most often.
				names := append(slices.Sorted(maps.Keys(flowActs)), "claim", "claim", "succeed", "succeed", "succeed", "fail")
				for range 30 {
					name := names[c("", len(names))]
					if err := l.act(ctx, c, flowActs[name]); err != nil {
						t.Errorf("%s: %v", name, err)
						over()
						return
					}
				}
			})
		}
		crew.Wait()
		random := rand.New(rand.NewPCG(seed, actors))
		wantSound(t, l.Flows, t, l.flow, l.waits)
		l.outlive(t, t, func(_ string, n int) int { return random.IntN(n) })
		for _, code := range l.log.Aborted() {
			if code != "55P03" {
				t.Errorf("the server gave up with %s", code)
			}
		}
	})
	t.Logf("%d flows", lives)
}
