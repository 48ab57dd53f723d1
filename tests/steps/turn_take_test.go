package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// runWith runs an execution that got signals "approved" with these values before, and checks how the runs were settled.
func (o *ordered[Out]) runWith(t *testing.T, values []string, want ...worker.Settlement) id.ExecutionID {
	t.Helper()
	x := o.Create(t, retrying)
	for _, value := range values {
		fftest.Send(o.Kit.Kit, x, approved, value)
	}
	o.WantSettled(t, want...)
	return x
}

// book takes a signal and writes its value.
func book(ctx context.Context, tx pgx.Tx, x *worker.TurnTx) (string, error) {
	value, ok, err := approved.Take(ctx, x)
	if err != nil {
		return "", err
	}
	_, err = tx.Exec(ctx, "INSERT INTO booked (item) VALUES ($1)", fmt.Sprint(value, ok))
	return value, err
}

func wantBooked(t *testing.T, f *fixture.Fixture, want ...string) {
	t.Helper()
	if got := fixture.Texts(t, f.Pool, "SELECT item FROM booked ORDER BY ctid"); !slices.Equal(got, want) {
		t.Errorf("booked %q, want %q", got, want)
	}
}

// Turns take kept signals in their order, once each, also in later runs of the handler. A wait for the name gets none of
// them, and the steps show them.
func TestTurnsTakeKeptSignals(t *testing.T) {
	c := newTurning(t)
	c.handle(func(ctx context.Context, job orderJob) (string, error) {
		for i := range 3 {
			err := worker.Turn(ctx, job, worker.Key("take", i), func(ctx context.Context, tx pgx.Tx, x *worker.TurnTx) error {
				_, err := book(ctx, tx, x)
				return err
			})
			if err != nil {
				return "", err
			}
		}
		return approved.Await(ctx, job, engine.Wait{})
	})
	x := c.runWith(t, []string{"a", "b"}, worker.Suspended)
	c.send(t, x, approved, "c", worker.Completed)
	wantBooked(t, c.Fixture, "atrue", "btrue", "false")
	c.wantResult(t, x, "c")
	steps, err := c.Engine.StepResults(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, step := range steps {
		for _, s := range mustSignals(t, step) {
			shown = append(shown, fmt.Sprint(step.Name, " ", s.Name, " ", string(s.Payload), " ", s.Matched))
		}
	}
	want := []string{`take/0 approved "a" false`, `take/1 approved "b" false`, `signal approved approved "c" true`}
	if !slices.Equal(shown, want) {
		t.Errorf("the steps show %q, want %q", shown, want)
	}
}

// A turn takes a signal and ends the run in one commit, in every way, also in a flow.
func TestTurnTakesAndEnds(t *testing.T) {
	for _, e := range turnEnds {
		t.Run(e.name, func(t *testing.T) {
			c := newTurning(t)
			flow := engine.FlowSpec{ID: id.NewFlowID(), Nodes: []engine.Node{{Key: "a", Spec: engine.ExecutionSpec{Kind: "order"}}}}
			fixture.FlowsOn(c.Fixture).NewFlowOf(t, flow)
			x := c.NodeID(flow.ID, "a")
			fftest.Send(c.Kit.Kit, x, approved, "a")
			c.handle(func(ctx context.Context, job orderJob) (string, error) {
				err := worker.Turn(ctx, job, "reserve", func(ctx context.Context, tx pgx.Tx, x *worker.TurnTx) error {
					_, err := book(ctx, tx, x)
					return errors.Join(err, e.end(x))
				})
				return afterTurn(ctx, job, err, e.settled)
			})
			c.WantSettled(t, e.settled)
			c.finish(t, x, e.settled)
			wantBooked(t, c.Fixture, "atrue")
		})
	}
}

// A turn that fails after it took a signal leaves it: the next attempt gets it.
func TestFailedTurnLeavesItsSignal(t *testing.T) {
	c := newTurning(t)
	c.turn(func(ctx context.Context, job orderJob, tx pgx.Tx, x *worker.TurnTx) error {
		_, err := book(ctx, tx, x)
		if job.Lease.Attempt == 0 {
			err = errors.Join(err, errors.New("sold out"))
		}
		return err
	})
	c.runWith(t, []string{"a"}, worker.Retrying, worker.Completed)
	wantBooked(t, c.Fixture, "atrue")
}

// A worker that has lost its lease takes nothing, whether it loses it before or after Take.
func TestStaleTurnTakesNothing(t *testing.T) {
	c := fixture.NewLoneCrew(t)
	newParts(t, c.Fixture)
	refused, over := make(chan error, 1), make(chan struct{})
	handleOrders(t, c, func(ctx context.Context, job orderJob) (string, error) {
		first := job.Lease.Epoch == 1
		if first {
			ctx = context.WithoutCancel(ctx)
		}
		err := worker.Turn(ctx, job, "reserve", func(ctx context.Context, tx pgx.Tx, x *worker.TurnTx) error {
			if first {
				if _, err := operator.Revoke(ctx, c.Eng, operator.RevokeSpec{ID: job.ID, Reason: "test"}); err != nil {
					return err
				}
				<-over
			}
			_, err := book(ctx, tx, x)
			return err
		})
		if first {
			refused <- err
		}
		return "done", err
	})
	x := c.Create(t, retrying)
	for _, value := range []string{"a", "b"} {
		if err := approved.Send(t.Context(), c.Eng, x, value); err != nil {
			t.Fatal(err)
		}
	}
	wantSettlements(t, c, worker.Completed)
	close(over)
	if err := fixture.Received(t, refused); err == nil {
		t.Error("a stale turn took a signal")
	}
	c.Next(t, 1)
	items := fixture.Texts(t, c.Pool, "SELECT item FROM booked")
	if len(items) != 1 {
		t.Errorf("booked %q", items)
	}
}

// takeOne takes a signal "ready" by the engine, and returns its payload.
func takeOne(t *testing.T, f *fixture.Fixture, l engine.Lease) string {
	t.Helper()
	signal, ok, err := f.TakeSignal(t.Context(), l, "ready")
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return "none"
	}
	return string(signal.Payload)
}

func sendReady(t *testing.T, f *fixture.Fixture, spec engine.SignalSpec) engine.Signalled {
	t.Helper()
	spec.Name = "ready"
	signalled, err := f.Engine.Signal(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return signalled
}

// A signal that a wait received and did not use comes before those that were sent later, and is taken once.
func TestTakeOfUnusedSignals(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	f.SuspendAgain(t, l, engine.AtLeast(3, engine.DistinctSignals, "ready"))
	for _, payload := range []string{"1", "2"} {
		sendReady(t, f, engine.SignalSpec{Execution: l.Execution, Payload: []byte(payload)})
		f.Advance(time.Second)
	}
	f.Advance(time.Hour)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 1)
	l = f.ClaimOne(t).Lease
	sendReady(t, f, engine.SignalSpec{Execution: l.Execution, Payload: []byte("3")})
	var got []string
	for range 4 {
		got = append(got, takeOne(t, f, l))
	}
	if want := []string{"1", "2", "3", "none"}; !slices.Equal(got, want) {
		t.Errorf("took %q, want %q", got, want)
	}
	received, err := f.ReceivedSignals(t.Context(), l.Execution)
	if err != nil || len(received) != 1 || received[0].Name != "timeout" {
		t.Errorf("received %+v, error %v", received, err)
	}
	if left := fixture.Texts(t, f.Pool, "SELECT waitpoint_key FROM ff_waitpoint_pending WHERE execution_id = $1", l.Execution.UUID()); len(left) != 0 {
		t.Errorf("waitpoints %q are left", left)
	}
	if got := f.SuspendAgain(t, l, engine.Received("ready")); got.Satisfied {
		t.Error("a taken signal ends a wait")
	}
}

// A taken signal is known as long as its key is remembered: also after another wait, and after others were taken.
func TestTakenSignalIsNotReceivedTwice(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	first := engine.SignalSpec{Execution: l.Execution, IdempotencyKey: "evt_1", Payload: []byte(strings.Repeat("x", 1000))}
	byID := engine.SignalSpec{Execution: l.Execution, ID: id.NewSignalID(), Payload: []byte("by id")}
	a := sendReady(t, f, first)
	f.Advance(time.Millisecond)
	sendReady(t, f, byID)
	wantDuplicates := func() {
		t.Helper()
		if again := sendReady(t, f, first); !again.Duplicate || again.ID != a.ID {
			t.Errorf("the first again: %+v", again)
		}
		if again := sendReady(t, f, byID); !again.Duplicate {
			t.Errorf("the second again: %+v", again)
		}
	}
	if got := takeOne(t, f, l); len(got) != 1000 {
		t.Fatalf("took %q", got)
	}
	wantDuplicates()
	if got := takeOne(t, f, l); got != "by id" {
		t.Fatalf("took %q", got)
	}
	wantDuplicates()
	if got := f.SuspendAgain(t, l, engine.Received("ready")); got.Satisfied {
		t.Fatal("a taken signal ends a wait")
	}
	wantDuplicates()
	sendReady(t, f, engine.SignalSpec{Execution: l.Execution})
	wantDuplicates()
	if n := fixture.Texts(t, f.Pool, "SELECT member_map FROM ff_suspension_current WHERE execution_id = $1 AND member_map::text LIKE '%\"payload_hex\": \"%'", l.Execution.UUID()); len(n) != 0 {
		t.Error("the payload of a taken signal is kept")
	}
	f.Advance(25 * time.Hour)
	if again := sendReady(t, f, first); again.Duplicate {
		t.Error("the key is remembered for too long")
	}
}

// A waitpoint whose token was handed out stays open when its signal is taken.
func TestTakeLeavesTheWaitpointOpen(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	w := f.OpenWaitpoint(t, l, "ready")
	for _, payload := range []string{"1", "2"} {
		if _, err := f.SignalWaitpoint(t.Context(), engine.WaitpointSignal{
			SignalSpec: engine.SignalSpec{Execution: l.Execution, Name: "ready", Payload: []byte(payload)}, Waitpoint: w.ID, Token: w.Token,
		}); err != nil {
			t.Fatal(err)
		}
		if got := takeOne(t, f, l); got != payload {
			t.Errorf("took %q, want %q", got, payload)
		}
	}
}

// A step with taken signals belongs to the transaction that took them.
func TestTakenIsRefusedOutsideATransaction(t *testing.T) {
	f := fixture.New(t)
	step := engine.StepRecord{Lease: f.Start(t).Lease, Name: "a", Taken: []engine.ReceivedSignal{{Name: "ready"}}}
	if _, err := f.RecordStep(t.Context(), step); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Error(err)
	}
	outcomes, err := f.RecordSteps(t.Context(), []engine.StepRecord{step})
	if err != nil || !errors.Is(outcomes[0].Err, fferr.ErrInvalidInput) {
		t.Error(outcomes, err)
	}
}
