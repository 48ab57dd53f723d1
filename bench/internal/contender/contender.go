// Package contender does the same work in several ways: with this library, with its peer River, with hand-written SQL and, for
// signals, with DBOS.
package contender

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Job is an empty piece of work.
type Job struct {
	Num      int  // passed to the handler
	Priority int  // 0 to 3, higher first
	Reserved bool // requires a missing worker
	Tag      string
	Variant  int // the kind, 0 to 2; only the first has a handler
	Lane     int // one of [Work.Lanes], or 0 for the default one; the library's worker and River only
	Size     int // size of the payload in bytes, up to 32 KiB; 0 for the smallest
}

// Work configures how jobs are processed. Zero fields use the contender's defaults; nil functions are not called.
type Work struct {
	Workers     int // number of independent workers in this process
	Concurrency int // concurrent handlers in each worker
	Batch       int // most jobs claimed by one statement
	Lanes       int // lanes of each worker, numbered from 1; 0 for the default one; this library's worker and River only

	Begun   func()        // called when a worker starts looking for jobs, after startup
	Started func(num int) // called when a handler begins; concurrently
	Done    func()        // called when the end of a job is committed; concurrently

	Committed func(num int) // like Done, with the job's number; the library's worker only
	Received  func(num int) // called when a subscription in the workers' process receives the end of a job; the library's worker and River only
}

// Contender is one way of doing the work, with its own database.
type Contender interface {
	// Name returns the contender's name and configuration.
	Name() string
	Pool() *pgxpool.Pool

	// Reset empties the tables.
	Reset(ctx context.Context) error
	// Insert inserts jobs in one transaction.
	Insert(ctx context.Context, jobs []Job) error
	// InsertTx inserts a job in the caller's transaction.
	InsertTx(ctx context.Context, tx pgx.Tx, job Job) error
	// Run processes jobs until ctx ends. It returns when nothing is in progress any more.
	Run(ctx context.Context, w Work) error
	// Check returns an error unless the database shows the given number of jobs succeeded.
	Check(ctx context.Context, ended int) error
}

// Claimer is a contender whose claims can be measured separately.
type Claimer interface {
	Contender
	// Fill creates n claimable rows in any way.
	Fill(ctx context.Context, n int) error
	// Bury ends the n rows at the head of the queue as if processed, and leaves the dead versions in place.
	Bury(ctx context.Context, n int) error
	// Claims returns a function that claims up to n jobs and returns the number claimed.
	Claims(ctx context.Context) (func(ctx context.Context, n int) (int, error), error)
}

// Renewer is a contender with leases.
type Renewer interface {
	Contender
	// Hold claims n jobs and returns a function to renew all leases.
	Hold(ctx context.Context, n int) (func(ctx context.Context) error, error)
}

// FlowInserter is a contender with dependencies.
type FlowInserter interface {
	Contender
	// InsertFlow inserts a graph of jobs in one transaction.
	InsertFlow(ctx context.Context, g Graph) error
}

// FlowCanceller is a contender with an operation to end all jobs of a graph at once.
type FlowCanceller interface {
	FlowInserter
	// Cancels inserts a graph, and claims held of its jobs. It returns a function that cancels the graph and returns the
	// number of ended jobs.
	Cancels(ctx context.Context, g Graph, held int) (func(ctx context.Context) (int, error), error)
}

// Graph has jobs, numbered from 0, and their dependencies.
type Graph struct {
	Nodes int
	Edges [][2]int // from, to
}

// laneName returns the name of a lane, or of River's queue.
func laneName(lane int) string { return "lane-" + strconv.Itoa(lane) }

const (
	kind         = "noop"
	reservedKind = "reserved"
	reservedFor  = "nobody" // the capability required by reserved jobs
)

// variantKinds are kinds of jobs without handlers, except the first.
var variantKinds = [...]string{kind, "noop-2", "noop-3"}

// connections is the size of each contender's pool. A worker of the library with all background work may use 32 at
// once.
const connections = 40

// newPool opens a pool with the given size. The sessions begin with the given settings.
func newPool(ctx context.Context, databaseURL string, connections int, settings map[string]string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(connections)
	for name, value := range settings {
		config.ConnConfig.RuntimeParams[name] = value
	}
	return pgxpool.NewWithConfig(ctx, config)
}
