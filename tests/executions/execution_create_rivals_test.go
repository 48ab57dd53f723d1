package executions

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Beside an uncommitted creation of the same id the others wait, with all executions created together, and continue
// once it has ended: an existing execution is then a duplicate.
func TestCreateExecutionsWaitsForAnUncommittedID(t *testing.T) {
	for _, shape := range []string{"alike", "with tags", "in groups", "unlike"} {
		for _, ends := range []string{"commits", "rolls back"} {
			for _, in := range []string{"a transaction of its own", "a caller's transaction"} {
				t.Run(shape+", the first "+ends+", the second in "+in, func(t *testing.T) {
					f := fixture.NewCloned(t)
					specs := fixture.ManyLike(f, 60, shapes[shape].change)
					late := f.Rival(t)
					for _, e := range []*engine.Engine{f.Engine, late.Engine} { // the lane is known from now on
						if _, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "lane"}); err != nil {
							t.Fatal(err)
						}
					}
					held := f.BeginTx(t)
					if _, err := f.WithTx(held).CreateExecution(t.Context(), specs[40]); err != nil {
						t.Fatal(err)
					}
					tx := fixture.BeginWith(t, late.Pool, pgx.TxOptions{})
					wait := fixture.Async(t, func(ctx context.Context) []fferr.Outcome[engine.Created] {
						e := late.Engine
						if in == "a caller's transaction" {
							e = e.WithTx(tx)
						}
						created, err := e.CreateExecutions(ctx, specs)
						if err != nil {
							t.Error(err)
						}
						return created
					})
					late.AwaitBlocked(t, f)
					f.End(t, held, ends == "commits")
					for i, x := range wait() {
						if want := ends == "commits" && i == 40; x.Err != nil || x.Value.ID != specs[i].ID || x.Value.Duplicate != want {
							t.Errorf("created %+v, want duplicate %t", x, want)
						}
					}
					fixture.Commit(t, tx)
					if n := f.CountOnLane(t); n != 62 {
						t.Errorf("%d executions, want 62", n)
					}
					f.WantQueue(t, t, "created")
				})
			}
		}
	}
}

// They wait as long as a transaction may, three times on a pool, and nothing is created. In a caller's transaction
// the wait and its result are the caller's: the transaction goes on.
func TestCreateExecutionsGivesUpOnAHeldID(t *testing.T) {
	for _, n := range []int{1, 60} {
		f := fixture.Another(t)
		specs := fixture.ManyLike(f, n, fixture.WithTags)
		late, log := f.ShortWaitRival(t)
		for _, e := range []*engine.Engine{f.Engine, late.Engine} {
			if _, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "lane"}); err != nil {
				t.Fatal(err)
			}
		}
		held := f.BeginTx(t)
		if _, err := f.WithTx(held).CreateExecution(t.Context(), specs[n-1]); err != nil {
			t.Fatal(err)
		}
		sent := fixture.Names(log.During(func() {
			created, err := late.CreateExecutions(t.Context(), specs)
			if !errors.Is(err, fferr.ErrContention) || created[0].Err != nil && !errors.Is(created[0].Err, fferr.ErrContention) {
				t.Errorf("created %+v, %v; want contention", created[0], err)
			}
		}))
		if want := slices.Repeat([]string{"select", "InsertAlike"}, 3); !slices.Equal(sent, want) {
			t.Errorf("sent %q, want %q", sent, want)
		}
		tx := fixture.BeginWith(t, late.Pool, pgx.TxOptions{})
		if _, err := late.WithTx(tx).CreateExecutions(t.Context(), specs); pgtx.SQLState(err) != "55P03" || !errors.Is(err, fferr.ErrContention) {
			t.Errorf("got %v, want the server's error", err)
		}
		if got := ownEntries(t, tx); got != "" {
			t.Errorf("the setting is %q", got)
		}
		if got := f.CountOnLane(t); got != 2 {
			t.Errorf("%d executions, want 2", got)
		}
		f.End(t, held, false)
		if _, err := late.WithTx(tx).CreateExecutions(t.Context(), specs); err != nil {
			t.Error(err)
		}
		fixture.Commit(t, tx)
		if got := f.CountOnLane(t); got != 2+n {
			t.Errorf("%d executions, want %d", got, 2+n)
		}
	}
}

// Two creators of the same executions take them in one order, in any order of their specs: one waits, and neither is
// in the other's way.
func TestConcurrentCreationsNeverDeadlock(t *testing.T) {
	for _, shape := range []string{"alike", "unlike"} {
		t.Run(shape, func(t *testing.T) {
			f := fixture.NewCloned(t)
			specs := fixture.ManyLike(f, 60, shapes[shape].change)
			slices.SortFunc(specs, func(a, b engine.ExecutionSpec) int { return a.ID.Compare(b.ID) })
			late := f.Rival(t)
			for _, e := range []*engine.Engine{f.Engine, late.Engine} {
				if _, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "lane"}); err != nil {
					t.Fatal(err)
				}
			}
			first := f.BeginTx(t)
			if _, err := f.WithTx(first).CreateExecution(t.Context(), specs[0]); err != nil {
				t.Fatal(err)
			}
			backwards := slices.Clone(specs)
			slices.Reverse(backwards)
			second := fixture.BeginWith(t, late.Pool, pgx.TxOptions{}) // in which a deadlock would show
			wait := fixture.Async(t, func(ctx context.Context) []fferr.Outcome[engine.Created] {
				created, err := late.WithTx(second).CreateExecutions(ctx, backwards)
				if err != nil {
					t.Error(err)
				}
				return created
			})
			late.AwaitBlocked(t, f)
			if _, err := f.WithTx(first).CreateExecutions(t.Context(), specs[1:]); err != nil {
				t.Fatal(err)
			}
			fixture.Commit(t, first)
			for i, x := range wait() {
				if x.Err != nil || !x.Value.Duplicate || x.Value.ID != backwards[i].ID {
					t.Errorf("created %+v, want a duplicate", x)
				}
			}
			fixture.Commit(t, second)
			f.WantQueue(t, t, "created")
		})
	}
}
