// Package contender does the same work by different means: this library, its peer River, and hand-written SQL.
package contender

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Job is a piece of work that does nothing.
type Job struct {
	Num      int  // handed to the handler
	Priority int  // 0 to 3, the higher first
	Reserved bool // for a worker that never comes
	Tag      string
	Variant  int // its kind, 0 to 2; only the first has a handler
	Lane     int // one of [Work.Lanes]; 0: the default one. This library's worker and River
	Size     int // bytes of its payload, up to 32 KiB; 0: as few as there are
}

// Work says how jobs are worked off. Zero fields stand for the contender's defaults, or for nobody to be told.
type Work struct {
	Workers     int // independent workers in this process
	Concurrency int // handlers at once in each of them
	Batch       int // most jobs claimed by one statement
	Lanes       int // served, numbered from 1, by each worker; 0: the default one. This library's worker and River

	Begun   func()        // a worker looks for jobs from now on; what its start took is over
	Started func(num int) // a handler begins; called from many goroutines
	Done    func()        // the end of a job has been committed; called from many goroutines

	Committed func(num int) // as Done, with the job's number; this library's worker only
	Heard     func(num int) // a subscription in the workers' process was handed the end of a job; this library's worker and River
}

// Contender is one way of doing the work, on a database of its own.
type Contender interface {
	// Name says what it is and how it is set.
	Name() string
	Pool() *pgxpool.Pool

	// Reset empties the tables.
	Reset(ctx context.Context) error
	// Insert inserts jobs in one transaction.
	Insert(ctx context.Context, jobs []Job) error
	// InsertTx inserts a job in the caller's transaction.
	InsertTx(ctx context.Context, tx pgx.Tx, job Job) error
	// Run works jobs off until ctx ends. It returns when nothing is under way any more.
	Run(ctx context.Context, w Work) error
	// Check tells what the database lacks to say that so many jobs have ended well.
	Check(ctx context.Context, ended int) error
}

// Claimer is a contender whose claim can be measured by itself.
type Claimer interface {
	Contender
	// Fill makes n claimable rows, however.
	Fill(ctx context.Context, n int) error
	// Bury ends the n rows at the head of the queue, as if they had been worked off, and leaves their dead
	// versions where they are.
	Bury(ctx context.Context, n int) error
	// Claims returns a function that claims up to n jobs and says how many it got.
	Claims(ctx context.Context) (func(ctx context.Context, n int) (int, error), error)
}

// Renewer is a contender with leases.
type Renewer interface {
	Contender
	// Hold claims n jobs and returns a function that renews all their leases.
	Hold(ctx context.Context, n int) (func(ctx context.Context) error, error)
}

// FlowInserter is a contender with dependencies.
type FlowInserter interface {
	Contender
	// InsertFlow inserts a graph of jobs in one transaction.
	InsertFlow(ctx context.Context, g Graph) error
}

// FlowCanceller is a contender that ends all jobs of a graph at once.
type FlowCanceller interface {
	FlowInserter
	// Cancels inserts a graph and returns a function that cancels it and says how many jobs that ended. Of its jobs
	// held are claimed before.
	Cancels(ctx context.Context, g Graph, held int) (func(ctx context.Context) (int, error), error)
}

// Graph is jobs, numbered from 0, and which of them wait for which.
type Graph struct {
	Nodes int
	Edges [][2]int // from, to
}

// laneName is the name of a lane, or of River's queue.
func laneName(lane int) string { return "lane-" + strconv.Itoa(lane) }

const (
	kind         = "noop"
	reservedKind = "reserved"
	reservedFor  = "nobody" // the capability that reserved jobs ask for
)

// variantKinds are the kinds of jobs that nothing works off.
var variantKinds = [...]string{kind, "noop-2", "noop-3"}

// connections is the size of each contender's pool.
const connections = 20

// newPool opens a pool of so many connections, whose sessions begin with the given settings.
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
