package workers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// waitingFixture is a fixture with another process that waits, and its statements.
type waitingFixture struct {
	*fixture.Flows
	waits *fixture.Rival
	log   *fixture.LookLog
}

func newWaitingFixture(t *testing.T) *waitingFixture {
	t.Helper()
	f := fixture.NewFlows(t)
	log := fixture.NewLookLog()
	return &waitingFixture{f, f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log }), log}
}

// ended is how a wait has ended.
type ended struct {
	result []byte
	flow   *engine.FlowSnapshot
	err    error
}

func (f *waitingFixture) await(t *testing.T, x id.ExecutionID) (end func(), wait func() ended) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	return cancel, fixture.Async(t, func(context.Context) ended {
		result, err := f.waits.AwaitExecution(ctx, x)
		return ended{result: result, err: err}
	})
}

func (f *waitingFixture) awaitFlow(t *testing.T, flow id.FlowID) (wait func() ended) {
	t.Helper()
	return fixture.Async(t, func(ctx context.Context) ended {
		snapshot, err := f.waits.AwaitFlow(ctx, flow)
		return ended{flow: snapshot, err: err}
	})
}

// cut ends the connections of the process that waits.
func (f *waitingFixture) cut(t *testing.T) {
	t.Helper()
	killed := fixture.Texts(t, f.Pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1", f.waits.Name)
	f.Exec(t, "SELECT pg_terminate_backend(pid::integer) FROM unnest($1::text[]) AS pid", killed)
	fixture.Await(t, "the connections to end", func() bool {
		return len(fixture.Texts(t, f.Pool, "SELECT pid::text FROM pg_stat_activity WHERE pid::text = ANY ($1)", killed)) == 0
	})
}

// looked returns once it has been looked n times for so many executions or flows, and more.
func (f *waitingFixture) looked(t *testing.T, query string, size int) {
	t.Helper()
	fixture.Await(t, fmt.Sprintf("a look for %d by %s", size, query), func() bool {
		f.log.Mu.Lock()
		defer f.log.Mu.Unlock()
		for _, l := range f.log.Looks {
			if l.Query == query && l.Size == size {
				return true
			}
		}
		return false
	})
}

func TestAwaitExecutionReturnsTheResult(t *testing.T) {
	f := newWaitingFixture(t)
	c := f.Start(t)
	_, wait := f.await(t, c.ID)
	f.looked(t, "ListEnded", 1)
	if err := f.CompleteExecution(t.Context(), c.Lease, []byte("done")); err != nil {
		t.Fatal(err)
	}
	if got := wait(); got.err != nil || string(got.result) != "done" {
		t.Errorf("got %q, %v", got.result, got.err)
	}
	// It has ended: one look is enough.
	f.log.Take()
	if got, err := f.waits.AwaitExecution(t.Context(), c.ID); err != nil || string(got) != "done" {
		t.Errorf("got %q, %v", got, err)
	}
	if got := f.log.Take(); len(got) != 1 {
		t.Errorf("sent %v, want one statement", got)
	}
	c = f.Start(t)
	if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := f.waits.AwaitExecution(t.Context(), c.ID); err != nil || got != nil {
		t.Errorf("got %q, %v, want nothing", got, err)
	}
}

func TestAwaitExecutionReportsAFailure(t *testing.T) {
	f := newWaitingFixture(t)
	flow := f.Draw(t, nil, "a>b")
	_, waitA := f.await(t, f.NodeID(flow, "a"))
	_, waitB := f.await(t, f.NodeID(flow, "b"))
	f.looked(t, "ListEnded", 2)
	f.Fail(t, flow, "a")
	for key, c := range map[string]struct {
		got  ended
		want fferr.EndedError
	}{
		"a": {waitA(), fferr.EndedError{Outcome: state.OutcomeFailed, Failure: "broken"}},
		"b": {waitB(), fferr.EndedError{Outcome: state.OutcomeSkipped}},
	} {
		c.want.Execution = f.NodeID(flow, key)
		if got, ok := errors.AsType[*fferr.EndedError](c.got.err); !ok || *got != c.want || c.got.result != nil {
			t.Errorf("%s: got %q, %v, want %v", key, c.got.result, c.got.err, &c.want)
		}
	}
}

func TestAwaitRefusesBadInput(t *testing.T) {
	f := newWaitingFixture(t)
	x, flow := id.NewExecutionID(f.Lane, id.Partitions{}), id.NewFlowID()
	bound := f.WithTx(f.BeginTx(t))
	for name, c := range map[string]struct {
		err  func() error
		want error
	}{
		"absent execution":      {func() error { _, err := f.AwaitExecution(t.Context(), x); return err }, fferr.ErrNotFound},
		"absent flow":           {func() error { _, err := f.AwaitFlow(t.Context(), flow); return err }, fferr.ErrNotFound},
		"no execution":          {func() error { _, err := f.AwaitExecution(t.Context(), id.ExecutionID{}); return err }, fferr.ErrInvalidInput},
		"in a transaction":      {func() error { _, err := bound.AwaitExecution(t.Context(), f.Create(t)); return err }, fferr.ErrInvalidInput},
		"flow in a transaction": {func() error { _, err := bound.AwaitFlow(t.Context(), flow); return err }, fferr.ErrInvalidInput},
	} {
		if err := c.err(); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) //pace:allow it is to run out
	defer cancel()
	if _, err := f.AwaitExecution(ctx, f.Create(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// A thousand cost no more statements than one: each look is for all.
func TestAwaitThousandExecutionsWithFewStatements(t *testing.T) {
	f := newWaitingFixture(t)
	const many = 1000
	claimed := f.StartMany(t, many)
	_, first := f.await(t, claimed[0].ID)
	f.looked(t, "ListEnded", 1)
	waits := []func() ended{first}
	for _, c := range claimed[1:] {
		_, wait := f.await(t, c.ID)
		waits = append(waits, wait)
	}
	f.looked(t, "ListEnded", many)
	f.log.Take()
	began := time.Now()
	completions := make([]engine.Completion, many)
	for i, c := range claimed {
		completions[i] = engine.Completion{Lease: c.Lease, Result: fmt.Append(nil, i)}
	}
	if _, err := f.CompleteExecutions(t.Context(), completions); err != nil {
		t.Fatal(err)
	}
	for i, wait := range waits {
		if got := wait(); got.err != nil || string(got.result) != fmt.Sprint(i) {
			t.Errorf("execution %d: got %q, %v", i, got.result, got.err)
		}
	}
	looks := f.log.Take()
	if most := int(time.Since(began)/(20*time.Millisecond)) + 1; len(looks) > most { //pace:allow a slow machine may look more often
		t.Errorf("%d statements, at most %d in that time", len(looks), most)
	}
	for _, l := range looks {
		if l != (fixture.Look{Query: "ListEnded", Size: many}) {
			t.Errorf("a look was %v, want one for all %d", l, many)
		}
	}
}

// Waiters listen to completions on the shared connection, and leave none behind.
func TestAwaitExecutionSharesTheListener(t *testing.T) {
	f := newWaitingFixture(t)
	sessions := func(query string) int {
		return len(fixture.Texts(t, f.Pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1 AND query = $2", f.waits.Name, query))
	}
	lanes := f.waits.ListenTo(t, f.Lane)
	c := f.Start(t)
	lanes.Want(t, f.Lane)
	_, wait := f.await(t, c.ID)
	fixture.Await(t, "the listener to listen to completions", func() bool { return sessions(`listen "ff_completion"`) == 1 })
	if err := lanes.End(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	f.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND query LIKE 'listen %'", f.waits.Name)
	fixture.Await(t, "the listener to come back", func() bool { return sessions(`listen "ff_completion"`) == 1 })
	if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Fatal(err)
	}
	if got := wait(); got.err != nil {
		t.Error(got.err)
	}
	fixture.Await(t, "the listener to end", func() bool { return sessions(`listen "ff_completion"`) == 0 })
}

// The waiter that looks for the other one too is cancelled in the middle of its look: the other one gets no error,
// and looks itself.
func TestAwaitExecutionCancelledDuringItsLook(t *testing.T) {
	f := newWaitingFixture(t)
	claimed := f.StartMany(t, 2)
	end, first := f.await(t, claimed[0].ID)
	f.looked(t, "ListEnded", 1)
	f.log.Stop("ListEnded", 2)
	_, second := f.await(t, claimed[1].ID)
	<-f.log.Held
	if err := f.CompleteExecution(t.Context(), claimed[1].Lease, []byte("done")); err != nil {
		t.Fatal(err)
	}
	end()
	if got := first(); !errors.Is(got.err, context.Canceled) {
		t.Errorf("got %v, want the context's error", got.err)
	}
	if got := second(); got.err != nil || string(got.result) != "done" {
		t.Errorf("got %q, %v", got.result, got.err)
	}
}

// A connection that was cut while it lay idle ends no wait, whether the call is new or not.
func TestAwaitExecutionOutlivesACutConnection(t *testing.T) {
	f := newWaitingFixture(t)
	claimed := f.StartMany(t, 2)
	if err := f.CompleteExecution(t.Context(), claimed[0].Lease, []byte("done")); err != nil {
		t.Fatal(err)
	}
	goOn := f.log.Stop("ListEnded", 1)
	var answers []func() ended
	for _, x := range []id.ExecutionID{claimed[0].ID, claimed[0].ID, claimed[1].ID} {
		_, answer := f.await(t, x)
		answers = append(answers, answer)
	}
	<-f.log.Held
	f.cut(t)
	goOn()
	for _, answer := range answers[:2] {
		if got := answer(); got.err != nil || string(got.result) != "done" {
			t.Errorf("got %q, %v", got.result, got.err)
		}
	}
	if err := f.CompleteExecution(t.Context(), claimed[1].Lease, []byte("later")); err != nil {
		t.Fatal(err)
	}
	if got := answers[2](); got.err != nil || string(got.result) != "later" {
		t.Errorf("got %q, %v", got.result, got.err)
	}
}

// A waiter that has been looked for once waits until an outage is over; one that comes later gets an error.
func TestAwaitExecutionSurvivesAnOutage(t *testing.T) {
	f := newWaitingFixture(t)
	claimed := f.StartMany(t, 2)
	_, first := f.await(t, claimed[0].ID)
	f.looked(t, "ListEnded", 1)
	f.log.Take()
	goOn := f.log.Stop("ListEnded", 1)
	<-f.log.Held
	f.cut(t)
	goOn()
	fixture.Await(t, "the next look", func() bool { f.log.Mu.Lock(); defer f.log.Mu.Unlock(); return len(f.log.Looks) > 1 })
	if err := f.CompleteExecution(t.Context(), claimed[0].Lease, []byte("done")); err != nil {
		t.Fatal(err)
	}
	if got := first(); got.err != nil || string(got.result) != "done" {
		t.Errorf("got %q, %v", got.result, got.err)
	}

	nobody := fixture.OpenPool(t, strings.Replace(f.Url, "@", "@nobody.invalid,", 1), func(config *pgxpool.Config) {
		config.ConnConfig.Fallbacks = nil
	})
	eng := f.EngineOn(t, nobody, engine.Config{NoListener: true})
	ctx, _, stop := progress.Context(t, "the outage to be reported")
	defer stop()
	if _, err := eng.AwaitExecution(ctx, claimed[1].ID); !errors.Is(err, fferr.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, fferr.ErrUnavailable)
	}
}

// The awaited execution ends, is seen, and is replayed by another program before the waiter reads it: the answer is
// that of the look.
func TestAwaitExecutionOfAReplayedOne(t *testing.T) {
	f := newWaitingFixture(t)
	c := f.Start(t)
	if err := f.CompleteExecution(t.Context(), c.Lease, []byte("done")); err != nil {
		t.Fatal(err)
	}
	f.SetExecution(t, c.ID, "lifecycle_phase = 'runnable', public_state = 'waiting', eligibility_state = 'eligible_now'")
	_, wait := f.await(t, c.ID)
	f.looked(t, "ListEnded", 1)
	f.SetExecution(t, c.ID, "lifecycle_phase = 'terminal', public_state = 'completed', eligibility_state = 'not_applicable'")
	if got := wait(); got.err != nil || string(got.result) != "done" {
		t.Errorf("got %q, %v", got.result, got.err)
	}
}

func TestAwaitFlow(t *testing.T) {
	f := newWaitingFixture(t)
	flow := f.Draw(t, nil, "a>b", "c>d")
	wait := f.awaitFlow(t, flow)
	f.looked(t, "ListOpenMembers", 1)
	f.Succeed(t, flow, "a")
	f.Fail(t, flow, "c")
	f.Succeed(t, flow, "b")
	got := wait()
	if got.err != nil {
		t.Fatal(got.err)
	}
	want := map[state.PublicState]int{state.PublicCompleted: 2, state.PublicFailed: 1, state.PublicSkipped: 1}
	fixture.WantEqual(t, "counts", got.flow.Counts, want)
	if !got.flow.Ended || got.flow.ID != flow {
		t.Errorf("got %+v", got.flow)
	}
	empty := f.Draw(t, nil)
	if got, err := f.waits.AwaitFlow(t.Context(), empty); err != nil || !got.Ended || len(got.Counts) > 0 {
		t.Errorf("a flow without members: %+v, %v", got, err)
	}
}

// A member that cannot be read ends the wait, since nothing else would.
func TestAwaitFlowReportsAnUnreadableMember(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	for _, key := range []string{"a", "b"} {
		f.Succeed(t, flow, key)
	}
	f.SetExecution(t, f.NodeID(flow, "a"), "public_state = 'bogus'")
	_, err := f.AwaitFlow(t.Context(), flow)
	fixture.WantCorruption(t, err, "ff_exec_core.public_state")
}

// Between the ends of its members a flow costs one look at one of them; it is looked through at first and at last.
func TestAwaitFlowReadsTheFlowTwice(t *testing.T) {
	f := newWaitingFixture(t)
	keys := strings.Split("abcdefghijkl", "")
	flow := f.Draw(t, nil, keys...)
	wait := f.awaitFlow(t, flow)
	f.looked(t, "ListOpenMembers", 1)
	for _, key := range keys {
		fixture.Await(t, "a look", func() bool {
			f.log.Mu.Lock()
			defer f.log.Mu.Unlock()
			return fixture.Count(f.log.Looks, "ListEnded") > 0
		})
		looks := f.log.Take()
		f.Succeed(t, flow, key) // another look follows
		if n := fixture.Count(looks, "ListOpenMembers"); n > 1 || n == 1 && key != "a" {
			t.Errorf("before %s: %v", key, looks)
		}
		for _, l := range looks {
			if l.Query == "ListEnded" && l.Size >= len(keys) {
				t.Errorf("before %s: asked about all members: %v", key, looks)
			}
		}
	}
	if got := wait(); got.err != nil || got.flow.Counts[state.PublicCompleted] != len(keys) {
		t.Errorf("got %+v, %v", got.flow, got.err)
	}
	looks := f.log.Take()
	if fixture.Count(looks, "ListOpenMembers") != 1 || fixture.Count(looks, "GetFlow") != 1 {
		t.Errorf("in the end %v, want one look through the flow", looks)
	}
}

// A member is added, and one is replayed by another program, after all were seen to have ended: it is waited for too.
func TestAwaitFlowFollowsAGrowingFlow(t *testing.T) {
	for name, goOn := range map[string]func(*testing.T, *waitingFixture, id.FlowID) id.ExecutionID{
		"added": func(t *testing.T, f *waitingFixture, flow id.FlowID) id.ExecutionID {
			return f.Create(t, func(spec *engine.ExecutionSpec) { spec.Flow = &flow })
		},
		"replayed": func(t *testing.T, f *waitingFixture, flow id.FlowID) id.ExecutionID {
			x := f.NodeID(flow, "a")
			f.SetExecution(t, x, "lifecycle_phase = 'runnable', public_state = 'waiting', eligibility_state = 'eligible_now'")
			return x
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newWaitingFixture(t)
			flow := f.Draw(t, nil, "a")
			release := f.log.Stop("GetFlow", 0)
			wait := f.awaitFlow(t, flow)
			f.looked(t, "ListOpenMembers", 1)
			f.Succeed(t, flow, "a")
			<-f.log.Held // it is about to read the flow
			x := goOn(t, f, flow)
			f.log.Take()
			release()
			f.looked(t, "ListEnded", 1)
			f.SetExecution(t, x, "lifecycle_phase = 'terminal', public_state = 'completed', eligibility_state = 'not_applicable'")
			got := wait()
			if got.err != nil || !got.flow.Ended {
				t.Errorf("got %+v, %v", got.flow, got.err)
			}
		})
	}
}

// Without a listener it polls.
func TestAwaitPollsWithoutAListener(t *testing.T) {
	f := newWaitingFixture(t)
	pool := fixture.OpenPool(t, f.Url, nil)
	eng := f.EngineOn(t, pool, engine.Config{NoListener: true})
	flow := f.Draw(t, nil, "a")
	wait := fixture.Async(t, func(ctx context.Context) error {
		_, err := eng.AwaitFlow(ctx, flow)
		return err
	})
	result := fixture.Async(t, func(ctx context.Context) error {
		_, err := eng.AwaitExecution(ctx, f.NodeID(flow, "a"))
		return err
	})
	f.Succeed(t, flow, "a")
	if err := errors.Join(wait(), result()); err != nil {
		t.Error(err)
	}
}
