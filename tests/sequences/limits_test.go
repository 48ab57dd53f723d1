package sequences

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// limited makes executions name a limit that the database has.
func limited(t *testing.T, f *fixture.Fixture, name string, units int) func(*engine.ExecutionSpec) {
	t.Helper()
	if err := limit.Declare(t.Context(), f.Engine, limit.Spec{Name: name, Units: units}); err != nil {
		t.Fatal(err)
	}
	return func(s *engine.ExecutionSpec) { s.Limits = append(s.Limits, engine.LimitKey{Name: name}) }
}

// admit runs the gate until it admits nothing more.
func admit(t *testing.T, eng *engine.Engine) {
	t.Helper()
	for {
		n, err := upkeep.Of(eng).AdmitWaiting(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

// create adds a member to the line.
func (l *line) create(t *testing.T, change ...func(*engine.ExecutionSpec)) id.ExecutionID {
	t.Helper()
	x := l.Create(t, append([]func(*engine.ExecutionSpec){of(engine.Sequence{Key: account})}, change...)...)
	l.members = append(l.members, x)
	return x
}

// wantState fails unless the member of this index has this public state.
func (l *line) wantState(t *testing.T, member int, want state.PublicState) {
	t.Helper()
	if got := l.Describe(t, l.members[member]).State.Public; got != want {
		t.Fatalf("member %d is %s, want %s", member, got, want)
	}
}

// Members of one sequence pass the gate one after the other, those of all sequences together run no more at once than the
// limit has, and all run.
func TestMembersPassTheGateInTheirTurn(t *testing.T) {
	f := fixture.NewCloned(t)
	limit := limited(t, f, "database", 1)
	order := map[string][]id.ExecutionID{}
	for n := range 3 {
		for _, key := range []string{"a", "b"} {
			order[key] = append(order[key], f.Create(t, limit, of(engine.Sequence{Key: key}), func(s *engine.ExecutionSpec) { s.Priority = n }))
		}
	}
	of := map[id.ExecutionID]string{}
	for key, members := range order {
		for _, x := range members {
			of[x] = key
		}
	}
	for ran := range 6 {
		admit(t, f.Engine)
		claimed := f.ClaimN(t, 10)
		if len(claimed) != 1 {
			t.Fatalf("%d run at once after %d", len(claimed), ran)
		}
		key := of[claimed[0].ID]
		if claimed[0].ID != order[key][0] {
			t.Fatalf("sequence %s runs out of order", key)
		}
		order[key] = order[key][1:]
		if err := f.CompleteExecution(t.Context(), claimed[0].Lease, nil); err != nil {
			t.Fatal(err)
		}
	}
	(&line{Fixture: f}).wantRows(t, 0, 0, 0)
}

// The first member waits at its budget or limit when it is created or gets its turn, others wait for it before that. What waits
// at a gate holds back its own sequence alone.
func TestMemberAtTheGateKeepsTheOrder(t *testing.T) {
	for _, c := range []struct {
		name, blocked string
		shut          func(t *testing.T, f *fixture.Fixture) (change func(*engine.ExecutionSpec), open func())
	}{
		{"limit", "runnable unowned blocked_by_quota rate_limited pending_first_attempt waiting_for_quota", shutLimit},
		{"budget", "runnable unowned blocked_by_budget rate_limited pending_first_attempt waiting_for_budget", shutBudget},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &line{Fixture: fixture.NewCloned(t)}
			gated, open := c.shut(t, l.Fixture)
			l.create(t)
			l.create(t, gated)
			l.create(t)
			other := l.Create(t, of(engine.Sequence{Key: "other"}), gated)
			l.WantState(t, other, c.blocked)
			l.wantState(t, 1, state.PublicWaitingChildren)
			l.complete(t, l.wantTurn(t, 0))
			l.WantState(t, l.members[1], c.blocked)
			l.wantState(t, 2, state.PublicWaitingChildren)
			admit(t, l.Engine)
			l.wantTurn(t, -1)
			third := l.Create(t, of(engine.Sequence{Key: "third"}))
			l.complete(t, l.claimOf(t, third))
			l.Cancel(t, other)
			open()
			admit(t, l.Engine)
			l.complete(t, l.wantTurn(t, 1))
			l.complete(t, l.wantTurn(t, 2))
			l.wantRows(t, 0, 0, 0)
		})
	}
}

// shutLimit returns a limit without room, and a function that gives it some.
func shutLimit(t *testing.T, f *fixture.Fixture) (func(*engine.ExecutionSpec), func()) {
	t.Helper()
	under := limited(t, f, "database", 1)
	name := limit.Name{Name: "database"}
	set := func(units int) {
		t.Helper()
		if err := limit.Set(t.Context(), f.Engine, name, limit.Setting{Units: units}); err != nil {
			t.Fatal(err)
		}
	}
	set(0)
	return under, func() { set(1) }
}

// shutBudget returns a budget that is exhausted, and a function that resets it.
func shutBudget(t *testing.T, f *fixture.Fixture) (func(*engine.ExecutionSpec), func()) {
	t.Helper()
	b, err := budget.Create(t.Context(), f.Engine, budget.Spec{Limits: map[string]budget.Limit{"n": {Hard: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := budget.Report(t.Context(), f.Engine, budget.Usage{Budget: b.ID, Amounts: map[string]int64{"n": 1}}); err != nil {
		t.Fatal(err)
	}
	return func(s *engine.ExecutionSpec) { s.Budgets = []id.BudgetID{b.ID} }, func() {
		t.Helper()
		if _, err := budget.Reset(t.Context(), f.Engine, b.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// claimOf claims the one claimable execution.
func (l *line) claimOf(t *testing.T, x id.ExecutionID) engine.Claimed {
	t.Helper()
	claimed := l.ClaimN(t, 10)
	if len(claimed) != 1 || claimed[0].ID != x {
		t.Fatalf("claimed %v, want %s", fixture.ExecutionsOf(claimed), x)
	}
	return claimed[0]
}

// A member that ends while it waits at the gate, in whatever way, leaves its turn to the next.
func TestEndsAtTheGateMoveTheSequenceOn(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(t *testing.T, l *line, x id.ExecutionID)
	}{
		{"cancel", func(t *testing.T, l *line, x id.ExecutionID) { l.Cancel(t, x) }},
		{"deadline", func(t *testing.T, l *line, _ id.ExecutionID) {
			l.Advance(2 * time.Hour)
			fixture.Run(t, upkeep.Of(l.Engine).ExpireDeadlines, 1)
		}},
		{"deletion", func(t *testing.T, l *line, x id.ExecutionID) {
			l.Exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", x.UUID())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &line{Fixture: fixture.NewCloned(t)}
			shut, _ := shutLimit(t, l.Fixture)
			x := l.create(t, shut, func(s *engine.ExecutionSpec) {
				s.Sequence.OnFailure, s.Deadline = engine.SequenceSkips, l.Time().Add(time.Hour)
			})
			l.create(t)
			l.wantState(t, 0, state.PublicRateLimited)
			c.end(t, l, x)
			l.complete(t, l.wantTurn(t, 1))
			l.wantRows(t, 0, 0, 0)
		})
	}
}

// A sequence that stopped at a member goes on when that is replayed, which passes the gate again, and when an operator passes
// over it: the next one waits at the gate then.
func TestReplayedMemberPassesTheGateAgain(t *testing.T) {
	l := &line{Fixture: fixture.NewCloned(t)}
	limit := limited(t, l.Fixture, "database", 1)
	for range 3 {
		l.create(t, limit)
	}
	admit(t, l.Engine)
	l.fail(t, l.wantTurn(t, 0))
	rival := l.Create(t, limit)
	admit(t, l.Engine)
	replayed, err := operator.Replay(t.Context(), l.Fixture.Engine, l.members[0])
	if err != nil || replayed.State != state.PublicRateLimited {
		t.Fatal(replayed, err)
	}
	admit(t, l.Engine)
	l.complete(t, l.claimOf(t, rival)) // it has the place
	admit(t, l.Engine)
	l.fail(t, l.wantTurn(t, 0))
	l.wantState(t, 1, state.PublicWaitingChildren)
	if err := operator.ContinueSequence(t.Context(), l.Fixture.Engine, engine.SequenceName{Key: account}); err != nil {
		t.Fatal(err)
	}
	l.wantState(t, 1, state.PublicRateLimited)
	admit(t, l.Engine)
	c := l.wantTurn(t, 1)
	// Replayed at the end of the line: it waits for the others before it waits for the limit.
	if replayed, err = operator.Replay(t.Context(), l.Fixture.Engine, l.members[0]); err != nil || replayed.State != state.PublicWaitingChildren {
		t.Fatal(replayed, err)
	}
	l.complete(t, c)
	admit(t, l.Engine)
	l.complete(t, l.wantTurn(t, 2))
	l.complete(t, l.wantTurn(t, 0)) // the one before it has handed its place over
	l.wantRows(t, 0, 0, 0)
}

// A delayed member waits at the gate only after its delay, and a place is not taken before. A retry keeps the turn, and waits at
// the gate again.
func TestDelaysComeBeforeTheGate(t *testing.T) {
	l := &line{Fixture: fixture.NewCloned(t)}
	limit := limited(t, l.Fixture, "database", 1)
	l.create(t)
	l.create(t, limit, func(s *engine.ExecutionSpec) { s.DelayUntil, s.Policy = l.Time().Add(time.Hour), nil })
	l.complete(t, l.wantTurn(t, 0))
	l.wantState(t, 1, state.PublicDelayed)
	l.complete(t, l.rivalOf(t, limit))
	l.Advance(time.Hour)
	fixture.Run(t, upkeep.Of(l.Engine).PromoteDelayed, 1)
	l.wantState(t, 1, state.PublicRateLimited)
	admit(t, l.Engine)
	l.fail(t, l.wantTurn(t, 1))
	l.wantState(t, 1, state.PublicDelayed)
	l.complete(t, l.rivalOf(t, limit)) // while it waits for its retry
	l.Advance(time.Hour)
	fixture.Run(t, upkeep.Of(l.Engine).PromoteDelayed, 1)
	admit(t, l.Engine)
	l.complete(t, l.wantTurn(t, 1))
	l.wantRows(t, 0, 0, 0)
}

// rivalOf creates and claims an execution outside the line.
func (l *line) rivalOf(t *testing.T, change func(*engine.ExecutionSpec)) engine.Claimed {
	t.Helper()
	x := l.Create(t, change)
	admit(t, l.Engine)
	return l.claimOf(t, x)
}

// The end of a member rings the gate for the next one, whether a statement of SQL ended it or a worker did, after whose call the
// process looks at its sequences.
func TestEndsRingTheGate(t *testing.T) {
	l := &line{Fixture: fixture.NewCloned(t)}
	limit := limited(t, l.Fixture, "database", 1)
	other := limited(t, l.Fixture, "api", 9) // with two limits no place is handed over
	m := upkeep.Of(l.Engine)
	gateNotified := func() bool {
		select {
		case <-m.Gated():
			return true
		default:
			return false
		}
	}
	for range 2 {
		l.create(t, limit, other)
	}
	if !gateNotified() {
		t.Error("no ring after the creation of the first")
	}
	admit(t, l.Engine)
	l.complete(t, l.wantTurn(t, 0))
	for gateNotified() {
	}
	fixture.Run(t, m.AdvanceSequences, 0)
	if !gateNotified() {
		t.Error("no ring after the end of a member, whose next one waits at the gate")
	}
	l.create(t, limit, other)
	admit(t, l.Engine)
	for gateNotified() {
	}
	fixture.Run(t, m.AdvanceSequences, 0)
	if gateNotified() {
		t.Error("a ring although none waits at the gate")
	}
	// Without the library's settings, as a program ends a member in SQL.
	listening, err := l.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer listening.Release()
	if _, err := listening.Exec(t.Context(), "LISTEN ffx_gate"); err != nil {
		t.Fatal(err)
	}
	l.SetExecution(t, l.members[1], "lifecycle_phase = 'terminal', public_state = 'cancelled'")
	n, err := listening.Conn().WaitForNotification(t.Context())
	if err != nil || n.Payload != "changed" {
		t.Error(n, err)
	}
	l.wantState(t, 2, state.PublicRateLimited)
}

// While another transaction holds the next execution an end leaves a note, and the next one waits at the gate once the
// background work has looked. A creator in an open transaction does not hold the limit.
func TestNotedEndsLeadToTheGate(t *testing.T) {
	l := &line{Fixture: fixture.NewCloned(t)}
	limit := limited(t, l.Fixture, "database", 1)
	l.create(t, limit)
	l.create(t, limit)
	admit(t, l.Engine)
	c := l.wantTurn(t, 0)
	holder := l.BeginTx(t)
	fixture.ExecIn(t, holder, "SELECT FROM ff_exec_core WHERE execution_id = $1 FOR UPDATE", l.members[1].UUID())
	l.complete(t, c)
	l.wantRows(t, 1, 1, 1)
	if _, err := l.WithTx(holder).CreateExecution(t.Context(), engine.ExecutionSpec{
		Lane: l.Lane, Kind: "test", Limits: []engine.LimitKey{{Name: "database"}}, Sequence: engine.Sequence{Key: "new"},
	}); err != nil {
		t.Fatal(err)
	}
	l.complete(t, l.rivalOf(t, limit))
	fixture.Commit(t, holder)
	fixture.Run(t, upkeep.Of(l.Engine).AdvanceSequences, 1)
	l.wantState(t, 1, state.PublicRateLimited)
	admit(t, l.Engine)
	if claimed := l.ClaimN(t, 10); len(claimed) != 1 {
		t.Errorf("%d run at once", len(claimed))
	}
}

// Processes that end members, admit and claim at once: no two of a sequence run at once, no more than the limit run, and all
// run in order.
func TestMembersUnderALimitInManyProcesses(t *testing.T) {
	f := fixture.NewCloned(t)
	const limit, sequences, each, processes = 2, 4, 10, 3
	change := limited(t, f, "database", limit)
	next := make([][]id.ExecutionID, sequences)
	sequence := map[id.ExecutionID]int{}
	for range each {
		for s := range sequences {
			x := f.Create(t, change, of(engine.Sequence{Key: fmt.Sprint(s)}))
			next[s] = append(next[s], x)
			sequence[x] = s
		}
	}
	admit(t, f.Engine)
	ended := make(chan id.ExecutionID, sequences*each)
	var waits []func() error
	for n := range processes {
		r := f.Rival(t)
		waits = append(waits, fixture.Async(t, func(ctx context.Context) error {
			spec := f.Worker()
			spec.Instance = id.WorkerInstanceID(fmt.Sprint(f.Name, n))
			for left := 1; left > 0; {
				if _, err := upkeep.Of(r.Engine).AdvanceSequences(ctx, 100); err != nil {
					return err
				}
				if _, err := upkeep.Of(r.Engine).AdmitWaiting(ctx, 100); err != nil {
					return err
				}
				claimed, err := r.Claim(ctx, spec, 2)
				if err != nil {
					return err
				}
				var leased, lines int
				if err := r.Pool.QueryRow(ctx, `
					SELECT count(*), count(DISTINCT ffx_sequence), (SELECT count(*) FROM ff_exec_core WHERE lifecycle_phase = 'runnable')
					FROM ff_exec_core WHERE lifecycle_phase = 'active'`).Scan(&leased, &lines, &left); err != nil {
					return err
				}
				if leased > limit || lines < leased {
					return fmt.Errorf("%d run at once, of %d sequences", leased, lines)
				}
				for _, c := range claimed {
					ended <- c.ID
					if err := r.CompleteExecution(ctx, c.Lease, nil); err != nil {
						return err
					}
				}
			}
			return nil
		}))
	}
	for _, wait := range waits {
		if err := wait(); err != nil {
			t.Error(err)
		}
	}
	close(ended)
	for x := range ended {
		s := sequence[x]
		if next[s][0] != x {
			t.Fatalf("sequence %d runs out of order", s)
		}
		next[s] = next[s][1:]
	}
	for s := range next {
		if len(next[s]) > 0 {
			t.Errorf("%d of sequence %d have not run", len(next[s]), s)
		}
	}
}
