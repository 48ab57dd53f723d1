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

// Config configures a [Worker]. The zero value of every field is its default.
type Config struct {
	// Lanes lists the lanes to claim from, in equal shares while all have work. The worker claims only the kinds it has
	// handlers for, whichever lane those declare. Default: the lanes of these kinds; a kind without a lane has
	// [engine.DefaultLane].
	Lanes []id.LaneID

	// Capabilities lists the worker's capabilities. It leaves work that requires others to other workers. Default: none.
	Capabilities []string

	// Worker names the kind of worker, the same in all its processes. Default "worker".
	Worker id.WorkerID

	// Instance names this process. Two that run at the same time must not share it. Default: host, process id and random
	// letters.
	Instance id.WorkerInstanceID

	// Concurrency is the number of handlers that may run at once, up to [MaxConcurrency]. Default 100.
	Concurrency int

	// LeaseTTL is how long a crashed worker keeps its work. The worker renews a lease every third of it, so handlers may take
	// longer. At least 100 ms. Default 30 s.
	LeaseTTL time.Duration

	// DrainTimeout is how long handlers may continue after Run's context has ended. Then their contexts are cancelled with
	// [ErrShutdown]. Default 20 s, less than process supervisors usually wait.
	DrainTimeout time.Duration

	// PollInterval is the time between polls of the lanes without notifications: one statement for all lanes, which also
	// checks for background work unless NoReconcile is set. Default 0.9 s.
	PollInterval time.Duration

	// FetchBatch and SettleBatch limit the executions claimed and settled by one statement, up to [engine.MaxBatch]. A batch
	// takes the work that arrived during the previous commit, and never waits to fill up. Default 500. With a FetchBatch of 1,
	// a claim also completes the executions finished since the last one, in one transaction.
	FetchBatch  int
	SettleBatch int

	// NoReconcile leaves the background work (package reconcile) to other processes. At least one has to run it; otherwise
	// lost leases, retries and delays don't return to their lanes. Default: each worker runs it.
	NoReconcile bool

	// NoRegister keeps the worker out of the list of workers ([engine.Engine.Workers], `ff worker list`). Default: the
	// worker registers itself and its lanes, capabilities and kinds, and reports its load every ten seconds, by one
	// statement. Leases don't depend on that.
	NoRegister bool

	// SharePool makes the worker claim, renew and settle on its engine's pool. Handlers that use up the pool may then cost it
	// its leases. Default: the worker opens up to seven connections of its own.
	SharePool bool

	// StuckAfter is how long a handler may run on after its context has ended, because of a lost lease, a timeout or a
	// shutdown, before the worker logs it with its stack. At least 1 ms. Default 10 s.
	StuckAfter time.Duration

	// Hooks receives a report for each handled execution. Default: none.
	Hooks Hooks

	// Log receives failed attempts, lost leases and outages of the database. A database failure that repeats is logged at Warn
	// at most once a minute, otherwise at Debug. The worker never logs payloads or results, but it does log errors from
	// handlers. Default: the engine's log. Use slog.New(slog.DiscardHandler) for none.
	Log *slog.Logger
}

// Defaults of [Config].
const (
	DefaultWorker       id.WorkerID = "worker"
	DefaultConcurrency              = 100
	DefaultLeaseTTL                 = 30 * time.Second
	DefaultDrainTimeout             = 20 * time.Second
	DefaultPollInterval             = 900 * time.Millisecond
	DefaultStuckAfter               = 10 * time.Second
	DefaultBatch                    = 500
)

// MaxConcurrency is the largest [Config.Concurrency].
const MaxConcurrency = 10_000

const (
	minLeaseTTL   = 100 * time.Millisecond
	minStuckAfter = time.Millisecond
)

// complete returns c with its defaults filled in, or an error for a value out of bounds.
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
		{"StuckAfter", int64(c.StuckAfter), math.MaxInt64},
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
	c.StuckAfter = cmp.Or(c.StuckAfter, DefaultStuckAfter)
	c.FetchBatch = cmp.Or(c.FetchBatch, DefaultBatch)
	c.SettleBatch = cmp.Or(c.SettleBatch, DefaultBatch)
	if c.LeaseTTL < minLeaseTTL {
		return c, refuse("LeaseTTL", "is below 100ms")
	}
	if c.StuckAfter < minStuckAfter {
		return c, refuse("StuckAfter", "is below 1ms")
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

// tooLarge describes a value above its limit.
func tooLarge(value, limit int64, isDuration bool) string {
	if isDuration {
		return fmt.Sprintf("is %v, limit %v", time.Duration(value), time.Duration(limit))
	}
	return fmt.Sprintf("is %d, limit %d", value, limit)
}

func refuse(field, reason string) error {
	return &engine.InputError{Field: "Config." + field, Reason: reason}
}

// newInstance returns a name for this worker: host, process id and random letters.
func newInstance() id.WorkerInstanceID {
	host, err := os.Hostname()
	host = host[:min(len(host), 64)]
	if err != nil || id.WorkerInstanceID(host).Validate() != nil {
		host = "host"
	}
	return id.WorkerInstanceID(fmt.Sprintf("%s-%d-%08x", host, os.Getpid(), rand.Uint32()))
}
