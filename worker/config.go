package worker

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// Config holds what a [Worker] can be told. Its zero value is the documented default of every field.
type Config struct {
	// Lanes are where the worker takes work from, in equal shares while all of them have some: of the kinds that it
	// handles, wherever those are declared to be. Default: the lanes of the kinds that it handles, where a kind without
	// a lane has [engine.DefaultLane].
	Lanes []id.LaneID

	// Capabilities are what the worker can do. Work that requires more is left to others. Default: none.
	Capabilities []string

	// Worker names what this is, the same in all its processes. Default "worker".
	Worker id.WorkerID

	// Instance names this process; no two that run at once may share it. Default: host, process id and random letters.
	Instance id.WorkerInstanceID

	// Concurrency is how many handlers run at once, up to [MaxConcurrency]. Default 100.
	Concurrency int

	// LeaseTTL is how long the work of a crashed worker stays with it. Leases are renewed every third of it, so that
	// it does not limit how long a handler may take. At least 100 ms. Default 30 s.
	LeaseTTL time.Duration

	// DrainTimeout is how long handlers may go on after Run's context has ended. Then their contexts are cancelled with
	// [ErrShutdown]. Default 20 s, less than process supervisors usually wait.
	DrainTimeout time.Duration

	// PollInterval is how often the lanes are looked at while nothing tells of work on them: all in one statement, with
	// the question what background work is to be done where this worker asks that. Default 1.5 s.
	PollInterval time.Duration

	// FetchBatch and SettleBatch are the most executions claimed, and settled, by one statement, up to
	// [engine.MaxBatch]. A batch is as large as what came while the one before it was committed: nothing waits for
	// others to come. Default 500. With a FetchBatch of 1 a claim completes what came meanwhile in its transaction.
	FetchBatch  int
	SettleBatch int

	// NoReconcile leaves the background work (package reconcile) to other processes. At least one has to do it, else
	// no lost lease, retry or delay comes back. Default: each worker does it.
	NoReconcile bool

	// SharePool has the worker claim, renew and settle by connections of its engine's pool. Handlers that hold the whole
	// pool may then cost it its leases. Default: it opens up to six connections of its own.
	SharePool bool

	// Hooks is told of each execution that is handled. Default: nobody is.
	Hooks Hooks

	// Log receives what the worker survives: each failed attempt with what follows it, lost leases, a database out of
	// reach. A failure of the database that repeats is logged at Warn at most once a minute, and at Debug in between.
	// Payloads and results are never logged; errors that handlers return are. Default: the engine's, and so
	// [slog.Default]. slog.New(slog.DiscardHandler) logs nothing.
	Log *slog.Logger
}

// Defaults of [Config].
const (
	DefaultWorker       id.WorkerID = "worker"
	DefaultConcurrency              = 100
	DefaultLeaseTTL                 = 30 * time.Second
	DefaultDrainTimeout             = 20 * time.Second
	DefaultPollInterval             = 1500 * time.Millisecond
	DefaultBatch                    = 500
)

// MaxConcurrency is the largest [Config.Concurrency].
const MaxConcurrency = 10_000

const minLeaseTTL = 100 * time.Millisecond

// complete fills in the defaults and refuses what is out of bounds.
func (c Config) complete() (Config, error) {
	for _, f := range []struct {
		name  string
		value int64
		max   int64
	}{
		{"Concurrency", int64(c.Concurrency), MaxConcurrency},
		{"LeaseTTL", int64(c.LeaseTTL), int64(engine.MaxLeaseTTL)},
		{"DrainTimeout", int64(c.DrainTimeout), math.MaxInt64},
		{"PollInterval", int64(c.PollInterval), math.MaxInt64},
		{"FetchBatch", int64(c.FetchBatch), engine.MaxBatch},
		{"SettleBatch", int64(c.SettleBatch), engine.MaxBatch},
	} {
		switch {
		case f.value < 0:
			return c, refuse(f.name, "is negative")
		case f.value > f.max:
			return c, refuse(f.name, tooLarge(f.value, f.max, f.name == "LeaseTTL"))
		}
	}
	for _, lane := range c.Lanes {
		if err := lane.Validate(); err != nil {
			return c, refuse("Lanes", err.Error())
		}
	}
	c.Lanes = slices.Compact(slices.Sorted(slices.Values(c.Lanes)))
	if err := id.NewCapabilities(c.Capabilities...).Validate(); err != nil {
		return c, refuse("Capabilities", err.Error())
	}
	c.Worker = cmp.Or(c.Worker, DefaultWorker)
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	c.LeaseTTL = cmp.Or(c.LeaseTTL, DefaultLeaseTTL)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.PollInterval = cmp.Or(c.PollInterval, DefaultPollInterval)
	c.FetchBatch = cmp.Or(c.FetchBatch, DefaultBatch)
	c.SettleBatch = cmp.Or(c.SettleBatch, DefaultBatch)
	if c.LeaseTTL < minLeaseTTL {
		return c, refuse("LeaseTTL", "is below 100ms")
	}
	if c.Instance == "" {
		c.Instance = newInstance()
	}
	if err := c.Worker.Validate(); err != nil {
		return c, refuse("Worker", err.Error())
	}
	if err := c.Instance.Validate(); err != nil {
		return c, refuse("Instance", err.Error())
	}
	return c, nil
}

// tooLarge says by how much a value is above its limit.
func tooLarge(value, limit int64, isDuration bool) string {
	if isDuration {
		return fmt.Sprintf("is %v, limit %v", time.Duration(value), time.Duration(limit))
	}
	return fmt.Sprintf("is %d, limit %d", value, limit)
}

func refuse(field, reason string) error {
	return &engine.InputError{Field: "Config." + field, Reason: reason}
}

// newInstance names this process and this worker in it.
func newInstance() id.WorkerInstanceID {
	host, err := os.Hostname()
	host = host[:min(len(host), 64)]
	if err != nil || id.WorkerInstanceID(host).Validate() != nil {
		host = "host"
	}
	return id.WorkerInstanceID(fmt.Sprintf("%s-%d-%08x", host, os.Getpid(), rand.Uint32()))
}
