package signals

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

const effects = "CREATE TABLE effect (execution uuid, text text)"

// A role is what a process does until it is killed.
type role struct {
	name      string
	later     time.Duration
	suspended bool // the execution waits
	signalled bool // and has its signal
	byToken   bool
	noSignal  bool // the wait ends in another way
	moments   int  // at least so many, so that the test tests something
}

// A process killed between any two of its round trips leaves nothing half-done: a worker finishes the work, the signal
// is used once, the wait ends once, and the handler has its effect once.
func TestKillsBetweenRoundTrips(t *testing.T) {
	for _, r := range []role{
		{name: "suspend", moments: 8},
		{name: "suspend with a waitpoint", moments: 12},
		{name: "signal", suspended: true, moments: 2},
		{name: "signal by a token", suspended: true, byToken: true, moments: 4},
		{name: "claim and complete", suspended: true, signalled: true, moments: 8},
		{name: "resume", suspended: true, moments: 4},
		{name: "time out", suspended: true, noSignal: true, later: 2 * time.Hour, moments: 6},
	} {
		t.Run(r.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			f.Signing(t)
			f.Exec(t, effects)
			moment := 1
			for ; killed(t, f, r, moment); moment++ {
				if t.Failed() {
					t.Fatalf("killed at moment %d", moment)
				}
			}
			t.Logf("killed at %d moments", moment-1)
			if moment <= r.moments {
				t.Errorf("there were %d moments, want %d or more", moment-1, r.moments)
			}
		})
	}
}

// killed plays a role in a process that is killed at a moment, and finishes its work. It reports whether there was such a
// moment.
func killed(t *testing.T, on *fixture.Fixture, r role, moment int) bool {
	t.Helper()
	c := fixture.CrewOn(t, fixture.On(t, on.Pool, on.Url), engine.Config{})
	x := c.Create(t, kindPublish)
	given := orders{Role: r.name, Lane: c.Lane, Execution: x.String(), Later: r.later}
	if r.suspended {
		l := c.ClaimOne(t).Lease
		if r.byToken {
			w := c.OpenWaitpoint(t, l, id.WaitpointKey(approved.Name))
			given.Waitpoint, given.Token = w.ID, w.Token.Reveal()
		}
		c.SuspendAgain(t, l, engine.Received(approved.Name))
	}
	if r.signalled {
		if err := send(t.Context(), c.Engine, x); err != nil {
			t.Fatal(err)
		}
	}
	cut := runActor(t, c.Url, given, moment)
	fixture.Await(t, "the server to end the sessions of the process", func() bool {
		return len(fixture.Texts(t, c.Pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1", string(c.Lane))) == 0
	})

	// The leases of the dead process end, as its waits do.
	later, err := engine.New(c.Pool, engine.Config{Now: func() time.Time { return time.Now().Add(2 * actorTTL) }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := upkeep.Of(later).ExpireLeases(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	if r.noSignal {
		later, err := engine.New(c.Pool, engine.Config{Now: func() time.Time { return time.Now().Add(r.later) }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := upkeep.Of(later).ExpireWaits(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
	}
	finish(t, c, x, r)
	return cut
}

// runActor runs a process that is killed at a moment. It returns once the process has ended, and reports whether it was
// killed.
func runActor(t *testing.T, databaseURL string, given orders, moment int) bool {
	t.Helper()
	return fixture.RunCut(t, databaseURL, "-signals.actor", moment, func(url string) any {
		given.DatabaseURL = url
		return given
	})
}

// finish lets a worker do what is left, sends the signal until it is known, and checks what there is in the end.
func finish(t *testing.T, c *fixture.Crew, x id.ExecutionID, r role) {
	t.Helper()
	stop := c.Work(t, worker.Config{NoReconcile: true}, func(w *worker.Worker) { handleOnce(w, c) })
	if !r.noSignal {
		for range 2 {
			if err := send(t.Context(), c.Engine, x); err != nil && !errors.Is(err, fferr.ErrEnded) {
				t.Fatal(err)
			}
		}
	}
	awaitEnd(t, c, x)
	stop()
	wantOnce(t, c, x, r.noSignal)
}

// handleOnce registers a handler that waits for a signal, and completes in one transaction with its effect.
func handleOnce(w *worker.Worker, c *fixture.Crew) {
	fixture.HandleKind(w, "publish", func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		received, err := engine.AwaitAny(ctx, job, engine.Wait{Timeout: time.Hour}, engine.Received(approved.Name))
		effect := received.ID.String()
		switch {
		case errors.Is(err, fferr.ErrWaitTimeout):
			effect = "timeout"
		case err != nil:
			return "", err
		}
		return "", completeOnce(ctx, c.Eng, c.Pool, job.Lease, effect)
	})
}

func awaitEnd(t *testing.T, c *fixture.Crew, x id.ExecutionID) {
	t.Helper()
	fixture.Await(t, "the end of the execution", func() bool { return c.Stored(t, x).State == fixture.StateCompleted })
}

// wantOnce fails the test unless the effect, the end and the use of the signal are one each.
func wantOnce(t *testing.T, c *fixture.Crew, x id.ExecutionID, noSignal bool) {
	t.Helper()
	used := fixture.Texts(t, c.Pool, `SELECT jsonb_array_elements_text(satisfied_set) FROM ff_suspension_current
		WHERE partition_key = $1 AND execution_id = $2`, x.Partition(), x.UUID())
	accepted := fixture.Texts(t, c.Pool, `SELECT signal_id FROM ff_signal_event WHERE partition_key = $1 AND execution_id = ($2::uuid)::text`,
		x.Partition(), x.UUID())
	done := fixture.Texts(t, c.Pool, "SELECT text FROM effect WHERE execution = $1", x.UUID())
	want := accepted
	if noSignal {
		want = []string{"timeout"}
	}
	if len(accepted) > 1 || !slices.Equal(used, accepted) || !slices.Equal(done, want) {
		t.Errorf("accepted %q, used %q, effects %q", accepted, used, done)
	}
	ends := slices.DeleteFunc(c.Events(t, x), func(event string) bool { return event != "completion success" })
	if len(ends) != 1 {
		t.Errorf("events %q", c.Events(t, x))
	}
	if left := fixture.Texts(t, c.Pool, `SELECT state FROM ff_waitpoint_pending WHERE partition_key = $1 AND execution_id = $2 AND state = 'active'
		UNION ALL SELECT 'open' FROM ff_suspension_current WHERE partition_key = $1 AND execution_id = $2 AND ffx_open_since_ms IS NOT NULL`,
		x.Partition(), x.UUID()); len(left) > 0 {
		t.Errorf("what waited is still %q", left)
	}
	if t.Failed() {
		t.Log(fmt.Sprint(c.Events(t, x)), c.Dump(t, x))
	}
}

// A sender that dies between its commit and its wake-up costs one poll of a worker at most: the worker finds the work by
// itself.
func TestSenderKilledBeforeItsWakeUp(t *testing.T) {
	c := fixture.NewLoneCrew(t)
	c.Exec(t, effects)
	c.Work(t, worker.Config{}, func(w *worker.Worker) { handleOnce(w, c) })
	committed := 0
	for moment, cut := 1, true; cut; moment++ {
		x := c.Create(t, kindPublish)
		if s := c.Next(t, 1)[0]; s.Settlement != worker.Suspended {
			t.Fatalf("settled %+v", s)
		}
		cut = runActor(t, c.Url, orders{Role: "signal", Lane: c.Lane, Execution: x.String()}, moment)
		if known, err := c.ReceivedSignals(t.Context(), x); err != nil {
			t.Fatal(err)
		} else if len(known) == 0 { // it died before its commit
			if err := send(t.Context(), c.Engine, x); err != nil {
				t.Fatal(err)
			}
		} else if cut {
			committed++
		}
		awaitEnd(t, c, x)
		c.Next(t, 1)
		wantOnce(t, c, x, false)
	}
	if committed == 0 {
		t.Error("no sender died after its commit")
	}
}
