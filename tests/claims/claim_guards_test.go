package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// entryGuards are changes that no trigger sees, to an execution or to its queue entry. After each of them one guard
// alone keeps a worker that asks for the kind "test" and can do "ssd" from claiming it.
var entryGuards = map[string]string{
	"phase":                     "UPDATE ff_exec_core SET lifecycle_phase = 'suspended'",
	"eligibility":               "UPDATE ff_exec_core SET eligibility_state = 'blocked_by_operator'",
	"capabilities":              "UPDATE ff_exec_core SET required_capabilities = '{ssd,gpu}'",
	"capabilities of the entry": "UPDATE ffx_ready SET required_capabilities = '{ssd,gpu}'",
	"lane":                      "UPDATE ff_exec_core SET lane_id = lane_id || '-other'",
	"priority":                  "UPDATE ff_exec_core SET priority = priority + 1",
	"age":                       "UPDATE ff_exec_core SET created_at_ms = created_at_ms + 1",
	"kind of the entry":         "UPDATE ffx_ready SET kind = 'other'",
}

// slowPath brings every claim of the lane to its slow path: the attempt of the returned execution is there already.
func slowPath(t *testing.T, f *fixture.Fixture) id.ExecutionID {
	t.Helper()
	x := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Priority = 5 })
	f.SeedAttempt(t, x, 0, nil)
	return x
}

// A queue entry only says where to look. The execution's row is asked, on each path, by each guard alone.
func TestClaimChecksTheExecutionBehindAnEntry(t *testing.T) {
	for name, sql := range entryGuards {
		for _, slow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, slow path %t", name, slow), func(t *testing.T) {
				eachWay(t, func(t *testing.T, f *fixture.Fixture) {
					x := f.Create(t)
					f.Unseen(t, x, sql)
					want := []id.ExecutionID{f.Create(t)}
					if slow {
						want = slices.Insert(want, 0, slowPath(t, f))
					}
					spec := f.Worker()
					spec.Kinds, spec.Capabilities = []string{"test"}, id.NewCapabilities("ssd")
					if got := fixture.ExecutionsOf(f.ClaimNow(t, spec, 10)); !slices.Equal(got, want) {
						t.Errorf("claimed %v, want %v and not %v", got, want, x)
					}
					f.Exec(t, "DELETE FROM ffx_ready WHERE lane_id = $1", string(f.Lane))
				})
			})
		}
	}
}

// A change committed between the claim's snapshot, which shows the execution claimable, and its lock counts, on each
// path: the row is checked again once it is locked.
func TestClaimSkipsRowsNoLongerClaimable(t *testing.T) {
	for _, statement := range []string{"ClaimFromHead", "ClaimAfterPositions", "ClaimOneAfterPosition", "TakeClaimable"} {
		for what, change := range map[string]string{
			"phase":        "lifecycle_phase = 'suspended'",
			"eligibility":  "eligibility_state = 'blocked_by_operator'",
			"capabilities": "required_capabilities = '{gpu}'",
			"lane":         "lane_id = lane_id || '-other'",
		} {
			t.Run(statement+", "+what, func(t *testing.T) {
				f := fixture.NewCloned(t)
				var first id.ExecutionID
				if statement == "TakeClaimable" {
					first = slowPath(t, f)
				} else {
					first = f.Create(t)
				}
				second := f.Create(t)
				one := statement == "ClaimOneAfterPosition"
				if one {
					first, second = second, first // it looks at the next only when the first does not hold
				}
				if one || statement == "TakeClaimable" {
					clockAtTheQueue(t, f)
				}
				held, release := f.Holding(t, statement)
				claim := func(ctx context.Context) ([]engine.Claimed, error) { return held.Claim(ctx, f.Worker(), 10) }
				if one || statement == "ClaimAfterPositions" {
					f.After = held.Engine
					claimer, err := f.Positioned(t.Context(), f.Worker())
					if err != nil {
						t.Fatal(err)
					}
					n := 10
					if one {
						n = 1
					}
					claim = func(ctx context.Context) ([]engine.Claimed, error) { return claimer.Claim(ctx, n) }
				}
				wait := fixture.Async(t, func(ctx context.Context) []engine.Claimed {
					claimed, err := claim(ctx)
					if err != nil {
						t.Error(err)
					}
					return claimed
				})
				held.AwaitBlocked(t, f)
				f.Exec(t, fixture.UpdateExecution(change), second.Partition(), second.UUID())
				was := f.Dump(t, second)
				release()
				if got, want := fixture.ExecutionsOf(wait()), []id.ExecutionID{first}; !slices.Equal(got, want) {
					t.Errorf("claimed %v, want %v", got, want)
				}
				f.WantUnchanged(t, second, was)
			})
		}
	}
}

// The claim leaves no lock on executions claimed by others since its snapshot; such a lock would last as long as its
// transaction.
func TestClaimLeavesNoLockOnOthersWork(t *testing.T) {
	for _, statement := range []string{"ClaimFromHead", "TakeClaimable"} {
		t.Run(statement, func(t *testing.T) {
			f := fixture.NewCloned(t)
			if statement == "TakeClaimable" {
				slowPath(t, f)
			}
			f.Create(t)
			f.Create(t)
			clockAtTheQueue(t, f)
			held, release := f.Holding(t, statement)
			tx := fixture.BeginWith(t, held.Pool, pgx.TxOptions{})
			wait := fixture.Async(t, func(ctx context.Context) []engine.Claimed {
				claimed, err := held.WithTx(tx).Claim(ctx, f.Worker(), 10)
				if err != nil {
					t.Error(err)
				}
				return claimed
			})
			held.AwaitBlocked(t, f)
			var ends []engine.Completion
			for _, c := range f.ClaimNow(t, f.Worker(), 10) {
				ends = append(ends, engine.Completion{Lease: c.Lease})
			}
			release()
			if claimed := wait(); len(claimed) > 0 || len(ends) < 2 {
				t.Errorf("claimed %v beside %d", fixture.ExecutionsOf(claimed), len(ends))
			}
			outcomes, err := f.CompleteExecutions(t.Context(), ends)
			if err := errors.Join(append(outcomes, err)...); err != nil {
				t.Errorf("ended what was claimed: %v", err)
			}
			fixture.Commit(t, tx)
		})
	}
}

// clockAtTheQueue has every statement that reads the queue read the clock for each entry, so that one that does not
// read it otherwise can be held, with its snapshot, before it locks anything.
func clockAtTheQueue(t *testing.T, f *fixture.Fixture) {
	t.Helper()
	f.Exec(t, "ALTER TABLE ffx_ready RENAME TO entries")
	f.Exec(t, `CREATE VIEW ffx_ready AS SELECT ctid, lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities, kind
		FROM entries WHERE ffx_now_ms(NULL) IS NOT NULL`)
}

// The slow path never waits either.
func TestSlowClaimNeverWaits(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		held, free := f.Create(t), f.Create(t)
		slow := slowPath(t, f)
		tx := f.BeginTx(t)
		fixture.LockExecution(t, tx, held)
		if got, want := fixture.ExecutionsOf(f.ClaimN(t, 10)), []id.ExecutionID{slow, free}; !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
	})
}
