package streams

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

type writeJob = worker.Job[int] // the number of frames

var counted = stream.Frame[int]{Type: "number"}

// writeNumbers writes frames with the numbers from first to last-1.
func writeNumbers(ctx context.Context, w stream.FrameWriter, first, last int) error {
	for n := first; n < last; n++ {
		if err := counted.Write(ctx, w, n); err != nil {
			return err
		}
	}
	return nil
}

// readNumbers returns the numbers in the stream of an attempt, by the leases that wrote them, in order.
func readNumbers(t *testing.T, eng *engine.Engine, x id.ExecutionID, attempt int) (leases [][]int) {
	t.Helper()
	page, err := stream.Read(t.Context(), eng, x, stream.Range{Attempt: attempt, Limit: stream.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	epoch := int64(0)
	for i, f := range page.Frames {
		n, ok, err := counted.Decode(f)
		if err != nil || !ok || f.Number != int64(i+1) {
			t.Fatalf("frame %d: %+v: %v", i, f, err)
		}
		if f.Epoch != epoch {
			leases, epoch = append(leases, nil), f.Epoch
		}
		leases[len(leases)-1] = append(leases[len(leases)-1], n)
	}
	return leases
}

// wantNumbers fails the test unless numbers are 0 to n-1.
func wantNumbers(t *testing.T, numbers []int, n int) {
	t.Helper()
	for i, number := range numbers {
		if number != i {
			t.Fatalf("frame %d has the number %d", i, number)
		}
	}
	if len(numbers) != n {
		t.Fatalf("%d frames, want %d", len(numbers), n)
	}
}

func createWriter(t *testing.T, f *fixture.Fixture, n int) id.ExecutionID {
	t.Helper()
	return f.Create(t, func(s *engine.ExecutionSpec) { s.Kind, s.Payload = "write", []byte(strconv.Itoa(n)) })
}

func wantOnly(t *testing.T, eng *engine.Engine, x id.ExecutionID, n int) {
	t.Helper()
	leases := readNumbers(t, eng, x, 0)
	if len(leases) != 1 {
		t.Fatalf("frames of %d leases", len(leases))
	}
	wantNumbers(t, leases[0], n)
}

func TestWorkerStoresTheFramesOfManyHandlers(t *testing.T) {
	c := fixture.NewCrew(t)
	c.Work(t, worker.Config{}, func(w *worker.Worker) {
		fixture.HandleKind(w, "write", func(ctx context.Context, job writeJob) (string, error) {
			return "done", writeNumbers(ctx, job.Stream(), 0, job.Args)
		})
	})
	sizes := make(map[id.ExecutionID]int)
	for i := range 20 {
		n := 10 * (i + 1)
		if i == 0 {
			n = 5_000
		}
		sizes[createWriter(t, c.Fixture, n)] = n
	}
	for _, s := range c.Next(t, len(sizes)) {
		if s.Settlement != worker.Completed {
			t.Fatalf("settled as %+v", s)
		}
		wantOnly(t, c.Eng, s.ID, sizes[s.ID])
	}
}

// Connections that end before or after appends of frames neither double nor lose one.
func TestFramesSurviveCutConnections(t *testing.T) {
	var appends atomic.Int64
	f := fixture.NewCloned(t)
	pool := fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // the text of each statement is sent
		config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return &cutConn{Conn: conn, appends: &appends}, err
		}
	})
	c := fixture.CrewOn(t, fixture.On(t, pool, f.Url), engine.Config{})
	c.Work(t, worker.Config{}, func(w *worker.Worker) {
		fixture.HandleKind(w, "write", func(ctx context.Context, job writeJob) (string, error) {
			for n := 0; n < job.Args; n += 50 {
				if err := writeNumbers(ctx, job.Stream(), n, n+50); err != nil {
					return "", err
				}
				if err := job.Stream().Flush(ctx); err != nil {
					return "", err
				}
			}
			return "done", nil
		})
	})
	x := createWriter(t, c.Fixture, 1_000)
	if s := c.Next(t, 1)[0]; s.Settlement != worker.Completed {
		t.Fatalf("settled as %+v", s)
	}
	wantOnly(t, f.Engine, x, 1_000)
	if appends.Load() < 25 {
		t.Errorf("only %d appends, so none was cut", appends.Load())
	}
}

// cutConn is a connection that ends at some appends: every third is not sent, and of every third the answer is lost.
type cutConn struct {
	net.Conn
	appends *atomic.Int64
	deaf    atomic.Bool
}

var errCut = errors.New("the connection is cut")

func (c *cutConn) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("-- name: AppendFrames")) || bytes.Contains(p, []byte("INSERT INTO ff_stream_frame")) {
		switch c.appends.Add(1) % 3 {
		case 0:
			_ = c.Close()
			return 0, errCut
		case 1:
			c.deaf.Store(true)
		}
	}
	return c.Conn.Write(p)
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p) // the answer has come, so the append has taken effect
	if n > 0 && c.deaf.Load() {
		_ = c.Close()
		return 0, errCut
	}
	return n, err
}

// The frames of a turn are stored with it, behind those that the stream had in its buffer.
func TestFramesOfATurn(t *testing.T) {
	for _, end := range []string{"goes on", "completes", "fails", "loses its answer", "loses its commit", "completes, and loses its answer"} {
		t.Run(end, func(t *testing.T) {
			f := fixture.NewCloned(t)
			c := fixture.CrewOn(t, fixture.On(t, fixture.OpenPool(t, f.Url, fixture.Lossy), f.Url), engine.Config{})
			var calls atomic.Int64
			failure := errors.New("the turn fails")
			c.Work(t, worker.Config{}, func(w *worker.Worker) {
				fixture.HandleKind(w, "write", func(ctx context.Context, job writeJob) (string, error) {
					if err := writeNumbers(ctx, job.Stream(), 0, 10); err != nil {
						return "", err
					}
					err := worker.Turn(ctx, job, "turn", func(ctx context.Context, tx pgx.Tx, turn *worker.TurnTx) error {
						first := 10
						if end == "fails" {
							first = 1_000
						}
						if err := writeNumbers(ctx, turn, first, first+10); err != nil {
							return err
						}
						switch end {
						case "completes, and loses its answer":
							if calls.Add(1) == 1 {
								fixture.Lose(tx, fixture.LosesAnswer)
							}
							return turn.Complete("done")
						case "completes":
							return turn.Complete("done")
						case "fails":
							return failure
						case "loses its answer", "loses its commit":
							if calls.Add(1) == 1 {
								fixture.Lose(tx, map[string]fixture.Loss{
									"loses its answer": fixture.LosesAnswer, "loses its commit": fixture.LosesCommit,
								}[end])
							}
						}
						return nil
					})
					switch {
					case end == "fails" && errors.Is(err, failure):
						return "done", writeNumbers(ctx, job.Stream(), 10, 20)
					case err != nil || strings.HasPrefix(end, "completes"):
						return "", err
					}
					return "done", writeNumbers(ctx, job.Stream(), 20, 30)
				})
			})
			x := createWriter(t, c.Fixture, 0)
			if s := c.Next(t, 1)[0]; s.Settlement != worker.Completed {
				t.Fatalf("settled as %+v", s)
			}
			want := 30
			if strings.HasPrefix(end, "completes") || end == "fails" {
				want = 20
			}
			wantOnly(t, f.Engine, x, want)
		})
	}
}

// A handler that completes its execution in its own transaction stores the frames of its buffer there.
func TestFramesOfACompletionInTheHandlersTransaction(t *testing.T) {
	c := fixture.NewCrew(t)
	c.Work(t, worker.Config{}, func(w *worker.Worker) {
		fixture.HandleKind(w, "write", func(ctx context.Context, job writeJob) (string, error) {
			return "done", c.Eng.InTx(ctx, func(tx pgx.Tx, _ *engine.Engine) error {
				// The worker can't append beside the transaction, which holds the attempt.
				if _, err := tx.Exec(ctx, "SELECT FROM ff_attempt WHERE execution_id = $1 FOR UPDATE", job.ID.UUID()); err != nil {
					return err
				}
				if err := writeNumbers(ctx, job.Stream(), 0, job.Args); err != nil {
					return err
				}
				return job.Complete(ctx, tx, "done")
			})
		})
	})
	x := createWriter(t, c.Fixture, 100)
	if s := c.Next(t, 1)[0]; s.Settlement != worker.Completed {
		t.Fatalf("settled as %+v", s)
	}
	wantOnly(t, c.Eng, x, 100)
}

// A replay continues the stream of the attempt that had ended, so its worker counts the frames that are there.
func TestWorkerContinuesTheStreamOfAReplay(t *testing.T) {
	c := fixture.NewCrew(t)
	c.Work(t, worker.Config{}, func(w *worker.Worker) {
		fixture.HandleKind(w, "write", func(ctx context.Context, job writeJob) (string, error) {
			err := writeNumbers(ctx, job.Stream(), 0, job.Args)
			return "done", cmp.Or(err, job.Stream().Flush(ctx))
		})
	})
	x := createWriter(t, c.Fixture, 10)
	for life := range 2 {
		if s := c.Next(t, 1)[0]; s.Settlement != worker.Completed {
			t.Fatalf("settled as %+v", s)
		}
		leases := readNumbers(t, c.Eng, x, 0)
		if len(leases) != life+1 {
			t.Fatalf("frames of %d leases, want %d", len(leases), life+1)
		}
		wantNumbers(t, leases[life], 10)
		if life > 0 {
			break
		}
		if _, err := operator.Replay(t.Context(), c.Eng, x, operator.ReplayCompleted); err != nil {
			t.Fatal(err)
		}
	}
}

// A frame of the buffer that the server refuses is left out by a turn, and reported by the next flush.
func TestTurnLeavesOutARefusedFrameOfTheBuffer(t *testing.T) {
	c := fixture.NewCrew(t)
	c.Work(t, worker.Config{}, func(w *worker.Worker) {
		fixture.HandleKind(w, "write", func(ctx context.Context, job writeJob) (string, error) {
			err := worker.Turn(ctx, job, "turn", func(ctx context.Context, tx pgx.Tx, turn *worker.TurnTx) error {
				// The worker can't append beside the transaction, which holds the attempt.
				if _, err := tx.Exec(ctx, "SELECT FROM ff_attempt WHERE execution_id = $1 FOR UPDATE", job.ID.UUID()); err != nil {
					return err
				}
				refused := job.Stream().WriteFrame(ctx, stream.FrameSpec{Payload: []byte(`{"a":"\u0000"}`), Mode: stream.Summary})
				return errors.Join(writeNumbers(ctx, job.Stream(), 0, 5), refused,
					writeNumbers(ctx, job.Stream(), 5, 10), writeNumbers(ctx, turn, 10, 12))
			})
			if err != nil {
				return "", err
			}
			if err := job.Stream().Flush(ctx); !errors.Is(err, fferr.ErrInvalidInput) {
				t.Errorf("the flush returned %v", err)
			}
			return "done", nil
		})
	})
	x := createWriter(t, c.Fixture, 0)
	if s := c.Next(t, 1)[0]; s.Settlement != worker.Completed {
		t.Fatalf("settled as %+v", s)
	}
	wantOnly(t, c.Eng, x, 12)
}
