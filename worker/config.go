package worker

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// Config configures a [Worker]. The zero value of every field is its default.
type Config struct {
	// Lanes lists the lanes to claim from, in equal shares while all have work. The worker claims only kinds with a
	// handler, on any of these lanes. Default: the lanes of these kinds, or [engine.DefaultLane] for a kind without a
	// lane.
	Lanes []Lane

	// Capabilities lists the worker's capabilities. Other workers claim work requiring more. Default: none.
	Capabilities []string

	// Worker names the kind of worker, the same in all its processes. Default "worker".
	Worker id.WorkerID

	// Instance names this process. Two processes must not share a name while both run. Default: host, process id and
	// random letters.
	Instance id.WorkerInstanceID

	// Concurrency is the number of handlers that may run at once, up to [MaxConcurrency]. Lanes with a concurrency of
	// their own have additional handlers. Default 100.
	Concurrency int

	// LeaseTTL is how long a crashed worker keeps its work. The worker renews a lease after a third of LeaseTTL, so
	// handlers may take longer. At least 100 ms. Default 30 s.
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

	// NoReconcile leaves the background work (package reconcile) to other processes. At least one must run the
	// background work, or lost leases, retries and delays don't return to their lanes: the worker checks once a
	// minute, and warns if no process does. Default: each worker does.
	NoReconcile bool

	// NoRegister keeps the worker out of the list of workers ([engine.Engine.Workers], `ff worker list`). Default: the
	// worker registers with its lanes, capabilities and kinds, and reports its load every ten seconds, by one
	// statement. Leases don't depend on registration.
	NoRegister bool

	// SharePool makes the worker claim, renew, settle and do the background work on its engine's pool. If handlers use
	// up the pool, the worker may then lose leases. Default: the worker opens up to fourteen connections of its own:
	// see [New].
	SharePool bool

	// StuckAfter is how long a handler may continue after its context has ended, because of a lost lease, a timeout or
	// a shutdown. Then the worker logs the handler with its stack. At least 1 ms. Default 10 s.
	StuckAfter time.Duration

	// Observer observes the runs of handlers, for telemetry. Default: none.
	Observer Observer

	// Log receives failed attempts, lost leases and outages of the database. A database failure that repeats is logged at Warn
	// at most once a minute, otherwise at Debug. The worker never logs payloads or results, but it does log errors from
	// handlers. Default: the engine's log. Use slog.New(slog.DiscardHandler) for none.
	Log *slog.Logger
}

// Lane is a lane to claim from.
type Lane struct {
	Name id.LaneID

	// Concurrency reserves handlers for the lane, whatever the other lanes do. The worker claims from the lane only
	// when one of these handlers is free, so other workers can take the rest. Default: the lane shares
	// [Config.Concurrency] with the other lanes without a concurrency.
	Concurrency int
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
	if err := c.checkLanes(); err != nil {
		return c, err
	}
	c.Lanes = slices.SortedFunc(slices.Values(c.Lanes), func(a, b Lane) int { return cmp.Compare(a.Name, b.Name) })
	if err := id.NewCapabilities(c.Capabilities...).Validate(); err != nil {
		return c, refuse("Capabilities", err.Error())
	}
	c.Worker = cmp.Or(c.Worker, DefaultWorker)
	if c.Concurrency == 0 && (len(c.Lanes) == 0 || c.ownHandlers() == 0 || c.lanesShare()) {
		c.Concurrency = DefaultConcurrency
	}
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

// checkLanes returns an error for lanes that can't be claimed from as configured.
func (c Config) checkLanes() error {
	for i, lane := range c.Lanes {
		if err := lane.Name.Validate(); err != nil {
			return refuse("Lanes", err.Error())
		}
		same := func(other Lane) bool { return other.Name == lane.Name }
		switch {
		case lane.Concurrency < 0:
			return refuse("Lanes", fmt.Sprintf("the Concurrency of %q is negative", lane.Name))
		case lane.Concurrency > MaxConcurrency:
			return refuse("Lanes", fmt.Sprintf("the Concurrency of %q %s", lane.Name, tooLarge(int64(lane.Concurrency), MaxConcurrency, false)))
		case slices.ContainsFunc(c.Lanes[:i], same):
			return refuse("Lanes", fmt.Sprintf("has %q twice", lane.Name))
		}
	}
	total := c.Concurrency + c.ownHandlers()
	switch {
	case total > MaxConcurrency:
		return refuse("Lanes", "with Concurrency they have "+strings.TrimPrefix(tooLarge(int64(total), MaxConcurrency, false), "is ")+" handlers")
	case c.Concurrency > 0 && len(c.Lanes) > 0 && !c.lanesShare():
		return refuse("Concurrency", "has no effect, since each lane has a Concurrency of its own")
	}
	return nil
}

// ownHandlers returns the number of handlers reserved for single lanes.
func (c Config) ownHandlers() int {
	n := 0
	for _, lane := range c.Lanes {
		n += lane.Concurrency
	}
	return n
}

// lanesShare reports whether a lane has no handlers for itself.
func (c Config) lanesShare() bool {
	return slices.ContainsFunc(c.Lanes, func(lane Lane) bool { return lane.Concurrency == 0 })
}

// handlers returns the number of handlers that may run at once, in all lanes.
func (c Config) handlers() int { return c.Concurrency + c.ownHandlers() }

// tooLarge describes a value above its limit.
func tooLarge(value, limit int64, isDuration bool) string {
	if isDuration {
		return fmt.Sprintf("is %v, limit %v", time.Duration(value), time.Duration(limit))
	}
	return fmt.Sprintf("is %d, limit %d", value, limit)
}

func refuse(field, reason string) error {
	return &fferr.InputError{Field: "Config." + field, Reason: reason}
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
