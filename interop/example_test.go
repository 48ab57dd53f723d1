package interop_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/operator"
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

// A scheduler grants work to a worker, which claims the work with the grant. Granting requires a signing key in the database.
func ExampleIssueClaimGrant() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	if _, err := operator.SeedKey(ctx, eng, "2026", wire.NewSecret()); err != nil { // once for a database
		log.Fatal(err)
	}
	created, err := eng.CreateExecution(ctx, engine.ExecutionSpec{Lane: "granted", Kind: "resize"})
	if err != nil {
		log.Fatal(err)
	}

	// The scheduler.
	grant, err := interop.IssueClaimGrant(ctx, eng, interop.GrantSpec{
		Execution: created.ID, Worker: "resizer", Instance: "resizer-7", TTL: 30 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	message, err := json.Marshal(grant)
	if err != nil {
		log.Fatal(err)
	}

	// The worker, on receiving the message.
	var received interop.ClaimGrant
	if err := json.Unmarshal(message, &received); err != nil {
		log.Fatal(err)
	}
	claimed, err := interop.ClaimExecution(ctx, eng, interop.GrantedClaim{
		Grant: received, Worker: "resizer", Instance: "resizer-7", LeaseTTL: 30 * time.Second,
	})
	if errors.Is(err, fferr.ErrGrantExpired) || errors.Is(err, fferr.ErrInvalidGrant) || errors.Is(err, fferr.ErrNotLeaseable) {
		return // held by another worker, or returned to the lane
	}
	if err != nil {
		log.Fatal(err)
	}
	if err := eng.CompleteExecution(ctx, claimed.Lease, []byte("done")); err != nil {
		log.Fatal(err)
	}
	fmt.Println("done by", claimed.Lease.Instance)
	// Output: done by resizer-7
}
