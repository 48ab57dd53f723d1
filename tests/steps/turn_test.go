package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

var started = engine.Signal[int]{Name: "started"}

type orderJob = worker.Job[struct{}]

// parts are what turns write: rows in a table of the user, executions, and signals to another execution.
type parts struct {
	on    *fixture.Fixture
	other id.ExecutionID
}

func newParts(t *testing.T, f *fixture.Fixture) *parts {
	t.Helper()
	f.Exec(t, "CREATE TABLE booked (item text NOT NULL)")
	return &parts{f, f.Create(t, func(s *engine.ExecutionSpec) { s.Lane = f.Lane + "-other" })}
}

// write makes all writes of a turn but its end.
func (p *parts) write(ctx context.Context, tx pgx.Tx, t *worker.TurnTx, item string) error {
	if _, err := tx.Exec(ctx, "INSERT INTO booked (item) VALUES ($1)", item); err != nil {
		return err
	}
	if _, err := t.Engine().CreateExecution(ctx, engine.ExecutionSpec{Lane: p.on.Lane + "-other", Kind: "child"}); err != nil {
		return err
	}
	return started.Send(ctx, t.Engine(), p.other, 1)
}

// wantParts fails the test unless the parts of turns are stored, whole, for these items.
func (p *parts) wantParts(t *testing.T, items ...string) {
	t.Helper()
	want := strings.Join(items, " ")
	if got := strings.Join(fixture.Texts(t, p.on.Pool, "SELECT item FROM booked ORDER BY item"), " "); got != want {
		t.Errorf("booked %q, want %q", got, want)
	}
	children := fixture.Texts(t, p.on.Pool, "SELECT 'child' FROM ff_exec_core WHERE raw_fields ->> 'execution_kind' = 'child'")
	signals := fixture.Texts(t, p.on.Pool, "SELECT signal_id FROM ff_signal_event WHERE execution_id = $1", p.other.UUID().String())
	if len(children) != len(items) || len(signals) != len(items) {
		t.Errorf("%d children and %d signals, want %d", len(children), len(signals), len(items))
	}
}

// wantEnded fails the test unless an execution with a turn has ended as [afterTurn] does.
func (p *parts) wantEnded(t *testing.T, x id.ExecutionID, settled worker.Settlement) {
	t.Helper()
	if got := p.on.Stored(t, x); string(got.Result) != `"done"` {
		t.Errorf("result %s", got.Result)
	}
	want := []string{"reserve"}
	if settled == worker.Suspended {
		want = append(want, "signal approved")
	}
	if names := stepNames(t, p.on.Engine, x); !slices.Equal(names, want) {
		t.Errorf("steps %q, want %q", names, want)
	}
}

// turning is a kit whose handler of kind "order" writes parts.
type turning struct {
	*ordered[string]
	*parts
}

func newTurning(t *testing.T) *turning {
	t.Helper()
	k := fixture.NewKit(t)
	return &turning{&ordered[string]{k, engine.Kind[struct{}, string]{Name: "order"}}, newParts(t, k.Fixture)}
}

func (c *turning) handle(fn func(context.Context, orderJob) (string, error)) {
	worker.Handle(c.Worker, c.kind, fn)
}

// turn handles the kind "order" by one turn.
func (c *turning) turn(fn func(ctx context.Context, job orderJob, tx pgx.Tx, x *worker.TurnTx) error) {
	c.handle(func(ctx context.Context, job orderJob) (string, error) {
		return "", worker.Turn(ctx, job, "reserve", func(ctx context.Context, tx pgx.Tx, x *worker.TurnTx) error { return fn(ctx, job, tx, x) })
	})
}

// handleOrders runs a worker with a handler of kind "order".
func handleOrders(t *testing.T, c *fixture.Crew, fn func(context.Context, orderJob) (string, error)) {
	t.Helper()
	c.Work(t, worker.Config{}, func(w *worker.Worker) { fixture.HandleKind(w, "order", fn) })
}

// turnEnds are the ways to end a turn, with the settlement of the run. Then the handler goes on behind it.
var turnEnds = []struct {
	name    string
	end     func(*worker.TurnTx) error
	settled worker.Settlement
}{
	{"goes on", func(*worker.TurnTx) error { return nil }, worker.Completed},
	{"completes", func(x *worker.TurnTx) error { return x.Complete("done") }, worker.Completed},
	{"sleeps", func(x *worker.TurnTx) error { return x.Sleep(time.Millisecond) }, worker.Delayed},
	{"awaits", func(x *worker.TurnTx) error { return x.Await(approved.Received(), engine.Wait{}) }, worker.Suspended},
}

// afterTurn is the part of a handler behind a turn.
func afterTurn(ctx context.Context, job orderJob, err error, settled worker.Settlement) (string, error) {
	if err == nil && settled == worker.Suspended {
		_, err = approved.Await(ctx, job, engine.Wait{})
	}
	return "done", err
}

// wantDone waits for the end of an execution of a crew whose turn ends in one of these ways.
func wantDone(t *testing.T, c *fixture.Crew, p *parts, x id.ExecutionID, settled worker.Settlement) {
	t.Helper()
	switch settled {
	case worker.Completed:
		wantSettlements(t, c, worker.Completed)
	case worker.Suspended:
		wantSettlements(t, c, worker.Suspended)
		if err := approved.Send(t.Context(), c.Eng, x, "ada"); err != nil {
			t.Fatal(err)
		}
		wantSettlements(t, c, worker.Completed)
	default:
		// The short pause may be over before the run that began it is settled. Then that run is abandoned if it asks for its
		// turn again, and the next one may be the first to be settled.
		runs := c.Next(t, 2)
		first, second := runs[0].Settlement, runs[1].Settlement
		if first == worker.Completed {
			first, second = second, first
		}
		if second != worker.Completed || first != settled && first != worker.Abandoned {
			t.Fatalf("settlements %+v, want %s, then completed", runs, settled)
		}
	}
	p.wantEnded(t, x, settled)
}

// finish lets an execution end whose turn has ended the run in one of these ways.
func (c *turning) finish(t *testing.T, x id.ExecutionID, settled worker.Settlement) {
	t.Helper()
	switch settled {
	case worker.Delayed:
		c.Advance(time.Millisecond)
		c.WantSettled(t, worker.Completed)
	case worker.Suspended:
		c.send(t, x, approved, "ada", worker.Completed)
	}
	c.wantEnded(t, x, settled)
}

// All parts of a turn are committed together, and its function is not called again.
func TestTurnCommitsAllParts(t *testing.T) {
	for _, e := range turnEnds {
		t.Run(e.name, func(t *testing.T) {
			c, calls := newTurning(t), 0
			c.handle(func(ctx context.Context, job orderJob) (string, error) {
				err := worker.Turn(ctx, job, "reserve", func(ctx context.Context, tx pgx.Tx, x *worker.TurnTx) error {
					calls++
					return errors.Join(c.write(ctx, tx, x, "lamp"), e.end(x))
				})
				return afterTurn(ctx, job, err, e.settled)
			})
			c.finish(t, c.run(t, e.settled), e.settled)
			c.wantParts(t, "lamp")
			if calls != 1 {
				t.Errorf("%d calls", calls)
			}
		})
	}
}

// A turn that fails, or that can't end as it asks to, leaves nothing.
func TestFailedTurnLeavesNothing(t *testing.T) {
	cases := []struct {
		name string
		end  func(*worker.TurnTx) error
		want string
	}{
		{"an error", func(*worker.TurnTx) error { return worker.Permanent(errors.New("sold out")) }, "sold out"},
		{"an error behind an end", func(x *worker.TurnTx) error {
			return errors.Join(x.Complete("done"), worker.Permanent(errors.New("sold out")))
		}, "sold out"},
		{"two ends", func(x *worker.TurnTx) error { return errors.Join(x.Complete("done"), x.Sleep(time.Hour)) }, "has an end already"},
		{"two ends, one of them ignored", func(x *worker.TurnTx) error {
			_ = x.Sleep(time.Hour)
			_ = x.Await(approved.Received(), engine.Wait{})
			return nil
		}, "has an end already"},
		{"a result of another type", func(x *worker.TurnTx) error { return x.Complete(7) }, "is a int"},
		{"a result that is too large", func(x *worker.TurnTx) error {
			return x.Complete(strings.Repeat("x", engine.DefaultMaxPayload))
		}, "limit"},
		{"a wait that is not possible", func(x *worker.TurnTx) error { return x.Await(engine.TimeoutOnly(), engine.Wait{}) }, "timeout"},
		{"a wait with a path that is none", func(x *worker.TurnTx) error {
			return x.Await(approved.Received().Where("$."), engine.Wait{})
		}, "path"},
		{"a wait with a key beside the condition", func(x *worker.TurnTx) error {
			return x.Await(approved.Received(), engine.Wait{Key: "k"})
		}, "At"},
		{"a wait with a path beside the condition", func(x *worker.TurnTx) error {
			return x.Await(approved.Received(), engine.Wait{Where: "true"})
		}, "Where"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := newTurning(t)
			c.turn(func(ctx context.Context, _ orderJob, tx pgx.Tx, x *worker.TurnTx) error {
				return errors.Join(c.write(ctx, tx, x, "lamp"), tc.end(x))
			})
			x := c.run(t, worker.Failed)
			fftest.RequireFailure(t, c.Kit.Kit, x, tc.want)
			c.wantParts(t)
			wantSteps(t, c.Engine, x)
		})
	}
}

// A worker that has lost its lease while its turn ran writes nothing. The next one's turn is the only one.
func TestStaleTurnLeavesNothing(t *testing.T) {
	for _, e := range turnEnds {
		t.Run(e.name, func(t *testing.T) {
			c := fixture.NewLoneCrew(t)
			p := newParts(t, c.Fixture)
			var runs atomic.Int64
			over, refused := make(chan struct{}), make(chan error, 1)
			handleOrders(t, c, func(ctx context.Context, job orderJob) (string, error) {
				first, item := runs.Add(1) == 1, "second"
				if first {
					ctx, item = context.WithoutCancel(ctx), "first" // it doesn't hear of its loss
				}
				err := worker.Turn(ctx, job, "reserve", func(ctx context.Context, tx pgx.Tx, x *worker.TurnTx) error {
					if first {
						if _, err := operator.Revoke(ctx, c.Eng, operator.RevokeSpec{ID: job.ID, Reason: "test"}); err != nil {
							return err
						}
						<-over
					}
					if err := p.write(ctx, tx, x, item); err != nil {
						return err
					}
					return e.end(x)
				})
				if first {
					refused <- err
				}
				return afterTurn(ctx, job, err, e.settled)
			})
			x := c.Create(t, retrying)
			wantDone(t, c, p, x, e.settled)
			close(over)
			if err := fixture.Received(t, refused); !errors.Is(err, worker.ErrLeaseLost) {
				t.Errorf("the first turn: %v", err)
			}
			wantSettlements(t, c, worker.Abandoned)
			p.wantParts(t, "second")
		})
	}
}

// A worker may die between the commit of a turn and its settlement: another one goes on behind the turn.
func TestWorkerDiesAfterTurn(t *testing.T) {
	for _, e := range turnEnds {
		if e.settled == worker.Completed {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			c, runs := newTurning(t), 0
			c.handle(func(ctx context.Context, job orderJob) (string, error) {
				err := worker.Turn(ctx, job, "reserve", func(ctx context.Context, tx pgx.Tx, x *worker.TurnTx) error {
					return errors.Join(c.write(ctx, tx, x, "lamp"), e.end(x))
				})
				if runs++; runs == 1 {
					if err == nil {
						t.Error("the turn goes on")
					}
					c.KillWorker()
				}
				return afterTurn(ctx, job, err, e.settled)
			})
			x := c.run(t) // the dead process settles nothing
			c.finish(t, x, e.settled)
			c.wantParts(t, "lamp")
		})
	}
}

// A handler that ignores the end of its turn stores nothing more, and its own outcome is dropped.
func TestHandlerGoesOnAfterItsEnd(t *testing.T) {
	c := newTurning(t)
	var behind error
	c.handle(func(ctx context.Context, job orderJob) (string, error) {
		var kept *worker.TurnTx
		err := worker.Turn(ctx, job, "reserve", func(ctx context.Context, tx pgx.Tx, x *worker.TurnTx) error {
			kept = x
			return x.Complete("done")
		})
		if err == nil || errors.Is(err, fferr.ErrAwaiting) || kept.Sleep(time.Hour) == nil {
			t.Errorf("the turn: %v, and a later end is accepted", err)
		}
		_, behind = worker.Step(ctx, job, "behind", func(context.Context) (int, error) { return 1, nil })
		return "another result", nil
	})
	x := c.run(t, worker.Completed)
	if !errors.Is(behind, worker.ErrLeaseLost) {
		t.Error(behind)
	}
	c.wantResult(t, x, "done")
	wantSteps(t, c.Engine, x, "reserve=")
}

// If an operator ends the pause of a turn early, the execution goes back to sleep.
func TestTurnSleepsUntilItsTime(t *testing.T) {
	c := newTurning(t)
	c.turn(func(_ context.Context, _ orderJob, _ pgx.Tx, x *worker.TurnTx) error { return x.Sleep(time.Hour) })
	x := c.run(t, worker.Delayed)
	if err := operator.Delay(t.Context(), c.ordered.Kit.Fixture.Engine, x, c.Now()); err != nil {
		t.Fatal(err)
	}
	c.WantSettled(t, worker.Delayed)
	c.Advance(time.Hour)
	c.WantSettled(t, worker.Completed)
}

// A wait of a turn is numbered with the others: it takes the second signal of a name, also one that came early.
func TestTurnWaitsAreNumbered(t *testing.T) {
	c := newTurning(t)
	c.handle(func(ctx context.Context, job orderJob) (string, error) {
		first, err := approved.Await(ctx, job, engine.Wait{})
		if err != nil {
			return "", err
		}
		for _, name := range []string{"second", "third"} {
			err = worker.Turn(ctx, job, name, func(_ context.Context, _ pgx.Tx, x *worker.TurnTx) error {
				return x.Await(approved.Received(), engine.Wait{})
			})
			if err != nil {
				return "", err
			}
			next, err := approved.Await(ctx, job, engine.Wait{})
			if err != nil {
				return "", err
			}
			first += next
		}
		return first, nil
	})
	x := c.run(t, worker.Suspended)
	c.send(t, x, approved, "a", worker.Suspended)
	c.send(t, x, approved, "b", worker.Suspended)
	c.send(t, x, approved, "c", worker.Completed)
	c.wantResult(t, x, "abc")
}

// If the signals of a turn's wait came before it, the handler runs again at once.
func TestTurnAwaitsEarlySignal(t *testing.T) {
	c := newTurning(t)
	c.handle(func(ctx context.Context, job orderJob) (string, error) {
		err := worker.Turn(ctx, job, "reserve", func(_ context.Context, _ pgx.Tx, x *worker.TurnTx) error {
			return x.Await(approved.Received(), engine.Wait{})
		})
		return afterTurn(ctx, job, err, worker.Suspended)
	})
	c.runWith(t, []string{"ada"}, worker.Suspended, worker.Completed)
}

// A member of a flow that a turn completes releases its dependents in the same commit.
func TestTurnCompletesMember(t *testing.T) {
	c := newTurning(t)
	c.turn(func(ctx context.Context, _ orderJob, tx pgx.Tx, x *worker.TurnTx) error {
		return errors.Join(c.write(ctx, tx, x, "lamp"), x.Complete("done"))
	})
	order := engine.ExecutionSpec{Kind: "order"}
	fixture.FlowsOn(c.Fixture).NewFlowOf(t, engine.FlowSpec{
		ID: id.NewFlowID(), Nodes: []engine.Node{{Key: "a", Spec: order}, {Key: "b", Spec: order}}, Edges: []engine.Edge{{From: "a", To: "b"}},
	})
	c.WantSettled(t, worker.Completed, worker.Completed)
	c.wantParts(t, "lamp", "lamp")
}

// A turn that the server aborts in favour of another begins again, within limits.
func TestAbortedTurnBeginsAgain(t *testing.T) {
	for _, tc := range []struct {
		aborts int
		want   []worker.Settlement
	}{{2, []worker.Settlement{worker.Completed}}, {3, []worker.Settlement{worker.Retrying, worker.Completed}}} {
		t.Run(fmt.Sprint(tc.aborts), func(t *testing.T) {
			c, calls := newTurning(t), 0
			c.turn(func(ctx context.Context, _ orderJob, tx pgx.Tx, x *worker.TurnTx) error {
				if calls++; calls <= tc.aborts {
					return errors.Join(c.write(ctx, tx, x, "aborted"), &pgconn.PgError{Code: "40P01", Message: "deadlock detected"})
				}
				return c.write(ctx, tx, x, "lamp")
			})
			c.run(t, tc.want...)
			c.wantParts(t, "lamp")
		})
	}
}

// An error that the function of a turn meets is its own, also if it looks like that of a lost lease.
func TestTurnKeepsErrorsOfItsFunction(t *testing.T) {
	c := newTurning(t)
	var got error
	c.handle(func(ctx context.Context, job orderJob) (string, error) {
		got = worker.Turn(ctx, job, "reserve", func(ctx context.Context, _ pgx.Tx, x *worker.TurnTx) error {
			return started.Send(ctx, x.Engine(), c.NewExecutionID(c.Lane), 1)
		})
		return "", worker.Permanent(got)
	})
	c.run(t, worker.Failed)
	if !errors.Is(got, fferr.ErrNotFound) || errors.Is(got, worker.ErrLeaseLost) {
		t.Error(got)
	}
}
