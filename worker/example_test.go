package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/worker"
)

type ResizeArgs struct {
	Image string
	Width int
}

type ResizeResult struct{ URL string }

// Resize is declared once, for creators, handlers and readers.
var Resize = engine.Kind[ResizeArgs, ResizeResult]{Name: "resize", Lane: "images"}

var (
	Album = engine.Kind[struct{}, string]{Name: "album"}
	Bill  = engine.Kind[Order, struct{}]{Name: "bill", Limits: []engine.Limit[Order]{engine.Rate[Order](100, time.Minute)}}
)

type Order struct{ Number int64 }

func resize(context.Context, ResizeArgs) (string, error) { return "", nil }

func uploaded(context.Context, id.ExecutionID) (pictures string, complete bool) { return "", true }

func remove(string) {}

// charge returns when to try again, if the bank asks to wait.
func charge(context.Context, Order) (again time.Time, err error) { return time.Time{}, nil }

// A worker process: it runs until it is stopped, then drains.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		log.Fatal(err)
	}

	w, err := worker.New(eng, worker.Config{Concurrency: 20}) // serves the lane "images"
	if err != nil {
		log.Fatal(err)
	}
	worker.Handle(w, Resize, func(ctx context.Context, job worker.Job[ResizeArgs]) (ResizeResult, error) {
		url, err := resize(ctx, job.Args)
		return ResizeResult{URL: url}, err
	})
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

var (
	errNoSuchImage = errors.New("no such image")
	errBusy        = errors.New("service is busy")
)

// An error classifies a failed attempt. The retry policy decides about a plain error, a permanent one is never retried,
// and policies can select by category.
func ExampleFail() {
	var w *worker.Worker // = worker.New(…)
	worker.Handle(w, Resize, func(ctx context.Context, job worker.Job[ResizeArgs]) (ResizeResult, error) {
		url, err := resize(ctx, job.Args)
		switch {
		case errors.Is(err, errNoSuchImage):
			return ResizeResult{}, worker.Permanent(err)
		case errors.Is(err, errBusy):
			return ResizeResult{}, &worker.Fail{Category: "busy", Err: err}
		case err != nil:
			return ResizeResult{}, err
		}
		return ResizeResult{URL: url}, nil
	})
}

// A handler reads the results of its upstreams.
func ExampleJob_Upstreams() {
	var w *worker.Worker // = worker.New(…)
	worker.Handle(w, Album, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		upstreams, err := job.Upstreams(ctx)
		if err != nil {
			return "", err
		}
		album := ""
		for _, upstream := range upstreams {
			picture, err := Resize.ResultOf(upstream)
			if err != nil {
				return "", err
			}
			album += fmt.Sprintf("<img src=%q>", picture.URL)
		}
		return album, nil
	})
}

// A handler creates the executions whose results it needs, and is called again when they have ended. Each call creates the
// same ones; existing ones don't change.
func ExampleJob_WaitForChildren() {
	var (
		w   *worker.Worker // = worker.New(…)
		eng *engine.Engine
	)
	worker.Handle(w, Album, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		upstreams, err := job.Upstreams(ctx)
		if err != nil {
			return "", err
		}
		if len(upstreams) == 0 { // the first time
			growth := engine.Growth{Flow: *job.Flow, Nodes: []engine.Node{{Key: "album", Execution: job.ID}}}
			for _, image := range []string{"cat.png", "dog.png"} {
				growth.Nodes = append(growth.Nodes, engine.Node{Key: image, Spec: Resize.Spec(ResizeArgs{Image: image, Width: 640})})
				growth.Edges = append(growth.Edges, engine.Edge{From: image, To: "album", AllowStarted: true})
			}
			if _, err := eng.GrowFlow(ctx, growth); err != nil {
				return "", err
			}
			return "", job.WaitForChildren()
		}
		album := ""
		for _, upstream := range upstreams {
			picture, err := Resize.ResultOf(upstream)
			if err != nil {
				return "", err
			}
			album += picture.URL + "\n"
		}
		return album, nil
	})
}

// A handler that has to wait asks to be called again, and holds nothing in the meantime.
func ExampleJob_Delay() {
	var w *worker.Worker // = worker.New(…)
	worker.Handle(w, Album, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		pictures, complete := uploaded(ctx, job.ID)
		if !complete {
			return "", job.Delay(time.Minute)
		}
		return pictures, nil
	})
}

// An API asks one handler to wait. The handler holds its key for all, so no other one asks before.
func ExampleJob_HoldLimit() {
	var w *worker.Worker // = worker.New(…)
	worker.HandleFunc(w, Bill, func(ctx context.Context, job worker.Job[Order]) error {
		again, err := charge(ctx, job.Args)
		if err != nil || again.IsZero() {
			return err
		}
		if err := job.HoldLimit(ctx, engine.LimitKey{Name: "bill/rate"}, again); err != nil {
			return err
		}
		return job.Delay(time.Until(again))
	})
}

// A cancelled handler cleans up. Its result is discarded.
func ExampleErrCancelled() {
	var w *worker.Worker // = worker.New(…)
	worker.Handle(w, Resize, func(ctx context.Context, job worker.Job[ResizeArgs]) (ResizeResult, error) {
		url, err := resize(ctx, job.Args)
		if errors.Is(context.Cause(ctx), worker.ErrCancelled) {
			remove(url)
		}
		return ResizeResult{URL: url}, err
	})
}

// A handler that writes to the same database completes its execution in the same transaction: both happen, or neither.
func ExampleJob_transaction() {
	var (
		w   *worker.Worker // = worker.New(…)
		eng *engine.Engine
	)
	worker.Handle(w, Bill, func(ctx context.Context, job worker.Job[Order]) (struct{}, error) {
		return struct{}{}, eng.InTx(ctx, func(tx pgx.Tx, _ *engine.Engine) error {
			if _, err := tx.Exec(ctx, "UPDATE orders SET billed = true WHERE id = $1", job.Args.Number); err != nil {
				return err
			}
			return job.Complete(ctx, tx, struct{}{})
		})
	})
}
