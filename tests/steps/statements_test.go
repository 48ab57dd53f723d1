package steps

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// stepLog logs statements. It can stop the first that stores steps.
type stepLog struct {
	fixture.StatementLog
	once    sync.Once
	reached chan bool
	release chan bool
}

func (l *stepLog) meet(sql string) {
	if l.reached != nil && strings.HasPrefix(sql, "-- name: RecordSteps ") {
		l.once.Do(func() {
			l.reached <- true
			<-l.release
		})
	}
}

func (l *stepLog) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	l.meet(data.SQL)
	return l.StatementLog.TraceQueryStart(ctx, conn, data)
}

func (l *stepLog) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		l.meet(q.SQL)
	}
	return l.StatementLog.TraceBatchStart(ctx, conn, data)
}

// during returns the statements about steps that work sends.
func (l *stepLog) during(work func()) []string {
	return slices.DeleteFunc(fixture.Names(l.During(work)), func(name string) bool { return !strings.Contains(name, "Step") })
}

// logged is a crew whose engine and worker write the log.
func (l *stepLog) crew(t *testing.T, f *fixture.Fixture) *fixture.Crew {
	t.Helper()
	f.Pool = fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = l })
	return fixture.CrewOn(t, f, engine.Config{})
}

// A first run reads no steps, and stores each by one statement. A later run reads them once.
func TestStatementsOfSteps(t *testing.T) {
	log := new(stepLog)
	c := log.crew(t, fixture.NewCloned(t))
	calls := counted{}
	failed := false
	c.Work(t, fixture.Alone, func(w *worker.Worker) {
		fixture.HandleKind(w, "order", func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
			for i := range 5 {
				if i == 3 && !failed {
					failed = true
					return 0, errors.New("halfway")
				}
				if _, err := step(ctx, job, calls, worker.Key("step", i)); err != nil {
					return 0, err
				}
			}
			return 5, nil
		})
	})
	got := log.during(func() {
		c.Create(t, retrying)
		wantSettlements(t, c, worker.Retrying, worker.Completed)
	})
	if want := []string{"RecordSteps", "RecordSteps", "RecordSteps", "ListSteps", "RecordSteps", "RecordSteps"}; !slices.Equal(got, want) {
		t.Errorf("statements %q, want %q", got, want)
	}
}

// Steps that end while others are being stored share the next statement. It is serial, since it counts goroutines.
func TestStepsShareAStatement(t *testing.T) {
	const shared = 10
	log := &stepLog{reached: make(chan bool), release: make(chan bool)}
	c := log.crew(t, fixture.Clone(t))
	began := make(chan bool, shared)
	c.Work(t, fixture.Alone, func(w *worker.Worker) {
		fixture.HandleKind(w, "order", func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
			return worker.Step(ctx, job, "step", func(context.Context) (int, error) {
				began <- true
				return 1, nil
			})
		})
	})
	got := log.during(func() {
		c.Create(t, retrying)
		fixture.Received(t, log.reached)
		for range shared {
			c.Create(t, retrying)
		}
		for range shared + 1 {
			fixture.Received(t, began)
		}
		fixture.Await(t, fmt.Sprintf("%d steps to wait", shared), func() bool { return waitingSteps() == shared+1 })
		log.release <- true
		wantSettlements(t, c, slices.Repeat([]worker.Settlement{worker.Completed}, shared+1)...)
	})
	if want := []string{"RecordSteps", "RecordSteps"}; !slices.Equal(got, want) {
		t.Errorf("statements %q, want %q", got, want)
	}
}

// waitingSteps counts the goroutines that wait for their steps to be stored.
func waitingSteps() int {
	stacks := make([]byte, 16<<20)
	waiting := 0
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		state, frames, _ := strings.Cut(stack, "\n")
		if strings.Contains(state, "[select") && strings.Contains(frames, "worker.(*recorder).record(") {
			waiting++
		}
	}
	return waiting
}
