//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/worker"
)

var asWorker = flag.Bool("chaos.worker", false, "be a worker process, told by its standard input")

// TestMain makes the test binary a worker or a consumer process when the test starts it as one.
func TestMain(m *testing.M) {
	flag.Parse()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // otherwise workers log the disturbances of the tests
	if *asStreamWriter {
		if err := runStreamWriter(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if *asConsumer {
		if err := runConsumer(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if !*asWorker {
		os.Exit(m.Run())
	}
	if err := runWorker(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// orders are the parameters of a worker process, as JSON. The end of its input makes it finish.
type orders struct {
	DatabaseURL string
	Lane        id.LaneID
	Instance    id.WorkerInstanceID
}

// The output of a worker process: a line for each handler that begins, and one for each outcome that was not
// accepted, because the lease was lost.
const (
	startedLine = "started"
	refusedLine = "refused"
)

const leaseTTL = time.Second

// result is the result of every handler: the worker and the fence.
type result struct {
	Instance id.WorkerInstanceID `json:"instance"`
	Attempt  int                 `json:"attempt"`
	Epoch    int64               `json:"epoch"`
	Sum      int                 `json:"sum,omitempty"`
}

func resultOf(l engine.Lease) result {
	return result{Instance: l.Instance, Attempt: l.Attempt, Epoch: l.Epoch}
}

func kindOf(name string) engine.Kind[struct{}, result] {
	return engine.Kind[struct{}, result]{Name: name}
}

func runWorker(input io.Reader, output io.Writer) error {
	decoder := json.NewDecoder(input)
	var given orders
	if err := decoder.Decode(&given); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(given.DatabaseURL)
	if err != nil {
		return err
	}
	config.MaxConns = 5
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		return err
	}
	r := &reporter{out: output}
	w, err := worker.New(eng, worker.Config{
		Lanes:       []worker.Lane{{Name: given.Lane}},
		Instance:    given.Instance,
		Concurrency: 16,
		LeaseTTL:    leaseTTL,
		Observer:    r,
	})
	if err != nil {
		return err
	}
	worker.Handle(w, kindOf("plain"), func(_ context.Context, job worker.Job[struct{}]) (result, error) {
		labour()
		return resultOf(job.Lease), nil
	})
	worker.Handle(w, kindOf("flaky"), func(_ context.Context, job worker.Job[struct{}]) (result, error) {
		labour()
		if job.Lease.Attempt == 0 {
			return result{}, errors.New("the first attempt fails")
		}
		return resultOf(job.Lease), nil
	})
	// Fails, until an operator replays it.
	worker.Handle(w, kindOf("doomed"), func(_ context.Context, job worker.Job[struct{}]) (result, error) {
		labour()
		if job.Type != state.ReplayAttempt {
			return result{}, worker.Permanent(errors.New("as it was meant to"))
		}
		return resultOf(job.Lease), nil
	})
	worker.Handle(w, kindOf("later"), func(_ context.Context, job worker.Job[struct{}]) (result, error) {
		labour()
		if job.Lease.Epoch == 1 {
			return result{}, job.Delay(rand.N(500 * time.Millisecond))
		}
		return resultOf(job.Lease), nil
	})
	// Ends when it is cancelled, or its lease is lost, and in no other way.
	worker.Handle(w, kindOf("endless"), func(ctx context.Context, job worker.Job[struct{}]) (result, error) {
		<-ctx.Done()
		return resultOf(job.Lease), nil
	})
	// Completes by itself, without checking the lease: only the engine prevents it.
	worker.Handle(w, kindOf("reckless"), func(_ context.Context, job worker.Job[struct{}]) (result, error) {
		labour()
		bytes, err := json.Marshal(resultOf(job.Lease))
		if err != nil {
			return result{}, err
		}
		if err := eng.CompleteExecution(context.Background(), job.Lease, bytes); err != nil {
			r.line(refusedLine)
		}
		return resultOf(job.Lease), nil
	})
	handleShapes(w, &shapeWorker{eng, pool, r})
	handleShop(w)
	go func() {
		_, _ = io.Copy(io.Discard, input)
		cancel()
	}()
	return w.Run(ctx)
}

// labour takes a little while, even if it is to stop.
func labour() { pause(context.Background(), rand.N(10*time.Millisecond)) }

// reporter writes the events of a worker for the test.
type reporter struct {
	mu  sync.Mutex
	out io.Writer
}

func (r *reporter) line(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintln(r.out, text)
}

func (r *reporter) BeginRun(ctx context.Context, work *engine.Claimed) (context.Context, func(worker.Report)) {
	r.line(startedLine)
	return ctx, func(o worker.Report) {
		if o.Settlement == worker.Abandoned && work.Kind != "endless" {
			r.line(refusedLine)
		}
	}
}

func (*reporter) BeginPart(ctx context.Context, _ worker.Part) (context.Context, func(worker.PartReport)) {
	return ctx, nil
}
