package operators

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// eachPause runs a test with both.
func eachPause(t *testing.T, test func(t *testing.T, f *fixture.Fixture, p fixture.Pausing)) {
	t.Helper()
	t.Parallel()
	for _, p := range fixture.Pausings {
		t.Run(p.Name, func(t *testing.T) { test(t, fixture.New(t), p) })
	}
}

// taking is a way to claim up to ten, made while nothing is paused: some ways begin before.
type taking func(t *testing.T) []engine.Claimed

func waysToClaim(t *testing.T, f *fixture.Fixture) map[string]taking {
	t.Helper()
	must := func(claimed []engine.Claimed, err error) []engine.Claimed {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return claimed
	}
	positioned := f.Claimer(t)
	if first := must(positioned.Claim(t.Context(), 1)); len(first) != 1 {
		t.Fatal("nothing to claim")
	}
	completing, held := f.Claimer(t), must(f.Engine.Claim(t.Context(), f.Worker(), 1))
	var spec engine.ClaimSpec
	return map[string]taking{
		"from the head": func(t *testing.T) []engine.Claimed { return must(f.Engine.Claim(t.Context(), f.Worker(), 10)) },
		"by another process": func(t *testing.T) []engine.Claimed {
			return must(f.Rival(t).Claim(t.Context(), f.Worker(), 10))
		},
		"in a transaction": func(t *testing.T) []engine.Claimed {
			tx := f.BeginTx(t)
			claimed := must(f.WithTx(tx).Claim(t.Context(), f.Worker(), 10))
			fixture.Commit(t, tx)
			return claimed
		},
		"by a claimer":    func(t *testing.T) []engine.Claimed { return must(f.Claimer(t).Claim(t.Context(), 10)) },
		"after positions": func(t *testing.T) []engine.Claimed { return must(positioned.Claim(t.Context(), 10)) },
		"beside another lane": func(t *testing.T) []engine.Claimed {
			claims := make([]engine.LaneClaim, 2)
			for i := range claims {
				claimer, err := f.NewClaimer(f.WorkerOn(id.LaneID(strings.Repeat("-beside", i))))
				if err != nil {
					t.Fatal(err)
				}
				claims[i] = engine.LaneClaim{Claimer: claimer, Limit: 10}
			}
			outcomes, err := f.ClaimEach(t.Context(), claims)
			if err != nil {
				t.Fatal(err)
			}
			return must(outcomes[0].Value, outcomes[0].Err)
		},
		"beside a completion": func(t *testing.T) []engine.Claimed {
			var completions []engine.Completion
			if len(held) > 0 {
				completions, held = append(completions, engine.Completion{Lease: held[0].Lease}), nil
			}
			outcomes, claimed, err := completing.CompleteAndClaim(t.Context(), completions, 10)
			return must(claimed, errors.Join(append(outcomes, err)...))
		},
		"locking first": func(t *testing.T) []engine.Claimed {
			spec = f.Worker()
			f.SeedAttempt(t, f.Create(t), 0, nil) // an attempt row stands in the way
			return must(f.Engine.Claim(t.Context(), spec, 10))
		},
	}
}

// Nothing waiting is claimed, however it came there and in every way of claiming. Running executions go on, and those
// that the pause does not concern are claimed.
func TestPauseStopsEveryClaim(t *testing.T) {
	for _, way := range []string{
		"from the head", "by another process", "in a transaction", "by a claimer", "after positions", "beside another lane", "beside a completion",
		"locking first",
	} {
		t.Run(way, func(t *testing.T) {
			eachPause(t, func(t *testing.T, f *fixture.Fixture, p fixture.Pausing) {
				running := f.StartMany(t, 2)
				for range 3 {
					f.Create(t)
				}
				take := waysToClaim(t, f)[way]
				p.Must(t, f, f.Engine)
				if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{running[0].Lease}); err != nil {
					t.Fatal(err)
				}
				f.Create(t, func(spec *engine.ExecutionSpec) { spec.Priority = 7 })
				for range 2 {
					if claimed := take(t); len(claimed) != 0 {
						t.Fatalf("claimed %v", fixture.ExecutionsOf(claimed))
					}
				}
				if _, err := f.RenewLease(t.Context(), running[1].Lease, time.Minute); err != nil {
					t.Error(err)
				}
				if err := f.CompleteExecution(t.Context(), running[1].Lease, nil); err != nil {
					t.Error(err)
				}
				spec := f.Worker()
				p.Untouched(&spec)
				f.Create(t, func(s *engine.ExecutionSpec) { s.Lane = spec.Lane })
				if claimed, err := f.Engine.Claim(t.Context(), spec, 1); len(claimed) != 1 || err != nil {
					t.Errorf("claimed %d, %v, where nothing is paused", len(claimed), err)
				}
				p.MustEnd(t, f, f.Engine)
				var claimed []engine.Claimed
				fixture.Await(t, "what waited to be claimed", func() bool {
					more := take(t)
					claimed = append(claimed, more...)
					return len(more) == 0 || len(claimed) >= 3
				})
				if len(claimed) < 2 {
					t.Errorf("claimed %d afterwards", len(claimed))
				}
			})
		})
	}
}

// A pause begins with its commit, and at once in its own transaction.
func TestPauseInATransaction(t *testing.T) {
	eachPause(t, func(t *testing.T, f *fixture.Fixture, p fixture.Pausing) {
		take := func(e *engine.Engine, want int, when string) {
			t.Helper()
			f.Create(t)
			if claimed, err := e.Claim(t.Context(), f.Worker(), 1); len(claimed) != want || err != nil {
				t.Errorf("claimed %d, %v, %s; want %d", len(claimed), err, when, want)
			}
		}
		tx := f.BeginTx(t)
		p.Must(t, f, f.WithTx(tx))
		take(f.Engine, 1, "before the commit")
		take(f.WithTx(tx), 0, "in the transaction that pauses")
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		take(f.Engine, 1, "after it was rolled back")
		old := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		fixture.ExecIn(t, old, "SELECT FROM ffx_pause")
		tx = f.BeginTx(t)
		p.Must(t, f, f.WithTx(tx))
		fixture.Commit(t, tx)
		take(f.Engine, 0, "after the commit")
		take(f.WithTx(old), 1, "by a snapshot from before it")
		tx = f.BeginTx(t)
		p.MustEnd(t, f, f.WithTx(tx))
		take(f.Engine, 0, "before the commit of its end")
		fixture.Commit(t, tx)
		take(f.Engine, 1, "after the end")
	})
}

// A claim that had begun when the pause was committed ends as it would have. Its slow path asks again.
func TestPauseDuringAClaim(t *testing.T) {
	t.Run("after its snapshot", func(t *testing.T) {
		f := fixture.NewCloned(t)
		f.Create(t)
		held, release := f.Holding(t, "ClaimFromHead")
		wait := fixture.Async(t, func(ctx context.Context) []engine.Claimed {
			claimed, err := held.Claim(ctx, f.Worker(), 1)
			if err != nil {
				t.Error(err)
			}
			return claimed
		})
		held.AwaitBlocked(t, f)
		fixture.Pausings[0].Must(t, f, f.Engine)
		release()
		if claimed := wait(); len(claimed) != 1 {
			t.Errorf("claimed %d, want the one that it had begun with", len(claimed))
		}
	})
	t.Run("before its slow path", func(t *testing.T) {
		f := fixture.New(t)
		f.SeedAttempt(t, f.Create(t), 0, nil)
		late := f.StoppedBefore(t, "TakeClaimable")
		wait := fixture.Async(t, func(ctx context.Context) []engine.Claimed {
			claimed, err := late.Claim(ctx, f.Worker(), 1)
			if err != nil {
				t.Error(err)
			}
			return claimed
		})
		late.AwaitStop(t)
		fixture.Pausings[0].Must(t, f, f.Engine)
		late.Resume()
		if claimed := wait(); len(claimed) != 0 {
			t.Errorf("claimed %v", fixture.ExecutionsOf(claimed))
		}
	})
}

// A claimer asks once for each call, keeps its positions, and begins with a full scan when it may go on.
func TestClaimerOfAPausedLane(t *testing.T) {
	eachPause(t, func(t *testing.T, f *fixture.Fixture, p fixture.Pausing) {
		log := new(fixture.StatementLog)
		eng := f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
		claimer, err := eng.NewClaimer(f.Worker())
		if err != nil {
			t.Fatal(err)
		}
		claim := func(n int) (claims []string, claimed []engine.Claimed) {
			t.Helper()
			sent := fixture.Names(log.During(func() {
				if claimed, err = claimer.Claim(t.Context(), n); err != nil {
					t.Fatal(err)
				}
			}))
			return slices.DeleteFunc(sent, func(name string) bool { return !strings.HasPrefix(name, "Claim") && name != "ListLaneEnds" }), claimed
		}
		for range 6 {
			f.Create(t)
		}
		if _, claimed := claim(1); len(claimed) != 1 || claimer.Halted() != state.NotHalted {
			t.Fatalf("claimed %d, halted by %q", len(claimed), claimer.Halted())
		}
		p.Must(t, f, f.Engine)
		for range 5 {
			claimer.Wake()
			if claims, claimed := claim(3); len(claims) != 1 || len(claimed) != 0 || claimer.Halted() != p.Halt {
				t.Errorf("claimed %d by %q, halted by %q", len(claimed), claims, claimer.Halted())
			}
		}
		older := f.Create(t, func(spec *engine.ExecutionSpec) { spec.CreatedAt = fixture.Start.Add(-time.Hour) })
		p.MustEnd(t, f, f.Engine)
		claims, all := claim(2)
		if claims[0] != "ClaimFromHead" {
			t.Errorf("goes on by %q: what came meanwhile may stand before its positions", claims)
		}
		fixture.Await(t, "everything to be claimed", func() bool {
			_, claimed := claim(2)
			all = append(all, claimed...)
			return len(all) == 6
		})
		if claimer.Halted() != state.NotHalted || !slices.Contains(fixture.ExecutionsOf(all), older) {
			t.Errorf("claimed %v, halted by %q", fixture.ExecutionsOf(all), claimer.Halted())
		}
	})
}

func TestPauseIsListed(t *testing.T) {
	f := fixture.NewCloned(t)
	op := f.Engine
	var lanes []operator.PausedLane
	var workers []operator.DrainedWorker
	for i, name := range []string{"B", "_", "a", "a b", "z"} {
		f.Advance(time.Second)
		lane := operator.PausedLane{Lane: id.LaneID(name), Since: f.Time(), Reason: strings.Repeat("r", i)}
		instance := operator.DrainedWorker{Instance: id.WorkerInstanceID(name), Since: f.Time()}
		if err := errors.Join(operator.PauseLane(t.Context(), op, lane.Lane, operator.LanePause{Reason: lane.Reason}), operator.DrainWorker(t.Context(), op, instance.Instance)); err != nil {
			t.Fatal(err)
		}
		lanes, workers = append(lanes, lane), append(workers, instance)
	}
	f.Advance(time.Hour) // a repetition changes the reason, and not since when
	lanes[2].Reason = "another"
	if err := errors.Join(operator.PauseLane(t.Context(), op, "a", operator.LanePause{Reason: "another"}), operator.DrainWorker(t.Context(), op, "a")); err != nil {
		t.Fatal(err)
	}
	gotLanes, gotWorkers := fixture.Listed(t, operator.PausedLanes(t.Context(), op)), fixture.Listed(t, operator.DrainedWorkers(t.Context(), op))
	if !slices.Equal(gotLanes, lanes) || !slices.Equal(gotWorkers, workers) {
		t.Errorf("%v and %v, want %v and %v", gotLanes, gotWorkers, lanes, workers)
	}
	if err := errors.Join(operator.ResumeLane(t.Context(), op, "z"), operator.ResumeLane(t.Context(), op, "never paused"), operator.ResumeWorker(t.Context(), op, "z"),
		operator.ResumeWorker(t.Context(), op, "never drained")); err != nil {
		t.Error(err)
	}
	var left []string
	for lane, err := range operator.PausedLanes(t.Context(), op) {
		left = append(left, fmt.Sprint(lane.Lane, err))
	}
	for instance, err := range operator.DrainedWorkers(t.Context(), op) {
		left = append(left, fmt.Sprint(instance.Instance, err))
	}
	if want := "B<nil>,_<nil>,a<nil>,a b<nil>,B<nil>,_<nil>,a<nil>,a b<nil>"; strings.Join(left, ",") != want {
		t.Errorf("left are %q, want %q", strings.Join(left, ","), want)
	}
}

// paged collects the pages of a listing.
func TestPausesOfSeveralPages(t *testing.T) {
	f := fixture.NewCloned(t)
	if err := errors.Join(operator.PauseLane(t.Context(), f.Engine, "a", operator.LanePause{}), operator.DrainWorker(t.Context(), f.Engine, "a")); err != nil {
		t.Fatal(err)
	}
	const n = engine.MaxPage + 1
	f.Exec(t, `
		INSERT INTO ffx_pause
		SELECT (jsonb_populate_record(p, jsonb_build_object('name', p.name || to_char(n, 'FM0000')))).*
		FROM ffx_pause AS p, generate_series(2, $1) AS n`, n)
	var lanes, workers []string
	for _, lane := range fixture.Listed(t, operator.PausedLanes(t.Context(), f.Engine)) {
		lanes = append(lanes, string(lane.Lane))
	}
	for _, worker := range fixture.Listed(t, operator.DrainedWorkers(t.Context(), f.Engine)) {
		workers = append(workers, string(worker.Instance))
	}
	if len(lanes) != n || !slices.IsSorted(lanes) || !slices.Equal(lanes, workers) || len(slices.Compact(lanes)) != n {
		t.Errorf("%d lanes and %d workers, want %d: %q, %q", len(lanes), len(workers), n, lanes, workers)
	}
}

func TestPauseRefusesBadInput(t *testing.T) {
	f := fixture.New(t)
	op := f.Engine
	for what, err := range map[string]error{
		"an empty lane":      operator.PauseLane(t.Context(), op, "", operator.LanePause{}),
		"a lane to resume":   operator.ResumeLane(t.Context(), op, "a\nb"),
		"a long reason":      operator.PauseLane(t.Context(), op, f.Lane, operator.LanePause{Reason: strings.Repeat("r", 1025)}),
		"an empty instance":  operator.DrainWorker(t.Context(), op, ""),
		"a worker to resume": operator.ResumeWorker(t.Context(), op, "a\nb"),
	} {
		if input, ok := errors.AsType[*fferr.InputError](err); !ok || input.Field == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if claimed := f.Start(t); claimed.ID.IsZero() {
		t.Error("the lane is paused")
	}
}

// Listeners are notified of the end of a pause, but not from inside a caller's transaction.
func TestResumeWakesWorkers(t *testing.T) {
	f := fixture.New(t)
	e := f.Rival(t).ListenTo(t, f.Lane)
	for _, p := range fixture.Pausings {
		p.Must(t, f, f.Engine)
		tx := f.BeginTx(t)
		p.MustEnd(t, f, f.WithTx(tx))
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.MustEnd(t, f, f.Engine)
		if p.Halt == state.HaltedLane {
			e.Want(t, f.Lane)
		} else {
			e.Want(t, "")
		}
		p.MustEnd(t, f, f.Engine) // there is nothing to end: no notification
	}
	f.Wake(f.Lane)
	e.Want(t, f.Lane)
	if len(e.Received) > 0 {
		t.Errorf("heard %q too", <-e.Received)
	}
}

// A locked row is waited for, three times.
func TestPauseTriesThreeTimes(t *testing.T) {
	eachPause(t, func(t *testing.T, f *fixture.Fixture, p fixture.Pausing) {
		tx := f.BeginTx(t)
		p.Must(t, f, f.WithTx(tx))
		late, log := f.ShortWaitRival(t)
		sent := fixture.Names(log.During(func() {
			if err := p.Begin(t.Context(), f, late.Engine); !errors.Is(err, fferr.ErrContention) {
				t.Errorf("got %v, want contention", err)
			}
		}))
		if n := fixture.CountTries(sent); n != 3 {
			t.Errorf("%d tries: %q", n, sent)
		}
		fixture.Commit(t, tx)
		p.Must(t, f, late.Engine)
		held := f.BeginTx(t)
		fixture.ExecIn(t, held, "SELECT FROM ffx_pause WHERE name = ANY ($1) FOR UPDATE", []string{string(f.Lane), f.Name})
		if err := p.End(t.Context(), f, late.Engine); !errors.Is(err, fferr.ErrContention) {
			t.Errorf("got %v, want contention", err)
		}
		f.Create(t)
		if claimed, err := f.Engine.Claim(t.Context(), f.Worker(), 1); len(claimed) != 0 || err != nil {
			t.Errorf("claimed %d, %v", len(claimed), err)
		}
		fixture.Commit(t, held)
		p.MustEnd(t, f, late.Engine)
	})
}

// A worker drained long ago has no process any more. A lane stays paused.
func TestRepairQueueForgetsDrains(t *testing.T) {
	f := fixture.NewCloned(t)
	for _, p := range fixture.Pausings {
		p.Must(t, f, f.Engine)
	}
	count := func() (lanes, workers int) {
		return len(fixture.Listed(t, operator.PausedLanes(t.Context(), f.Engine))), len(fixture.Listed(t, operator.DrainedWorkers(t.Context(), f.Engine)))
	}
	f.Advance(30*24*time.Hour - time.Millisecond)
	f.Repair(t, 10)
	if lanes, workers := count(); lanes != 1 || workers != 1 {
		t.Errorf("%d lanes and %d workers before the 30 days have passed", lanes, workers)
	}
	f.Advance(time.Millisecond)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT FROM ffx_pause FOR UPDATE")
	f.Repair(t, 10)
	fixture.Commit(t, tx)
	if lanes, workers := count(); lanes != 1 || workers != 1 {
		t.Errorf("%d lanes and %d workers, while somebody holds their rows", lanes, workers)
	}
	f.Repair(t, 10)
	if lanes, workers := count(); lanes != 1 || workers != 0 {
		t.Errorf("%d lanes and %d workers after 30 days, want 1 and 0", lanes, workers)
	}
}

// The settings of a lane are the database's: an engine on another pool, or one begun later, finds them.
func TestPauseIsDurable(t *testing.T) {
	eachPause(t, func(t *testing.T, f *fixture.Fixture, p fixture.Pausing) {
		p.Must(t, f, f.EngineOn(t, fixture.OpenPool(t, f.Url, nil), engine.Config{}))
		f.Create(t)
		later := f.EngineOn(t, fixture.OpenPool(t, f.Url, func(*pgxpool.Config) {}), engine.Config{})
		if claimed, err := later.Claim(t.Context(), f.Worker(), 1); len(claimed) != 0 || err != nil {
			t.Errorf("claimed %d, %v", len(claimed), err)
		}
	})
}
