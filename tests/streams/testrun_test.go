package streams

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// runForTest runs a handler for a claimed execution in a transaction that is rolled back.
func runForTest(t *testing.T, handler func(ctx context.Context, tx pgx.Tx, job worker.Job[string]) error) {
	t.Helper()
	f := fixture.New(t)
	work := f.Start(t, func(s *engine.ExecutionSpec) { s.Payload = []byte(`"text"`) })
	tx, err := f.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	kind := engine.Kind[string, string]{Name: "write"}
	_, err = worker.RunForTest(t.Context(), f.Engine.WithTx(tx), kind, work, func(ctx context.Context, job worker.Job[string]) (string, error) {
		return "done", handler(ctx, tx, job)
	})
	if err != nil {
		t.Error(err)
	}
}

// The frames of a run for a test are appended only while its handler waits: the handler uses the same transaction.
func TestFramesOfARunForATestLeaveTheTransactionToItsHandler(t *testing.T) {
	runForTest(t, func(ctx context.Context, tx pgx.Tx, job worker.Job[string]) error {
		stored := func() (n int, err error) {
			err = tx.QueryRow(ctx, "SELECT count(*) FROM ff_stream_frame WHERE execution_id = $1", job.ID.UUID()).Scan(&n)
			return n, err
		}
		for n := range 300 {
			if err := counted.Write(ctx, job.Stream(), n); err != nil {
				return err
			}
			if got, err := stored(); got != 0 || err != nil {
				t.Fatalf("%d frames stored before the handler waits: %v", got, err)
			}
		}
		if err := job.Stream().Flush(ctx); err != nil {
			return err
		}
		if got, err := stored(); got != 300 || err != nil {
			t.Errorf("%d frames stored by the flush: %v", got, err)
		}
		return writeNumbers(ctx, job.Stream(), 0, 2*worker.MaxStreamFrames)
	})
}

// A run for a test may complete its execution in its own transaction, with the frames of its buffer.
func TestFramesOfARunForATestThatCompletes(t *testing.T) {
	runForTest(t, func(ctx context.Context, tx pgx.Tx, job worker.Job[string]) error {
		if err := writeNumbers(ctx, job.Stream(), 0, 3); err != nil {
			return err
		}
		return job.Complete(ctx, tx, "done")
	})
}
