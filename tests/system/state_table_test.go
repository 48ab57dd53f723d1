package system

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
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A transition is a row of the state table: the effect of an operation on an execution. All columns that change does
// not name stay the same, in every table about it.
type transition struct {
	name   string
	from   string        // the transition that leads to the row before it; "": there is no row yet
	after  time.Duration // how long after that; default a second
	calls  []call        // each must do the same
	change wholeRow
	events []string
	again  error // the error of the same call when it is repeated, and nothing is written; errActs: it acts again
	seeded bool  // rows of another program, not an operation
}

// transitions are the rows of the state table.
func transitions() []transition { return slices.Concat(stateTable, blockTable, waitTable) }

// call is a way of calling an operation, alone or for many at once.
type call struct {
	name string
	do   func(context.Context, *stage, []*subject) error
}

// stage is a fixture with the engine that an operation is called on: the pool's, or one in a transaction.
type stage struct {
	*fixture.Fixture
	e *engine.Engine
}

// hold notes leases that were given.
func hold(subjects []*subject, claimed []engine.Claimed) error {
	for _, c := range claimed {
		i := slices.IndexFunc(subjects, func(s *subject) bool { return s.x == c.ID })
		if i < 0 {
			return fmt.Errorf("claimed %s, which is no subject", c.ID)
		}
		subjects[i].lease = c.Lease
	}
	return nil
}

// byHand writes rows like another program.
func (s *stage) byHand(ctx context.Context, x *subject, sql string) error {
	args := []any{x.x.Partition(), x.x.UUID()}
	fixture.Handmade.Note(s.Pool.Config().ConnConfig.Database, sql, args)
	_, err := s.Pool.Exec(ctx, sql, args...)
	return err
}

var errActs = errors.New("the operation acts again")

// single calls an operation for each subject alone.
func single(name string, do func(context.Context, *stage, *subject) error) call {
	return call{name, func(ctx context.Context, s *stage, subjects []*subject) error {
		for _, x := range subjects {
			if err := do(ctx, s, x); err != nil {
				return err
			}
		}
		return nil
	}}
}

// several calls a plural, which has one outcome for each.
func several(name string, do func(context.Context, *engine.Engine, []engine.Lease) ([]error, error)) call {
	return call{name, func(ctx context.Context, s *stage, subjects []*subject) error {
		leases := make([]engine.Lease, len(subjects))
		for i, x := range subjects {
			leases[i] = x.lease
		}
		outcomes, err := do(ctx, s.e, leases)
		return errors.Join(append(outcomes, err)...)
	}}
}

// where calls a bulk operation, which must act on every subject or leave nothing to match. refused stands for its
// refusals. It begins its own transactions.
func where(
	name string, refused error, do func(context.Context, *engine.Engine, engine.ExecutionFilter) (operator.BulkProgress, error),
) call {
	return call{name, func(ctx context.Context, s *stage, subjects []*subject) error {
		done, err := do(ctx, s.e, engine.ExecutionFilter{Lane: s.Lane})
		if err == nil && done.Changed != done.Matched {
			err = refused
		}
		return err
	}}
}

// claims makes a call that gives leases until each subject has one more.
func claims(name string, do func(ctx context.Context, s *stage, limit int) ([]engine.Claimed, error)) []call {
	claim := func(limit int) func(context.Context, *stage, []*subject) error {
		return func(ctx context.Context, s *stage, subjects []*subject) error {
			for left := len(subjects); left > 0; {
				claimed, err := do(ctx, s, min(limit, left))
				if err != nil {
					return err
				}
				if len(claimed) == 0 {
					return fixture.ErrIdle
				}
				if err := hold(subjects, claimed); err != nil {
					return err
				}
				left -= len(claimed)
			}
			return nil
		}
	}
	return []call{{name, claim(1)}, {name + ", many", claim(10)}}
}

// background calls a job, which must act on every subject.
func background(name string, do func(*upkeep.Upkeep, context.Context, int) (int, error)) []call {
	return []call{{name, func(ctx context.Context, s *stage, subjects []*subject) error {
		n, err := do(upkeep.Of(s.e), ctx, 10)
		if err == nil && n != len(subjects) {
			err = fixture.ErrIdle
		}
		return err
	}}}
}

// reach brings subjects to the row that a transition ends with, and returns that row.
func (s *stage) reach(t *testing.T, name string, subjects []*subject) wholeRow {
	t.Helper()
	if name == "" {
		return nil
	}
	table := transitions()
	i := slices.IndexFunc(table, func(tr transition) bool { return tr.name == name })
	if i < 0 {
		t.Fatalf("there is no row %q", name)
	}
	tr := table[i]
	before := s.reach(t, tr.from, subjects)
	s.Advance(tr.pause())
	if err := tr.calls[0].do(t.Context(), s, subjects); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	after := before.with(tr.change, tr.events, s.Time())
	if wantRows(t, s.Fixture, name, subjects, after); t.Failed() {
		t.FailNow()
	}
	return after
}

func (tr transition) pause() time.Duration {
	if tr.after == 0 {
		return time.Second
	}
	return tr.after
}

func wantRows(t *testing.T, f *fixture.Fixture, when string, subjects []*subject, want wholeRow) {
	t.Helper()
	if want == nil {
		want = wholeRow{}
	}
	for i, x := range subjects {
		if fixture.WantEqual(t, fmt.Sprintf("%s, row %d", when, i), wholeRowOf(t, f, x), want); t.Failed() {
			return
		}
	}
}

// Every operation leaves exactly the row of the state table behind, and nothing else, whichever way it is called; a
// repeated call changes nothing.
func TestStateTable(t *testing.T) {
	t.Parallel()
	for _, tr := range transitions() {
		if tr.seeded {
			continue
		}
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			shared := fixture.Clone(t)
			shared.SeedKey(t, "k1", nil)
			for _, c := range tr.calls {
				for _, place := range []string{"on a pool", "in a transaction"} {
					if place == "in a transaction" && strings.HasSuffix(c.name, "Where") {
						continue // refused there
					}
					t.Run(c.name+" "+place, func(t *testing.T) {
						s := &stage{Fixture: fixture.On(t, shared.Pool, shared.Url)}
						s.e = s.Engine
						subjects := make([]*subject, 2)
						for i := range subjects {
							subjects[i] = &subject{x: id.NewExecutionID(s.Lane, id.Partitions{}), names: make(map[string]string)}
						}
						before := s.reach(t, tr.from, subjects)
						s.Advance(tr.pause())
						after := before.with(tr.change, tr.events, s.Time())
						var tx pgx.Tx
						if place == "in a transaction" {
							tx = s.BeginTx(t)
							s.e = s.WithTx(tx)
						}
						if err := c.do(t.Context(), s, subjects); err != nil {
							t.Fatal(err)
						}
						if tx != nil {
							wantRows(t, s.Fixture, "before the commit", subjects, before)
							fixture.Commit(t, tx)
							s.e = s.Engine
						}
						wantRows(t, s.Fixture, "after it", subjects, after)
						if tr.again == errActs {
							return
						}
						if err := c.do(t.Context(), s, subjects); !errors.Is(err, tr.again) {
							t.Errorf("repeated, it answers %v, want %v", err, tr.again)
						}
						wantRows(t, s.Fixture, "after its repetition", subjects, after)
					})
				}
			}
		})
	}
}
