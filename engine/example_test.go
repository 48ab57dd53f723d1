package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// TestMain runs the examples on the migrated database that FF_EXAMPLES names. A test in the tests module sets it; this module
// cannot start a server and only compiles them.
func TestMain(m *testing.M) {
	databaseURL := os.Getenv("FF_EXAMPLES")
	_ = os.Setenv("DATABASE_URL", databaseURL)
	if databaseURL == "" {
		flag.Parse()
		_ = flag.Set("test.skip", "^Example")
	}
	m.Run()
}

// resizer is the worker that claims in the examples.
var resizer = engine.ClaimSpec{Lane: "images", Worker: "resizer", Instance: "resizer-1", LeaseTTL: 30 * time.Second}

// connect opens a pool and an engine on it.
func connect(ctx context.Context) (*pgxpool.Pool, *engine.Engine) {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return pool, eng
}

// An execution is created, claimed, and completed under the claim's lease.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := eng.Prepare(ctx); err != nil { // is the database migrated and writable?
		log.Fatal(err)
	}

	created, err := eng.CreateExecution(ctx, engine.ExecutionSpec{
		Lane: "images", Kind: "resize", Payload: []byte(`{"Width":640}`), IdempotencyKey: "upload-17",
	})
	if err != nil {
		log.Fatal(err)
	}

	claimed, err := eng.Claim(ctx, resizer, 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range claimed {
		result := append([]byte("resized "), c.Payload...)
		if err := eng.CompleteExecution(ctx, c.Lease, result); err != nil {
			log.Fatal(err)
		}
	}

	state, err := eng.ExecutionState(ctx, created.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(state)
	// Output: completed
}

type (
	ResizeArgs   struct{ Width int }
	ResizeResult struct{ URL string }
)

var (
	Resize = engine.Kind[ResizeArgs, ResizeResult]{Name: "resize", Lane: "images"}
	Digest = engine.Kind[struct{}, string]{Name: "digest", Lane: "images"}
)

// A kind gives executions types. Here their holder claims by itself; package worker does it for handlers.
func ExampleKind() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	created, err := Resize.Create(ctx, eng, ResizeArgs{Width: 640})
	if err != nil {
		log.Fatal(err)
	}

	claimed, err := eng.Claim(ctx, resizer, 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range claimed {
		args, err := Resize.DecodeArgs(c.Payload)
		if err != nil {
			log.Fatal(err)
		}
		result, err := Resize.EncodeResult(ResizeResult{URL: fmt.Sprintf("/cat-%d.png", args.Width)})
		if err != nil {
			log.Fatal(err)
		}
		if err := eng.CompleteExecution(ctx, c.Lease, result); err != nil {
			log.Fatal(err)
		}
	}

	picture, err := Resize.Result(ctx, eng, created.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(picture.URL)
	// Output: /cat-640.png
}

// A transaction creates the work that it makes necessary: both happen, or neither.
func ExampleEngine_InTx() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	err := eng.InTx(ctx, func(tx pgx.Tx, eng *engine.Engine) error {
		if _, err := tx.Exec(ctx, "CREATE TABLE uploads (id integer)"); err != nil { // the application's own
			return err
		}
		_, err := Resize.Create(ctx, eng, ResizeArgs{Width: 640}, engine.WithKey("upload 7"), engine.WithPriority(10))
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
}

// A flow is created with all its nodes. The digest waits for both pictures; a worker that runs it reads their results.
func ExampleEngine_CreateFlow() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	flow, err := eng.CreateFlow(ctx, engine.FlowSpec{
		Kind: "upload",
		Nodes: []engine.Node{
			{Key: "small", Spec: Resize.Spec(ResizeArgs{Width: 64})},
			{Key: "large", Spec: Resize.Spec(ResizeArgs{Width: 640})},
			{Key: "digest", Spec: Digest.Spec(struct{}{}), When: policy.AllOf()},
		},
		Edges: []engine.Edge{{From: "small", To: "digest"}, {From: "large", To: "digest"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	snapshot, err := eng.DescribeFlow(ctx, flow.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(snapshot.Nodes, "nodes")
	// Output: 3 nodes
}

var (
	Scan  = engine.Kind[struct{}, int]{Name: "scan", Lane: "scanner"} // returns the number of pages
	Page  = engine.Kind[int, string]{Name: "page", Lane: "scanner"}
	Index = engine.Kind[struct{}, struct{}]{Name: "index", Lane: "scanner"}
)

// The number of pages is unknown before the scan. The scanner adds a node per page, and one that waits for all of them,
// in the transaction that completes the scan.
func ExampleEngine_GrowFlow() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	flow, err := eng.CreateFlow(ctx, engine.FlowSpec{Kind: "document", Nodes: []engine.Node{{Key: "scan", Spec: Scan.Spec(struct{}{})}}})
	if err != nil {
		log.Fatal(err)
	}

	scanner := engine.ClaimSpec{Lane: "scanner", Worker: "scanner", Instance: "scanner-1", LeaseTTL: 30 * time.Second}
	claimed, err := eng.Claim(ctx, scanner, 1)
	if err != nil {
		log.Fatal(err)
	}
	const pages = 3
	growth := engine.Growth{Flow: *claimed[0].Flow, Nodes: []engine.Node{{Key: "index", Spec: Index.Spec(struct{}{})}}}
	for n := range pages {
		key := fmt.Sprintf("page %d", n+1)
		growth.Nodes = append(growth.Nodes, engine.Node{Key: key, Spec: Page.Spec(n + 1)})
		growth.Edges = append(growth.Edges, engine.Edge{From: "scan", To: key}, engine.Edge{From: key, To: "index"})
	}
	err = eng.InTx(ctx, func(_ pgx.Tx, eng *engine.Engine) error {
		if err := eng.LockFlows(ctx, growth.Flow); err != nil { // before both
			return err
		}
		if _, err := eng.GrowFlow(ctx, growth); err != nil {
			return err
		}
		result, err := Scan.EncodeResult(pages)
		if err != nil {
			return err
		}
		return eng.CompleteExecution(ctx, claimed[0].Lease, result)
	})
	if err != nil {
		log.Fatal(err)
	}

	snapshot, err := eng.DescribeFlow(ctx, flow.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(snapshot.Nodes, "nodes,", snapshot.Counts[state.PublicWaiting], "ready")
	// Output: 5 nodes, 3 ready
}

// An order was withdrawn: running members may finish, and no others start. A second call changes nothing.
func ExampleEngine_CancelFlow() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	flow, err := eng.CreateFlow(ctx, engine.FlowSpec{
		Kind: "upload",
		Nodes: []engine.Node{
			{Key: "small", Spec: Resize.Spec(ResizeArgs{Width: 64})},
			{Key: "digest", Spec: Digest.Spec(struct{}{})},
		},
		Edges: []engine.Edge{{From: "small", To: "digest"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	spec := engine.CancelFlowSpec{ID: flow.ID, Policy: state.CancelPending, Reason: "order withdrawn"}
	for range 2 {
		cancelled, err := eng.CancelFlow(ctx, spec)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(cancelled.Already, len(cancelled.Members))
	}
	// Output:
	// false 2
	// true 2
}

// A failure is retried by the execution's policy, and the result has the time of the retry.
func ExampleEngine_FailExecution() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	_, err := eng.CreateExecution(ctx, engine.ExecutionSpec{
		Lane: "images", Kind: "resize",
		Policy: &policy.Execution{Retry: &policy.Retry{Backoff: policy.Exponential(500*time.Millisecond, time.Minute)}},
	})
	if err != nil {
		log.Fatal(err)
	}
	claimed, err := eng.Claim(ctx, resizer, 1)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range claimed {
		failed, err := eng.FailExecution(ctx, c.Lease, engine.Failure{Message: "no answer", Category: "upstream"})
		if err != nil {
			log.Fatal(err)
		}
		if failed.Retry {
			fmt.Println("attempt", failed.NextAttempt, "later:", failed.RetryAt.After(c.CreatedAt))
		}
	}
	// Output: attempt 1 later: true
}

// Work that is no longer needed is cancelled, even if it is running.
func ExampleEngine_CancelExecution() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	created, err := eng.CreateExecution(ctx, engine.ExecutionSpec{Lane: "images", Kind: "resize"})
	if err != nil {
		log.Fatal(err)
	}
	err = eng.CancelExecution(ctx, engine.CancelSpec{ID: created.ID, Reason: "the upload was deleted"})
	if ended, ok := errors.AsType[*fferr.EndedError](err); ok {
		fmt.Println("too late:", ended.Outcome) // it has a result, or failed by itself
	} else if err != nil {
		log.Fatal(err)
	}
	// Output:
}

// A holder without work to do yet releases its attempt until later. This uses no retry.
func ExampleEngine_DelayExecution() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	claimed, err := eng.Claim(ctx, resizer, 1)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range claimed {
		if err := eng.DelayExecution(ctx, c.Lease, c.ExpiresAt.Add(time.Hour)); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
}

// A holder renews its lease while it works, and stops when it has lost the lease.
func ExampleEngine_RenewLease() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	claimed, err := eng.Claim(ctx, resizer, 1)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range claimed {
		expires, err := eng.RenewLease(ctx, c.Lease, 0)
		if lost, ok := errors.AsType[*fferr.LeaseError](err); ok {
			fmt.Println("stop:", lost) // another worker holds it, or the execution has ended
			continue
		}
		if err != nil {
			log.Fatal(err) // the renewal may or may not have happened; the call may be repeated
		}
		fmt.Println("renewed:", !expires.Before(c.ExpiresAt))
	}
	// Output: renewed: true
}

// The creator of an execution can wait for its result until ctx ends.
func ExampleEngine_AwaitExecution() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	pool, eng := connect(ctx)
	defer pool.Close()
	created, err := eng.CreateExecution(ctx, engine.ExecutionSpec{Lane: "reports", Kind: "report"})
	if err != nil {
		log.Fatal(err)
	}
	go func() { // a worker, here or in another process
		reporter := engine.ClaimSpec{Lane: "reports", Worker: "reporter", Instance: "reporter-1", LeaseTTL: 30 * time.Second}
		claimed, err := eng.Claim(ctx, reporter, 10)
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range claimed {
			if err := eng.CompleteExecution(ctx, c.Lease, []byte("42 pages")); err != nil {
				log.Fatal(err)
			}
		}
	}()
	report, err := eng.AwaitExecution(ctx, created.ID)
	if ended, ok := errors.AsType[*fferr.EndedError](err); ok {
		log.Fatal("no report: ", ended.Outcome, ended.Failure)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(report))
	// Output: 42 pages
}

// AwaitFlow returns once all members of a flow have ended, with any outcome.
func ExampleEngine_AwaitFlow() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	pool, eng := connect(ctx)
	defer pool.Close()
	chapter := engine.ExecutionSpec{Lane: "chapters", Kind: "chapter"}
	flow, err := eng.CreateFlow(ctx, engine.FlowSpec{
		Kind: "book", Nodes: []engine.Node{{Key: "one", Spec: chapter}, {Key: "two", Spec: chapter}},
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		author := engine.ClaimSpec{Lane: "chapters", Worker: "author", Instance: "author-1", LeaseTTL: 30 * time.Second}
		claimed, err := eng.Claim(ctx, author, 10)
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range claimed {
			if err := eng.CompleteExecution(ctx, c.Lease, nil); err != nil {
				log.Fatal(err)
			}
		}
	}()
	ended, err := eng.AwaitFlow(ctx, flow.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ended.Counts[state.PublicCompleted], "of", ended.Nodes)
	// Output: 2 of 2
}

// An order has one execution, which is found and signalled by the number of the order.
func ExampleKey() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	type Order struct{ Number string }
	type Payment struct{ Amount int }
	fulfil := engine.Kind[Order, struct{}]{Name: "fulfil", Lane: "orders"}
	paid := engine.Signal[Payment]{Name: "paid"}

	created, err := fulfil.Create(ctx, eng, Order{"4711"}, engine.Key("order", "4711"))
	if conflict, ok := errors.AsType[*fferr.KeyConflictError](err); ok {
		fmt.Println("the order has the execution", conflict.Existing)
	} else if err != nil {
		log.Fatal(err)
	}

	// The receiver of the payment knows the order alone.
	if err := paid.SendTo(ctx, eng, "order", "4711", Payment{Amount: 12}, engine.Once("payment 815")); err != nil {
		log.Fatal(err)
	}
	x, err := eng.FindExecutionByKey(ctx, "order", "4711")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(x == created.ID)
	// Output: true
}
