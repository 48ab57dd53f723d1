package streams

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

var asWorker = flag.Bool("streams.worker", false, "be a worker that a test kills, with orders on its standard input")

// orders are the parameters of a worker process, as JSON.
type orders struct {
	DatabaseURL string
	DirectURL   string // of the same database, for notes of what was flushed
	Lane        id.LaneID
	Words       bool // write the words that follow on the standard input
}

const (
	flushes    = 12
	eachFlush  = 25
	killStride = 9 // between the moments at which a process is killed
)

// beWorker runs a worker until it has completed an execution, and notes each flush of its handler.
func beWorker(input io.Reader) error {
	var given orders
	words := json.NewDecoder(input)
	if err := words.Decode(&given); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pool, err := pgxpool.New(ctx, given.DatabaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	if given.Words {
		return runWordWriter(ctx, pool, given.Lane, words)
	}
	notes, err := pgxpool.New(ctx, given.DirectURL)
	if err != nil {
		return err
	}
	defer notes.Close()
	return runWriter(ctx, pool, given.Lane, func(ctx context.Context, x id.ExecutionID, n int) error {
		_, err := notes.Exec(ctx, "INSERT INTO flushed VALUES ($1, $2)", x.UUID().String(), n)
		return err
	})
}

// runWriter runs a worker until it has completed an execution.
func runWriter(ctx context.Context, pool *pgxpool.Pool, lane id.LaneID, note func(context.Context, id.ExecutionID, int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		return err
	}
	w, err := worker.New(eng, worker.Config{
		Lanes: []worker.Lane{{Name: lane}}, NoReconcile: true, SharePool: true, Log: slog.New(slog.DiscardHandler),
		Observer: onReport(func(worker.Report) { cancel() }),
	})
	if err != nil {
		return err
	}
	fixture.HandleKind(w, "write", func(ctx context.Context, job writeJob) (string, error) {
		for n := 0; n < flushes*eachFlush; n += eachFlush {
			if err := writeNumbers(ctx, job.Stream(), n, n+eachFlush); err != nil {
				return "", err
			}
			if err := job.Stream().Flush(ctx); err != nil {
				return "", err
			}
			if err := note(ctx, job.ID, n+eachFlush); err != nil {
				return "", err
			}
		}
		return "done", nil
	})
	return w.Run(ctx)
}

// onReport is called for each report.
type onReport func(worker.Report)

func (f onReport) BeginRun(ctx context.Context, _ *engine.Claimed) (context.Context, func(worker.Report)) {
	return ctx, f
}

func (onReport) BeginPart(ctx context.Context, _ worker.Part) (context.Context, func(worker.PartReport)) {
	return ctx, nil
}

// A worker killed between any two of its round trips loses no frame that a flush has acknowledged, and the next one's
// frames are apart from its own.
func TestFramesOfAKilledWorker(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Exec(t, "CREATE TABLE flushed (execution uuid NOT NULL, frames integer NOT NULL)")
	moment, killed := 1, true
	for ; killed && !t.Failed(); moment += killStride {
		killed = writeKilled(t, f, moment)
	}
	if moment < 60 {
		t.Errorf("there were about %d moments", moment)
	}
}

// writeKilled lets a process write that is killed at a moment, and another worker write again. It reports whether there was
// such a moment.
func writeKilled(t *testing.T, on *fixture.Fixture, moment int) bool {
	t.Helper()
	f := fixture.On(t, on.Pool, on.Url)
	x := createWriter(t, f, flushes*eachFlush)
	killed := fixture.RunCut(t, f.Url, "-streams.worker", moment, func(url string) any { return orders{DatabaseURL: url, DirectURL: f.Url, Lane: f.Lane} })
	flushed, _ := strconv.Atoi(fixture.Texts(t, f.Pool, "SELECT coalesce(max(frames), 0)::text FROM flushed WHERE execution = $1", x.UUID().String())[0])
	f.Advance(2 * worker.DefaultLeaseTTL)
	if _, err := upkeep.Of(f.Engine).ExpireLeases(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	if f.Stored(t, x).State != fixture.StateCompleted {
		err := runWriter(t.Context(), f.Pool, f.Lane, func(context.Context, id.ExecutionID, int) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	var leases [][]int
	for attempt := range f.StoredAttempts(t, x) {
		leases = append(leases, readNumbers(t, f.Engine, x, attempt)...)
	}
	for i, numbers := range leases {
		if i == len(leases)-1 {
			wantNumbers(t, numbers, flushes*eachFlush)
		} else {
			wantNumbers(t, numbers, len(numbers))
		}
	}
	if len(leases) == 0 || len(leases[0]) < flushed || len(leases) > 2 {
		t.Errorf("moment %d: %d frames were flushed, and there are %d leases with frames", moment, flushed, len(leases))
	}
	return killed
}
