package signals

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func from(source string) func(*engine.SignalSpec) {
	return func(s *engine.SignalSpec) { s.SourceType, s.Source = "user", source }
}

func carrying(payload string) func(*engine.SignalSpec) {
	return func(s *engine.SignalSpec) { s.Payload = []byte(payload) }
}

// Each condition, with signals in an order and their effects.
func TestConditions(t *testing.T) {
	type sent struct {
		name   string
		change func(*engine.SignalSpec)
		effect string
	}
	plain := func(name, effect string) sent { return sent{name, func(*engine.SignalSpec) {}, effect} }
	for _, c := range []struct {
		name      string
		condition engine.Condition
		signals   []sent
	}{
		{"one", ready, []sent{plain("other", "buffered"), plain("ready", "satisfied"), plain("ready", "buffered")}},
		{"any name", engine.AnySignal("k"), []sent{plain("whatever", "satisfied")}},
		{"all", engine.AllOf(ready, engine.Received("paid")), []sent{plain("paid", "appended"), plain("paid", "appended"), plain("ready", "satisfied")}},
		{"any", engine.AnyOf(ready, engine.Received("paid")), []sent{plain("paid", "satisfied"), plain("ready", "buffered")}},
		{
			"any of all", engine.AnyOf(engine.AllOf(ready, engine.Received("a")), engine.AllOf(ready, engine.Received("b"))),
			[]sent{plain("a", "appended"), plain("b", "appended"), plain("ready", "satisfied")},
		},
		{
			"two sources", engine.AtLeast(2, engine.DistinctSources, "ready"),
			[]sent{{"ready", from("ada"), "appended"}, {"ready", from("ada"), "appended"}, {"ready", from("bob"), "satisfied"}},
		},
		{"two signals", engine.AtLeast(2, engine.DistinctSignals, "ready"), []sent{{"ready", from("ada"), "appended"}, {"ready", from("ada"), "satisfied"}}},
		{"a predicate", ready.Where("$.amount > 100"), []sent{
			{"ready", carrying(`{"amount": 100}`), "appended"},
			{"ready", carrying(`{"amount": "x"}`), "appended"},
			{"ready", carrying(`no JSON`), "appended"},
			plain("ready", "appended"),
			{"ready", carrying("\xff"), "appended"},
			{"ready", carrying(`{"amount": 101}`), "satisfied"},
		}},
		{"a filter", ready.Where("$.amount ? (@ > 100)"), []sent{
			{"ready", carrying(`{"amount": 100}`), "appended"},
			{"ready", carrying(`{"amount": "x"}`), "appended"},
			{"ready", carrying(`{}`), "appended"},
			{"ready", carrying(`{"amount": 101}`), "satisfied"},
		}},
		{"a filter with several results", ready.Where("$.items[*] ? (@ > 1)"), []sent{{"ready", carrying(`{"items": [1, 2, 3]}`), "satisfied"}}},
		{"a path", ready.Where("$.note"), []sent{{"ready", carrying(`{}`), "appended"}, {"ready", carrying(`{"note": "x"}`), "satisfied"}}},
		{"a path to a boolean", ready.Where("$.paid"), []sent{
			{"ready", carrying(`{"paid": false}`), "appended"}, {"ready", carrying(`{"paid": true}`), "satisfied"},
		}},
		{"a path that fails", ready.Where("strict $.a.b.double() > 1"), []sent{
			{"ready", carrying(`{"a": 1}`), "appended"}, {"ready", carrying(`{"a": {"b": 2}}`), "satisfied"},
		}},
		{"times of two kinds", ready.Where(`$.at.datetime() < "2026-01-01T00:00:00+00".datetime()`), []sent{
			{"ready", carrying(`{"at": "soon"}`), "appended"}, {"ready", carrying(`{"at": "2025-12-01"}`), "satisfied"},
		}},
		{
			"a predicate for each", engine.AllOf(ready.Where(`$ == "a"`), engine.Received("ready").Where(`$ == "b"`)),
			[]sent{{"ready", carrying(`"b"`), "appended"}, {"ready", carrying(`"a"`), "satisfied"}},
		},
		{"an operator", engine.OperatorOnly(), []sent{plain("ready", "buffered")}},
		{"the timeout", engine.TimeoutOnly(), []sent{plain("ready", "buffered")}},
	} {
		// Early signals have the same effect together as late ones.
		for _, early := range []int{0, 1, len(c.signals)} {
			t.Run(fmt.Sprint(c.name, ", ", early, " early"), func(t *testing.T) {
				f := fixture.New(t)
				l := f.Start(t).Lease
				satisfied := false
				for _, s := range c.signals[:early] {
					if got := f.Signal(t, l, s.name, s.change); got != "buffered" {
						t.Errorf("early: %s", got)
					}
					satisfied = satisfied || s.effect == "satisfied"
				}
				if got := f.SuspendAgain(t, l, c.condition); got.Satisfied != satisfied {
					t.Fatalf("satisfied %v", got.Satisfied)
				}
				if satisfied {
					f.WantState(t, l.Execution, fixture.StateRunning)
					return
				}
				for i, s := range c.signals[early:] {
					if got := f.Signal(t, l, s.name, s.change); got != s.effect {
						t.Errorf("signal %d (%s): %s, want %s", early+i, s.name, got, s.effect)
					}
				}
			})
		}
	}
}

// A signal is one signal, however often it is sent: before, during and after its wait.
func TestSignalRepeated_S12_S13(t *testing.T) {
	for name, key := range map[string]func(*engine.SignalSpec){
		"by id":  func(s *engine.SignalSpec) { s.ID = id.SignalID{1: 7, 15: 1} },
		"by key": func(s *engine.SignalSpec) { s.IdempotencyKey = "evt_1" },
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			l := f.Start(t).Lease
			for _, want := range []string{"buffered", "duplicate"} {
				if got := f.Signal(t, l, "ready", key); got != want {
					t.Errorf("before the wait: %s", got)
				}
			}
			f.SuspendAgain(t, l, engine.AtLeast(2, engine.DistinctSignals, "ready"))
			for _, want := range []string{"duplicate", "duplicate"} {
				if got := f.Signal(t, l, "ready", key); got != want {
					t.Errorf("during the wait: %s", got)
				}
			}
			if got := f.Signal(t, l, "ready"); got != "satisfied" {
				t.Error(got)
			}
			if got := f.Signal(t, l, "ready", key); got != "duplicate" {
				t.Errorf("after the wait: %s", got)
			}
			again := f.ClaimOne(t)
			if err := f.CompleteExecution(t.Context(), again.Lease, nil); err != nil {
				t.Fatal(err)
			}
			if got := f.Signal(t, l, "ready", key); got != "duplicate" {
				t.Errorf("after the end: %s", got)
			}
			if n := rows(t, f, "ff_signal_event"); n != 2 {
				t.Errorf("%d events", n)
			}
		})
	}
	f := fixture.NewCloned(t)
	l := f.Suspend(t, engine.AtLeast(3, engine.DistinctSignals, "ready"))
	key := func(s *engine.SignalSpec) { s.IdempotencyKey, s.DedupFor = "evt_1", time.Minute }
	for _, want := range []string{"appended", "duplicate"} {
		if got := f.Signal(t, l, "ready", key); got != want {
			t.Error(got)
		}
	}
	f.Advance(time.Minute)
	if got := f.Signal(t, l, "ready", key); got != "appended" {
		t.Errorf("after the key's time: %s", got)
	}
	// A key belongs to its name.
	if got := f.Signal(t, l, "other", func(s *engine.SignalSpec) { s.IdempotencyKey = "evt_1" }); got != "buffered" {
		t.Error(got)
	}
}

// Signals sent at once: each is accepted, and one of them satisfies.
func TestSignalsAtOnce_S14(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Suspend(t, engine.AtLeast(8, engine.DistinctSignals, "ready"))
	const senders = 16
	waits := make([]func() string, senders)
	for i := range waits {
		waits[i] = fixture.Async(t, func(ctx context.Context) string {
			signalled, err := f.Engine.Signal(ctx, engine.SignalSpec{Execution: l.Execution, Name: "ready"})
			return fmt.Sprint(signalled.Effect, err)
		})
	}
	effects := make(map[string]int)
	for _, wait := range waits {
		effects[wait()]++
	}
	if effects["appended<nil>"] != 7 || effects["satisfied<nil>"] != 1 || effects["buffered<nil>"] != 8 {
		t.Errorf("%v", effects)
	}
	f.WantEvents(t, l.Execution, "lease acquired", "lease revoked backend", "completion resumable")
}

// A signal that waited for a lock acts on the rows committed before it got the lock.
func TestSignalAfterALock(t *testing.T) {
	for name, c := range map[string]struct {
		beside func(ctx context.Context, eng *engine.Engine, l engine.Lease) error
		want   string
	}{
		"another signal": {func(ctx context.Context, eng *engine.Engine, l engine.Lease) error {
			_, err := eng.Signal(ctx, engine.SignalSpec{Execution: l.Execution, Name: "paid"})
			return err
		}, "satisfied<nil>"},
		"a resume": {func(ctx context.Context, eng *engine.Engine, l engine.Lease) error {
			return eng.Resume(ctx, l.Execution, 0)
		}, "buffered<nil>"},
		"a cancel": {func(ctx context.Context, eng *engine.Engine, l engine.Lease) error {
			return eng.CancelExecution(ctx, engine.CancelSpec{ID: l.Execution})
		}, "ended"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			l := f.Suspend(t, engine.AllOf(ready, engine.Received("paid")))
			tx := f.BeginTx(t)
			if err := c.beside(t.Context(), f.WithTx(tx), l); err != nil {
				t.Fatal(err)
			}
			rival := f.Rival(t)
			wait := fixture.Async(t, func(ctx context.Context) string {
				signalled, err := rival.Signal(ctx, engine.SignalSpec{Execution: l.Execution, Name: "ready"})
				if errors.Is(err, fferr.ErrEnded) {
					return "ended"
				}
				return fmt.Sprint(signalled.Effect, err)
			})
			rival.AwaitBlocked(t, f)
			fixture.Commit(t, tx)
			if got := wait(); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestSignalIsChecked(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	for field, change := range map[string]func(*engine.SignalSpec){
		"name":            func(s *engine.SignalSpec) { s.Name = "" },
		"name ":           func(s *engine.SignalSpec) { s.Name = strings.Repeat("n", 257) },
		"payload":         func(s *engine.SignalSpec) { s.Payload = make([]byte, engine.MaxSignalPayload+1) },
		"dedup for":       func(s *engine.SignalSpec) { s.DedupFor = -1 },
		"source":          func(s *engine.SignalSpec) { s.Source = strings.Repeat("s", 1025) },
		"source type":     func(s *engine.SignalSpec) { s.SourceType = "\x00" },
		"category":        func(s *engine.SignalSpec) { s.Category = "\xff" },
		"correlation id":  func(s *engine.SignalSpec) { s.CorrelationID = strings.Repeat("s", 1025) },
		"idempotency key": func(s *engine.SignalSpec) { s.IdempotencyKey = strings.Repeat("k", 257) },
	} {
		spec := engine.SignalSpec{Execution: l.Execution, Name: "ready"}
		change(&spec)
		_, err := f.Engine.Signal(t.Context(), spec)
		fixture.WantInputError(t, err, strings.TrimSpace(field))
	}
	if got := f.Signal(t, l, "ready", func(s *engine.SignalSpec) { s.Payload = make([]byte, engine.MaxSignalPayload) }); got != "buffered" {
		t.Error(got)
	}
	_, err := f.Engine.Signal(t.Context(), engine.SignalSpec{Execution: f.NewExecutionID(l.Lane), Name: "ready"})
	if !errors.Is(err, fferr.ErrNotFound) {
		t.Error(err)
	}
}

// An execution holds a bounded number and size of signals.
func TestSignalsAreBounded_S12(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Start(t).Lease
	f.SetExecution(t, l.Execution, `policy = '{"max_signals_per_execution": 3}'`)
	send := func(name string) error {
		_, err := f.Engine.Signal(t.Context(), engine.SignalSpec{Execution: l.Execution, Name: name})
		return err
	}
	for _, name := range []string{"a", "b"} {
		if err := send(name); err != nil {
			t.Fatal(err)
		}
	}
	f.SuspendAgain(t, l, engine.AllOf(engine.Received("a"), engine.Received("c")))
	if err := errors.Join(send("a")); err != nil {
		t.Fatal(err)
	}
	if err := send("c"); !errors.Is(err, fferr.ErrTooManySignals) {
		t.Error(err)
	}
	f.SetExecution(t, l.Execution, "policy = NULL")
	large := func(s *engine.SignalSpec) { s.Payload = bytes.Repeat([]byte{7}, engine.MaxSignalPayload) }
	var err error
	for n := 0; err == nil; n++ {
		if n > 8 {
			t.Fatal("more than 1 MiB is kept")
		}
		spec := engine.SignalSpec{Execution: l.Execution, Name: "kept"}
		large(&spec)
		_, err = f.Engine.Signal(t.Context(), spec)
	}
	if !errors.Is(err, fferr.ErrTooManySignals) {
		t.Error(err)
	}
	if err := send("c"); err != nil {
		t.Error(err)
	}
	f.WantState(t, l.Execution, fixture.StateResumable)
}

// In the caller's transaction a signal is the transaction's, and a refused one leaves it usable.
func TestSignalInTheCallersTransaction(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Suspend(t, ready)
	tx := f.BeginTx(t)
	if _, err := f.WithTx(tx).Signal(t.Context(), engine.SignalSpec{Execution: f.NewExecutionID(l.Lane), Name: "ready"}); !errors.Is(err, fferr.ErrNotFound) {
		t.Fatal(err)
	}
	if _, err := f.WithTx(tx).Signal(t.Context(), engine.SignalSpec{Execution: l.Execution, Name: "ready"}); err != nil {
		t.Fatal(err)
	}
	f.WantState(t, l.Execution, fixture.StateSuspended)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.WantState(t, l.Execution, fixture.StateSuspended)
	tx = f.BeginTx(t)
	if _, err := f.WithTx(tx).Signal(t.Context(), engine.SignalSpec{Execution: l.Execution, Name: "ready"}); err != nil {
		t.Fatal(err)
	}
	fixture.Commit(t, tx)
	f.WantState(t, l.Execution, fixture.StateResumable)
}
