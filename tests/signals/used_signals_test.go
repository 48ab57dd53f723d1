package signals

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// payload is a JSON text that does not compress.
func payload(size int) []byte {
	random := make([]byte, size/2-1)
	_, _ = rand.Read(random) // never fails
	return []byte(`"` + hex.EncodeToString(random) + `"`)
}

// askOnce lets an execution wait once more for "ready", sends that with a key of its own, and claims the execution again.
func askOnce(t *testing.T, f *fixture.Fixture, l engine.Lease, n, size int) engine.Lease {
	t.Helper()
	f.SuspendAgain(t, l, ready, func(s *engine.SuspendSpec) { s.Step, s.StepSeq = fmt.Sprint("signal ready#", n), n })
	got := f.Signal(t, l, "ready", func(s *engine.SignalSpec) { s.IdempotencyKey, s.Payload = fmt.Sprint(n), payload(size) })
	if got != "satisfied" {
		t.Fatalf("wait %d: %s", n, got)
	}
	return f.ClaimOne(t).Lease
}

// An execution that asks again and again keeps the answers in its steps alone, so the largest answers fill no limit. Their
// keys are remembered. W6
func TestUsedSignalsFillNoLimit(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	f.Exec(t, `UPDATE ff_exec_core SET policy = '{"max_signals_per_execution": 3}' WHERE execution_id = $1`, l.Execution.UUID())
	const waits = 170
	for n := range waits {
		l = askOnce(t, f, l, n, engine.MaxSignalPayload)
	}
	received, err := f.ReceivedSignals(t.Context(), l.Execution)
	if err != nil || len(received) != 1 || !received[0].Matched {
		t.Errorf("%d signals, %v", len(received), err)
	}
	steps, err := f.StepResults(t.Context(), l.Execution)
	if err != nil || len(steps) != waits {
		t.Fatal(len(steps), err)
	}
	for _, step := range steps {
		signals, err := step.Signals()
		if err != nil || len(signals) != 1 || len(signals[0].Payload) != engine.MaxSignalPayload {
			t.Fatalf("%s: %d signals, %v", step.Name, len(signals), err)
		}
	}
	f.SuspendAgain(t, l, ready)
	if got := f.Signal(t, l, "ready", func(s *engine.SignalSpec) { s.IdempotencyKey = "0" }); got != "duplicate" {
		t.Errorf("the first answer again: %s", got)
	}
	// The limit counts those that nothing has used.
	for _, want := range []bool{false, false, false, true} {
		_, err := f.Engine.Signal(t.Context(), engine.SignalSpec{Execution: l.Execution, Name: "other"})
		if errors.Is(err, fferr.ErrTooManySignals) != want {
			t.Errorf("one more: %v", err)
		}
	}
}

// walLog takes down statements that write, to have them explained.
type walLog struct {
	mu   sync.Mutex
	sent map[string][]any
}

func (l *walLog) note(sql string, args []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !strings.HasPrefix(sql, "EXPLAIN") && (strings.Contains(sql, "ffx_suspend(") || strings.Contains(sql, "ffx_deliver(")) {
		l.sent[sql] = args
	}
}

func (l *walLog) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	l.note(data.SQL, data.Args)
	return ctx
}

func (*walLog) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (*walLog) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (l *walLog) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	l.note(data.SQL, data.Args)
}

func (*walLog) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// written returns the bytes of WAL of the statements that an operation sends, without the images of whole pages that the
// first change after a checkpoint takes. Nothing is kept of the operation.
func (l *walLog) written(t *testing.T, f *fixture.Fixture, act func(*engine.Engine) error) (bytes int) {
	t.Helper()
	clear(l.sent)
	tx := f.BeginTx(t)
	if err := act(f.WithTx(tx)); err != nil {
		t.Fatal(err)
	}
	_ = tx.Rollback(t.Context())
	if len(l.sent) != 1 {
		t.Fatalf("%d statements", len(l.sent))
	}
	for sql, args := range l.sent {
		tx := f.BeginTx(t)
		var plan []byte
		if err := tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, WAL, FORMAT JSON) "+sql, args...).Scan(&plan); err != nil {
			t.Fatal(err)
		}
		_ = tx.Rollback(t.Context())
		var read []struct {
			Plan struct {
				Bytes  int `json:"WAL Bytes"`
				Images int `json:"WAL FPI"`
			}
		}
		if err := json.Unmarshal(plan, &read); err != nil {
			t.Fatal(err)
		}
		bytes += max(0, read[0].Plan.Bytes-8192*read[0].Plan.Images)
	}
	return bytes
}

// A wait of an execution that has waited often costs what an early one does, in bytes of WAL: its beginning, and the signal
// that ends it. W6
func TestWaitsCostTheSameHoweverMany(t *testing.T) {
	log := &walLog{sent: make(map[string][]any)}
	f := fixture.NewCloned(t)
	f.Pool = fixture.OpenPool(t, f.Url, func(c *pgxpool.Config) { c.ConnConfig.Tracer = log })
	f.Engine = f.EngineOn(t, f.Pool, engine.Config{})
	l := f.Start(t).Lease
	measure := func(n int) (suspended, signalled int) {
		suspended = log.written(t, f, func(eng *engine.Engine) error {
			_, err := eng.Suspend(t.Context(), engine.SuspendSpec{Lease: l, Condition: ready, Step: fmt.Sprint("m", n), StepSeq: n})
			return err
		})
		f.SuspendAgain(t, l, ready, func(s *engine.SuspendSpec) { s.Step, s.StepSeq = fmt.Sprint("m", n), n })
		spec := engine.SignalSpec{Execution: l.Execution, Name: "ready", IdempotencyKey: fmt.Sprint("m", n), Payload: payload(1000)}
		signalled = log.written(t, f, func(eng *engine.Engine) error {
			_, err := eng.Signal(t.Context(), spec)
			return err
		})
		if _, err := f.Engine.Signal(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		l = f.ClaimOne(t).Lease
		return suspended, signalled
	}
	most := soak.Size(t, 300, 9_990)
	var early, late [2]int
	for n := range most {
		switch {
		case n == 10:
			early[0], early[1] = measure(n)
		case n == most-1:
			late[0], late[1] = measure(n)
		default:
			l = askOnce(t, f, l, n, 1000)
		}
	}
	t.Logf("bytes of WAL to begin and to end wait 10: %d, wait %d: %d", early, most, late)
	for i := range early {
		if early[i] == 0 || late[i] > 2*early[i] {
			t.Errorf("wait 10 took %d bytes of WAL, wait %d %d", early, most, late)
		}
	}
}

// Signals count in the order of their arrival, also if the clock is set back in between: in a wait, for the next wait, for
// a turn, and as they are listed. W12
func TestSignalsArePlacedByArrival(t *testing.T) {
	names := func(signals []engine.ReceivedSignal) (names string) {
		for _, s := range signals {
			names += string(s.Payload)
		}
		return names
	}
	send := func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
		t.Helper()
		for i, text := range []string{"1", "2", "3", "4"} {
			f.Advance(-time.Hour)
			f.Signal(t, l, []string{"b", "a"}[i%2], func(s *engine.SignalSpec) { s.Payload = []byte(text) })
		}
	}
	both := engine.AllOf(engine.AtLeast(2, engine.DistinctSignals, "a"), engine.AtLeast(2, engine.DistinctSignals, "b"))
	step := func(s *engine.SuspendSpec) { s.Step, s.Timeout = "signal b, a", 1000*time.Hour }
	stored := func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
		t.Helper()
		steps, err := f.StepResults(t.Context(), l.Execution)
		if err != nil || len(steps) != 1 {
			t.Fatal(steps, err)
		}
		signals, err := steps[0].Signals()
		if got := names(signals); err != nil || got != "1234" {
			t.Errorf("the step has %s, %v", got, err)
		}
		received, err := f.ReceivedSignals(t.Context(), l.Execution)
		if got := names(received); err != nil || got != "1234" {
			t.Errorf("received %s, %v", got, err)
		}
	}
	t.Run("early", func(t *testing.T) {
		f := fixture.New(t)
		l := f.Start(t).Lease
		send(t, f, l)
		if got := f.SuspendAgain(t, l, both, step); !got.Satisfied {
			t.Fatal(got)
		}
		stored(t, f, l)
	})
	t.Run("in the wait", func(t *testing.T) {
		f := fixture.New(t)
		l := f.Suspend(t, both, step)
		send(t, f, l)
		stored(t, f, l)
	})
	t.Run("one after the other", func(t *testing.T) {
		f := fixture.New(t)
		l := f.Start(t).Lease
		send(t, f, l)
		for i, want := range []string{"1", "2", "3", "4"} {
			one := engine.Received([]string{"b", "a"}[i%2])
			name := fmt.Sprint("signal ", i)
			f.SuspendAgain(t, l, one, func(s *engine.SuspendSpec) { s.Step, s.StepSeq = name, i })
			steps, err := f.StepResults(t.Context(), l.Execution)
			if err != nil {
				t.Fatal(err)
			}
			signals, err := steps[i].Signals()
			if got := names(signals); err != nil || got != want {
				t.Errorf("wait %d got %q, %v", i, got, err)
			}
		}
	})
	t.Run("taken", func(t *testing.T) {
		f := fixture.New(t)
		l := f.Suspend(t, engine.AllOf(engine.Received("a"), engine.Received("c")), func(s *engine.SuspendSpec) { s.Timeout = 1000 * time.Hour })
		send(t, f, l) // "a" is received by the wait, "b" kept
		if err := f.Resume(t.Context(), l.Execution, 0); err != nil {
			t.Fatal(err)
		}
		l = f.ClaimOne(t).Lease
		f.Advance(-time.Hour)
		f.Signal(t, l, "a", func(s *engine.SignalSpec) { s.Payload = []byte("5") }) // kept
		var got string
		for range 3 {
			signal, ok, err := f.TakeSignal(t.Context(), l, "a")
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			got += string(signal.Payload)
		}
		if got != "245" {
			t.Errorf("took %s", got)
		}
	})
}

// One key is one signal at each isolation level: a transaction whose snapshot does not show the earlier signal is the
// server's to refuse, and finds the duplicate when it begins again. W7
func TestKeysOfSignalsAtEachIsolationLevel(t *testing.T) {
	ways := map[string]func(ctx context.Context, tx pgx.Tx, eng *engine.Engine, l engine.Lease) error{
		"Go, by key": func(ctx context.Context, _ pgx.Tx, eng *engine.Engine, l engine.Lease) error {
			return approved.Send(ctx, eng, l.Execution, approval{"ada"}, engine.Once("k"))
		},
		"SignalEach": func(ctx context.Context, _ pgx.Tx, eng *engine.Engine, l engine.Lease) error {
			outcomes, err := eng.SignalEach(ctx, []engine.SignalSpec{{Execution: l.Execution, Name: "approved", IdempotencyKey: "k"}})
			return errors.Join(err, outcomes[0].Err)
		},
		"SQL": func(ctx context.Context, tx pgx.Tx, _ *engine.Engine, l engine.Lease) error {
			_, err := tx.Exec(ctx, `SELECT ffx_signal($1, 'approved', '{}', 'k')`, l.Execution.String())
			return err
		},
	}
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		for way, send := range ways {
			for _, waits := range []bool{false, true} {
				t.Run(fmt.Sprint(level, ", ", way, ", waits ", waits), func(t *testing.T) {
					f := fixture.NewCloned(t) // serializable transactions conflict by pages
					l := f.Start(t).Lease
					if waits {
						f.SuspendAgain(t, l, engine.AtLeast(3, engine.DistinctSignals, "approved"))
					}
					begin := func() pgx.Tx {
						tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: level})
						fixture.ExecIn(t, tx, "SELECT FROM ff_exec_core LIMIT 1") // its snapshot
						return tx
					}
					tx := begin()
					if err := approved.Send(t.Context(), f.Engine, l.Execution, approval{"bob"}, engine.Once("k")); err != nil {
						t.Fatal(err)
					}
					err := send(t.Context(), tx, f.WithTx(tx), l)
					if level == pgx.ReadCommitted {
						if err != nil {
							t.Fatal(err)
						}
						fixture.Commit(t, tx)
					} else {
						if !errors.Is(err, fferr.ErrContention) && pgtx.SQLState(err) != "40001" {
							t.Fatalf("with an old snapshot: %v", err)
						}
						_ = tx.Rollback(t.Context())
						tx = begin()
						if err := send(t.Context(), tx, f.WithTx(tx), l); err != nil {
							t.Fatal(err)
						}
						fixture.Commit(t, tx)
					}
					if n := fixture.Texts(t, f.Pool, "SELECT signal_id FROM ff_signal_event WHERE execution_id = $1", l.Execution.UUID().String()); len(n) != 1 {
						t.Errorf("%d signals are kept", len(n))
					}
				})
			}
		}
	}
}

// A replay remembers the keys and ids of signals in the steps that it keeps, and forgets those of signals that it drops: a
// redelivery doesn't count for the next wait, and what was dropped can be sent again. W8
func TestReplayRemembersTheSignalsOfKeptSteps(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []operator.ReplayOption
		want    map[string]string
	}{
		{"all steps", nil, map[string]string{"1": "duplicate", "2": "duplicate", "taken": "duplicate", "kept": "buffered"}},
		{
			"from the second wait on", []operator.ReplayOption{operator.ReplayFromStep("signal ready#2")},
			map[string]string{"1": "duplicate", "2": "buffered", "taken": "buffered", "kept": "buffered"},
		},
		{
			"no steps", []operator.ReplayOption{operator.ReplayWithoutSteps},
			map[string]string{"1": "buffered", "2": "buffered", "taken": "buffered", "kept": "buffered"},
		},
	} {
		for _, byKey := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, ", by key ", byKey), func(t *testing.T) {
				f := fixture.New(t)
				l := f.Start(t).Lease
				var sent []engine.SignalSpec
				send := func(name string) {
					t.Helper()
					spec := engine.SignalSpec{Execution: l.Execution, Name: "ready", ID: id.NewSignalID()}
					if byKey {
						spec.ID, spec.IdempotencyKey = id.SignalID{}, name
					}
					spec.Source = name
					f.Signal(t, l, "ready", func(s *engine.SignalSpec) { *s = spec })
					sent = append(sent, spec)
				}
				for n, name := range []string{"1", "2"} {
					f.SuspendAgain(t, l, ready, func(s *engine.SuspendSpec) { s.Step, s.StepSeq = fmt.Sprint("signal ready#", n+1), n })
					send(name)
					l = f.ClaimOne(t).Lease
				}
				send("taken")
				tx := f.BeginTx(t)
				taken, ok, err := f.WithTx(tx).TakeSignal(t.Context(), l, "ready")
				if err != nil || !ok {
					t.Fatal(ok, err)
				}
				if _, err := f.WithTx(tx).RecordStep(t.Context(), engine.StepRecord{
					Lease: l, Name: "take", Seq: 2, Taken: []engine.ReceivedSignal{taken},
				}); err != nil {
					t.Fatal(err)
				}
				fixture.Commit(t, tx)
				send("kept")
				if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
					t.Fatal(err)
				}
				if _, err := operator.Replay(t.Context(), f.Engine, l.Execution, append(c.options, operator.ReplayCompleted)...); err != nil {
					t.Fatal(err)
				}
				got := make(map[string]string)
				for _, spec := range sent {
					got[spec.Source] = f.Signal(t, l, "ready", func(s *engine.SignalSpec) { *s = spec })
				}
				if !maps.Equal(got, c.want) {
					t.Errorf("sent again: %v, want %v", got, c.want)
				}
			})
		}
	}
}
