package events

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A script is a set of transactions that write to an outbox, each statement when rapid wants it, and their states.
type script struct {
	f         *fixture.Fixture
	t         *testing.T
	open      []*scripted
	committed map[int64]bool
}

// scripted is an open transaction.
type scripted struct {
	tx    pgx.Tx
	rows  []int64
	marks []int // how many rows there were at each savepoint
}

const most = 4

// open at a time

// act does one of the things that can be done now.
func (s *script) act(r *rapid.T) {
	if len(s.open) == 0 || len(s.open) < most && rapid.IntRange(0, 3).Draw(r, "whether to begin") == 0 {
		s.open = append(s.open, &scripted{tx: s.f.BeginTx(s.t)})
	}
	at := rapid.IntRange(0, len(s.open)-1).Draw(r, "transaction")
	x := s.open[at]
	what := rapid.SampledFrom([]string{"event", "event", "insert", "insert", "commit", "roll back", "savepoint", "roll back to", "release"}).Draw(r, "action")
	if len(x.marks) == 0 && (what == "roll back to" || what == "release") {
		what = "insert"
	}
	depth := len(x.marks)
	switch what {
	case "event": // of a transaction that ends at once
		s.committed[insertLeasesInto(s.t, s.f, 1)] = true
	case "insert":
		x.rows = append(x.rows, insertLease(s.t, s.f, x.tx))
	case "savepoint":
		fixture.ExecIn(s.t, x.tx, fmt.Sprintf("SAVEPOINT s%d", depth))
		x.marks = append(x.marks, len(x.rows))
	case "roll back to":
		fixture.ExecIn(s.t, x.tx, fmt.Sprintf("ROLLBACK TO SAVEPOINT s%d", depth-1))
		x.rows = x.rows[:x.marks[depth-1]]
	case "release":
		fixture.ExecIn(s.t, x.tx, fmt.Sprintf("RELEASE SAVEPOINT s%d", depth-1))
		x.marks = x.marks[:depth-1]
	default:
		s.end(at, what == "commit")
	}
}

func (s *script) end(at int, commits bool) {
	x := s.open[at]
	s.open = slices.Delete(s.open, at, at+1)
	if !commits {
		if err := x.tx.Rollback(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	fixture.Commit(s.t, x.tx)
	for _, event := range x.rows {
		s.committed[event] = true
	}
}

// Writers act before, between and after the statements of a reader, and any of these may fail: the reader gets each
// committed event once, in order, and none beyond one that may still be committed.
func TestOutboxOrdersEveryInterleaving(t *testing.T) {
	f := fixture.NewCloned(t)
	pool := fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.MaxConns = 3 })
	reader := f.EngineOn(t, pool, engine.Config{NoListener: true})
	broken := errors.New("broken")
	held, settled := 0, 0
	fixture.ForAMoment(t, func(r *rapid.T) {
		s := &script{f: f, t: t, committed: make(map[int64]bool)}
		defer func() {
			for len(s.open) > 0 {
				s.end(0, false)
			}
		}()
		clock, quiet := fixture.Start, true
		steps, err := fixture.Outboxes(reader).Stepper(t.Context(), outbox.Lease, func() time.Time { return clock }, func(string) error {
			if quiet {
				return nil
			}
			for range rapid.IntRange(0, 4).Draw(r, "actions between") {
				s.act(r)
			}
			if rapid.IntRange(0, 19).Draw(r, "whether to fail") == 0 {
				return broken
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		handed, last := make(map[int64]bool), steps.Low()
		pass := func() (idle bool) {
			rows, idle, err := steps.Pass(t.Context())
			if err != nil && !errors.Is(err, broken) {
				r.Fatal(err)
			}
			for _, row := range rows {
				if row.ID <= last || !s.committed[row.ID] {
					r.Fatalf("handed %d after %d; committed: %d", row.ID, last, slices.Sorted(maps.Keys(s.committed)))
				}
				handed[row.ID], last = true, row.ID
			}
			if low := steps.Low(); low != last {
				r.Fatalf("low is %d, after %d was handed on", low, last)
			}
			for _, x := range s.open {
				if len(x.rows) > 0 && x.rows[0] < last {
					r.Fatalf("handed %d while %d may be committed", last, x.rows[0])
				}
			}
			for event := range s.committed {
				if event <= last && !handed[event] {
					r.Fatalf("%d was passed over: handed %d", event, slices.Sorted(maps.Keys(handed)))
				}
			}
			if !idle {
				held++
			}
			return idle
		}
		for range rapid.IntRange(1, 10).Draw(r, "steps") {
			for range rapid.IntRange(0, 4).Draw(r, "actions") {
				s.act(r)
			}
			clock = clock.Add(time.Duration(rapid.SampledFrom([]int{0, 2, 11, 25, 150}).Draw(r, "milliseconds")) * time.Millisecond)
			quiet = false
			pass()
			quiet = true
		}
		for len(s.open) > 0 {
			s.end(0, rapid.Bool().Draw(r, "whether to commit"))
		}
		for left := 60; !pass(); left-- {
			if left == 0 {
				r.Fatal("the reader does not come to the end though nobody writes")
			}
			clock = clock.Add(30 * time.Millisecond)
		}
		if !maps.Equal(handed, s.committed) {
			r.Fatalf("handed %d, committed %d", slices.Sorted(maps.Keys(handed)), slices.Sorted(maps.Keys(s.committed)))
		}
		settled += len(handed)
	})
	if held == 0 || settled == 0 {
		t.Errorf("nothing was held back (%d) or handed on (%d)", held, settled)
	}
}

// A writer that begins between the two looks of a grace period is not taken for one that has ended.
func TestOutboxSeesAWriterThatStartsBetweenLooks(t *testing.T) {
	f := fixture.NewCloned(t)
	clock, looks := fixture.Start, 0
	var open pgx.Tx
	var a int64
	steps, err := fixture.Outboxes(f.Engine).Stepper(t.Context(), outbox.Lease, func() time.Time { return clock }, func(statement string) error {
		if statement == "state" || statement == "writers" {
			if looks++; looks == 2 {
				open = f.BeginTx(t)
				a = insertLease(t, f, open)
				insertLeasesInto(t, f, 1)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	hole := f.BeginTx(t)
	insertLease(t, f, hole)
	rollBack(t, hole)
	insertLeasesInto(t, f, 1)
	for range 10 {
		if _, _, err := steps.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		clock = clock.Add(30 * time.Millisecond)
	}
	if a == 0 || steps.Low() >= a {
		t.Errorf("at %d, while %d is open", steps.Low(), a)
	}
	fixture.Commit(t, open)
}
