package limits

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// ask asks a quota policy to admit an execution.
func ask(t *testing.T, e *engine.Engine, q id.QuotaPolicyID, x id.ExecutionID) interop.AdmissionResult {
	t.Helper()
	result, err := interop.CheckAdmission(t.Context(), e, q, x, interop.AdmissionSpec{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// wantAnswer fails the test unless the quota policy answers so.
func wantAnswer(t *testing.T, f *fixture.Fixture, q id.QuotaPolicyID, x id.ExecutionID, want interop.AdmissionOutcome, retryAfter time.Duration) {
	t.Helper()
	if got := ask(t, f.Engine, q, x); got.Outcome != want || got.RetryAfter != retryAfter {
		t.Errorf("%s after %s, want %s after %s", got.Outcome, got.RetryAfter, want, retryAfter)
	}
}

func giveBack(t *testing.T, f *fixture.Fixture, q id.QuotaPolicyID, x id.ExecutionID) {
	t.Helper()
	if err := interop.ReleaseAdmission(t.Context(), f.Engine, q, x); err != nil {
		t.Fatal(err)
	}
}

// A caller's admission takes a place until it is released or its execution has ended. The start goes on counting.
func TestCallersTakePlacesAndStarts(t *testing.T) {
	f := fixture.NewCloned(t)
	cap2 := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 2})
	x := create(t, f, 4)
	wantAnswer(t, f, cap2, x[0], interop.Admitted, 0)
	wantAnswer(t, f, cap2, x[1], interop.Admitted, 0)
	wantAnswer(t, f, cap2, x[2], interop.ConcurrencyExceeded, 0)
	f.Advance(time.Hour)
	wantAnswer(t, f, cap2, x[0], interop.AlreadyAdmitted, 0)
	giveBack(t, f, cap2, x[0])
	giveBack(t, f, cap2, x[0])
	giveBack(t, f, cap2, x[3]) // it has no place
	wantAnswer(t, f, cap2, x[2], interop.Admitted, 0)
	wantAnswer(t, f, cap2, x[0], interop.ConcurrencyExceeded, 0)
	f.Cancel(t, x[1])
	wantAnswer(t, f, cap2, x[0], interop.Admitted, 0)
	wantAnswer(t, f, cap2, x[3], interop.ConcurrencyExceeded, 0)

	rate2 := quota(t, f, interop.QuotaPolicySpec{MaxStarts: 2, Window: window})
	wantAnswer(t, f, rate2, x[0], interop.Admitted, 0)
	giveBack(t, f, rate2, x[0])
	f.Advance(window / 2)
	wantAnswer(t, f, rate2, x[2], interop.Admitted, 0)
	wantAnswer(t, f, rate2, x[0], interop.RateExceeded, window/2) // its first start counts, but is no admission any more
	f.Advance(window/2 - time.Millisecond)
	wantAnswer(t, f, rate2, x[0], interop.RateExceeded, time.Millisecond)
	f.Advance(time.Millisecond)
	wantAnswer(t, f, rate2, x[0], interop.Admitted, 0)
	f.Advance(window / 2)
	wantAnswer(t, f, rate2, x[2], interop.Admitted, 0) // after the window it is a start again
	wantAnswer(t, f, rate2, x[2], interop.AlreadyAdmitted, 0)
}

// A further start after the window keeps the place of the execution.
func TestCallersKeepTheirPlaceAfterTheWindow(t *testing.T) {
	f := fixture.NewCloned(t)
	q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 1, MaxStarts: 5, Window: window})
	x := create(t, f, 2)
	for range 3 {
		wantAnswer(t, f, q, x[0], interop.Admitted, 0)
		wantAnswer(t, f, q, x[0], interop.AlreadyAdmitted, 0)
		wantAnswer(t, f, q, x[1], interop.ConcurrencyExceeded, 0)
		f.Advance(window)
	}
	giveBack(t, f, q, x[0])
	wantAnswer(t, f, q, x[1], interop.Admitted, 0)
}

// Admissions of the gate and by callers count together.
func TestCallersAndTheGateShareAPolicy(t *testing.T) {
	f := fixture.NewCloned(t)
	q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 2, MaxStarts: 4, Window: window})
	free := create(t, f, 3)
	claim(t, f, 10)
	create(t, f, 5, under(q))
	wantAnswer(t, f, q, free[0], interop.Admitted, 0)
	running := wantClaimable(t, f, 1, "beside a caller's admission")
	wantAnswer(t, f, q, free[1], interop.ConcurrencyExceeded, 0)
	complete(t, f, running...)
	wantAnswer(t, f, q, free[1], interop.Admitted, 0)
	wantClaimable(t, f, 0, "while callers have both places")
	giveBack(t, f, q, free[0])
	giveBack(t, f, q, free[1])
	complete(t, f, wantClaimable(t, f, 1, "with the last start of the window")...)
	wantAnswer(t, f, q, free[0], interop.RateExceeded, window)
	// A retry time that the gate has stored does not outlast an admission by a caller.
	f.Advance(window)
	wantAnswer(t, f, q, free[2], interop.Admitted, 0)
	wantClaimable(t, f, 1, "in the next window")
}

// The gate alone admits the executions that name a policy. What a call can't count, it refuses.
func TestCheckAdmissionRefuses(t *testing.T) {
	f := fixture.NewCloned(t)
	q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 2})
	named, ended := create(t, f, 1, under(q))[0], f.Create(t)
	f.Cancel(t, ended)
	broken := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 2})
	f.Exec(t, "UPDATE ff_quota_policy SET active_concurrency_cap = -1 WHERE quota_policy_id = $1", broken.String())
	for _, c := range []struct {
		name string
		q    id.QuotaPolicyID
		x    id.ExecutionID
		spec interop.AdmissionSpec
		want error
	}{
		{"an execution that names the policy", q, named, interop.AdmissionSpec{}, fferr.ErrInvalidInput},
		{"one that has ended", q, ended, interop.AdmissionSpec{}, fferr.ErrEnded},
		{"one that does not exist", q, f.NewExecutionID(f.Lane), interop.AdmissionSpec{}, fferr.ErrNotFound},
		{"no policy", id.QuotaPolicyID{}, ended, interop.AdmissionSpec{}, fferr.ErrInvalidInput},
		{"no execution", q, id.ExecutionID{}, interop.AdmissionSpec{}, fferr.ErrInvalidInput},
		{"a negative jitter", q, f.Create(t), interop.AdmissionSpec{Jitter: -1}, fferr.ErrInvalidInput},
		{"a negative limit", broken, f.Create(t), interop.AdmissionSpec{}, fferr.ErrCorruption},
	} {
		if _, err := interop.CheckAdmission(t.Context(), f.Engine, c.q, c.x, c.spec); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if uses := fixture.Texts(t, f.Pool, "SELECT execution_id::text FROM ffx_gate_use"); len(uses) != 0 {
		t.Errorf("admitted %q", uses)
	}
}

// Admission at a policy that does not exist makes no row of it, so it can be created with its limits later.
func TestUnknownPolicyIsNotMade_B23(t *testing.T) {
	f := fixture.NewCloned(t)
	q, x := id.NewQuotaPolicyID(), create(t, f, 2)
	if _, err := interop.CheckAdmission(t.Context(), f.Engine, q, x[0], interop.AdmissionSpec{}); !errors.Is(err, fferr.ErrNotFound) {
		t.Fatal(err)
	}
	giveBack(t, f, q, x[0])
	create(t, f, 1, under(q))
	complete(t, f, wantClaimable(t, f, 3, "without a policy")...)
	if got := quota(t, f, interop.QuotaPolicySpec{ID: q, MaxRunning: 1}); got != q {
		t.Fatal(got)
	}
	x = create(t, f, 2)
	wantAnswer(t, f, q, x[0], interop.Admitted, 0)
	wantAnswer(t, f, q, x[1], interop.ConcurrencyExceeded, 0)
}

// Repeated admissions within a millisecond are harmless, also after a release.
func TestAdmissionsInOneMillisecond_B24(t *testing.T) {
	f := fixture.NewCloned(t)
	q := quota(t, f, interop.QuotaPolicySpec{MaxStarts: 3, Window: window})
	x := create(t, f, 1)[0]
	wantAnswer(t, f, q, x, interop.Admitted, 0)
	wantAnswer(t, f, q, x, interop.AlreadyAdmitted, 0)
	for range 2 {
		giveBack(t, f, q, x)
		wantAnswer(t, f, q, x, interop.Admitted, 0)
	}
	giveBack(t, f, q, x)
	wantAnswer(t, f, q, x, interop.RateExceeded, window)
}

// The jitter of a refusal is random and only up to its bound.
func TestJitterIsRandom_B25(t *testing.T) {
	f := fixture.NewCloned(t)
	q := quota(t, f, interop.QuotaPolicySpec{MaxStarts: 1, Window: window})
	x := create(t, f, 2)
	wantAnswer(t, f, q, x[0], interop.Admitted, 0)
	waits := map[time.Duration]bool{}
	for range 10 {
		result, err := interop.CheckAdmission(t.Context(), f.Engine, q, x[1], interop.AdmissionSpec{Jitter: time.Minute})
		if err != nil || result.RetryAfter < window || result.RetryAfter > window+time.Minute {
			t.Fatal(result, err)
		}
		waits[result.RetryAfter] = true
	}
	if len(waits) == 1 {
		t.Errorf("ten times the same: %v", waits)
	}
}

// Two callers at once: the second waits for the first one's transaction and counts what that has committed, also if the first
// makes the row that both lock.
func TestCallersWaitForEachOther_B20(t *testing.T) {
	for _, c := range []struct {
		name         string
		made, commit bool
		want         interop.AdmissionOutcome
	}{
		{"a new row, committed", false, true, interop.ConcurrencyExceeded},
		{"a new row, rolled back", false, false, interop.Admitted},
		{"a row, committed", true, true, interop.ConcurrencyExceeded},
		{"a row, rolled back", true, false, interop.Admitted},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 1})
			x := create(t, f, 2)
			if c.made {
				wantAnswer(t, f, q, x[0], interop.Admitted, 0)
				giveBack(t, f, q, x[0])
				f.Advance(time.Millisecond)
			}
			tx := f.BeginTx(t)
			if got := ask(t, f.WithTx(tx), q, x[0]); got.Outcome != interop.Admitted {
				t.Fatal(got)
			}
			r := f.Rival(t)
			type answer struct {
				interop.AdmissionResult
				err error
			}
			second := fixture.Async(t, func(ctx context.Context) answer {
				result, err := interop.CheckAdmission(ctx, r.Engine, q, x[1], interop.AdmissionSpec{})
				return answer{result, err}
			})
			r.AwaitBlocked(t, f)
			if c.commit {
				fixture.Commit(t, tx)
			} else if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := second(); got.err != nil || got.Outcome != c.want {
				t.Errorf("%+v, want %s", got, c.want)
			}
		})
	}
}

// Callers and gates of several processes at once never exceed a policy.
func TestCallersAndGatesAtOnce_B38(t *testing.T) {
	f := fixture.NewCloned(t)
	const limit = 4
	q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: limit})
	create(t, f, 20, under(q))
	free := create(t, f, 40, func(s *engine.ExecutionSpec) { s.Lane = "elsewhere" })
	inUse := func(ctx context.Context, r *fixture.Rival) error {
		var n int
		err := r.Pool.QueryRow(ctx, `
			SELECT count(*)
			FROM ffx_gate_use AS u
			JOIN ff_exec_core AS e ON e.partition_key = u.execution_partition_key AND e.execution_id = u.execution_id
			WHERE u.held AND (u.by_caller OR e.ffx_admitted)`).Scan(&n)
		if err == nil && n > limit {
			err = fmt.Errorf("%d are in use, limit %d", n, limit)
		}
		return err
	}
	var waits []func() error
	for n := range 4 {
		r := f.Rival(t)
		waits = append(waits, fixture.Async(t, func(ctx context.Context) error {
			for i, x := range free {
				if i%4 != n {
					continue
				}
				result, err := interop.CheckAdmission(ctx, r.Engine, q, x, interop.AdmissionSpec{})
				if err != nil {
					return err
				}
				if _, err := upkeep.Of(r.Engine).AdmitWaiting(ctx, 100); err != nil {
					return err
				}
				if err := inUse(ctx, r); err != nil {
					return err
				}
				if result.Outcome == interop.Admitted {
					if err := interop.ReleaseAdmission(ctx, r.Engine, q, x); err != nil {
						return err
					}
				}
				spec := f.Worker()
				spec.Instance = id.WorkerInstanceID(fmt.Sprint(f.Name, n))
				claimed, err := r.Claim(ctx, spec, 2)
				if err != nil {
					return err
				}
				for _, c := range claimed {
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
}

// A place that a call took for an execution of FlowFabric, which a conversion keeps, does not keep that from being admitted by
// the gate.
func TestPlaceOfACallGivesWayToTheGate(t *testing.T) {
	f := fixture.NewCloned(t)
	q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 1})
	x := create(t, f, 2, under(q))[0]
	f.Exec(t, "INSERT INTO ffx_gate (partition_key, gate_id, namespace, key, held, started, used_at_ms) VALUES ($1, $2, '', '', 1, 1, 1)",
		int16(q[0]), q)
	f.Exec(t, `
		INSERT INTO ffx_gate_use (
			partition_key, gate_id, execution_id, admitted_at_ms, execution_partition_key, units, held, started_at_ms, by_caller
		)
		VALUES ($1, $2, $3, 1, $4, 1, true, 1, true)`,
		int16(q[0]), q, x.UUID(), x.Partition())
	if running := wantClaimable(t, f, 1, "with its own place"); running[0].ID != x {
		t.Errorf("claimed %s", running[0].ID)
	}
}
