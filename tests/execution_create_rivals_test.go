package tests

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// Beside a creation of the same id that is not committed the others wait, with all that is created together, and go on once
// it has ended: what exists then is a duplicate.
func TestCreateExecutions_beside_one_that_is_not_committed(t *testing.T) {
	for _, shape := range []string{"alike", "with tags", "in groups", "unlike"} {
		for _, ends := range []string{"commits", "rolls back"} {
			for _, in := range []string{"a transaction of its own", "a caller's transaction"} {
				t.Run(shape+", the first "+ends+", the second in "+in, func(t *testing.T) {
					f := cloneFixture(t)
					specs := manyLike(f, 60, shapes[shape].change)
					late := f.rival(t)
					for _, e := range []*engine.Engine{f.Engine, late.Engine} { // the lane is known from now on
						if _, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.lane, Kind: "lane"}); err != nil {
							t.Fatal(err)
						}
					}
					held := f.begin(t)
					if _, err := f.WithTx(held).CreateExecution(t.Context(), specs[40]); err != nil {
						t.Fatal(err)
					}
					tx := beginWith(t, late.pool, pgx.TxOptions{})
					wait := async(t, func(ctx context.Context) []engine.Outcome[engine.Created] {
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
					late.awaitBlocked(t, f)
					f.end(t, held, ends == "commits")
					for i, x := range wait() {
						if want := ends == "commits" && i == 40; x.Err != nil || x.Value.ID != specs[i].ID || x.Value.Duplicate != want {
							t.Errorf("created %+v, want duplicate %t", x, want)
						}
					}
					commit(t, tx)
					if n := f.countOnLane(t); n != 62 {
						t.Errorf("%d executions, want 62", n)
					}
					f.wantQueue(t, t, "created")
				})
			}
		}
	}
}

// They wait as long as a transaction may, three times on a pool, and nothing is created. In a caller's transaction the wait is the
// caller's, and so is what becomes of it: the transaction goes on.
func TestCreateExecutions_beside_one_that_stays(t *testing.T) {
	for _, n := range []int{1, 60} {
		f := anotherFixture(t)
		specs := manyLike(f, n, withTags)
		late, log := f.impatient(t)
		for _, e := range []*engine.Engine{f.Engine, late.Engine} {
			if _, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.lane, Kind: "lane"}); err != nil {
				t.Fatal(err)
			}
		}
		held := f.begin(t)
		if _, err := f.WithTx(held).CreateExecution(t.Context(), specs[n-1]); err != nil {
			t.Fatal(err)
		}
		sent := names(log.during(func() {
			created, err := late.CreateExecutions(t.Context(), specs)
			if !errors.Is(err, engine.ErrContention) || created[0].Err != nil && !errors.Is(created[0].Err, engine.ErrContention) {
				t.Errorf("created %+v, %v; want contention", created[0], err)
			}
		}))
		if want := slices.Repeat([]string{"select", "InsertAlike"}, 3); !slices.Equal(sent, want) {
			t.Errorf("sent %q, want %q", sent, want)
		}
		tx := beginWith(t, late.pool, pgx.TxOptions{})
		if _, err := late.WithTx(tx).CreateExecutions(t.Context(), specs); pgtx.SQLState(err) != "55P03" || errors.Is(err, engine.ErrContention) {
			t.Errorf("got %v, want the server's error", err)
		}
		if got := ownEntries(t, tx); got != "" {
			t.Errorf("the setting is %q", got)
		}
		if got := f.countOnLane(t); got != 2 {
			t.Errorf("%d executions, want 2", got)
		}
		f.end(t, held, false)
		if _, err := late.WithTx(tx).CreateExecutions(t.Context(), specs); err != nil {
			t.Error(err)
		}
		commit(t, tx)
		if got := f.countOnLane(t); got != 2+n {
			t.Errorf("%d executions, want %d", got, 2+n)
		}
	}
}

// Two who create the same executions take them in one order, whichever they give them in: one waits, and neither is in the
// other's way.
func TestCreateExecutions_of_the_same_in_another_order(t *testing.T) {
	for _, shape := range []string{"alike", "unlike"} {
		t.Run(shape, func(t *testing.T) {
			f := cloneFixture(t)
			specs := manyLike(f, 60, shapes[shape].change)
			slices.SortFunc(specs, func(a, b engine.ExecutionSpec) int { return a.ID.Compare(b.ID) })
			late := f.rival(t)
			for _, e := range []*engine.Engine{f.Engine, late.Engine} {
				if _, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.lane, Kind: "lane"}); err != nil {
					t.Fatal(err)
				}
			}
			first := f.begin(t)
			if _, err := f.WithTx(first).CreateExecution(t.Context(), specs[0]); err != nil {
				t.Fatal(err)
			}
			backwards := slices.Clone(specs)
			slices.Reverse(backwards)
			second := beginWith(t, late.pool, pgx.TxOptions{}) // in which a deadlock would show
			wait := async(t, func(ctx context.Context) []engine.Outcome[engine.Created] {
				created, err := late.WithTx(second).CreateExecutions(ctx, backwards)
				if err != nil {
					t.Error(err)
				}
				return created
			})
			late.awaitBlocked(t, f)
			if _, err := f.WithTx(first).CreateExecutions(t.Context(), specs[1:]); err != nil {
				t.Fatal(err)
			}
			commit(t, first)
			for i, x := range wait() {
				if x.Err != nil || !x.Value.Duplicate || x.Value.ID != backwards[i].ID {
					t.Errorf("created %+v, want a duplicate", x)
				}
			}
			commit(t, second)
			f.wantQueue(t, t, "created")
		})
	}
}
