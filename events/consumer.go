package events

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/policy"
)

// TryForever is a value for [Consumer.MaxTries]: the consumer never skips an event, and a failing event delays all
// later ones.
const TryForever = -1

// Consumer names a consumer and sets how it works. Only Name is required; the zero value of each other field is its
// default.
type Consumer struct {
	// Name identifies the consumer in its outbox: 1 to 255 bytes of UTF-8 without control characters or "|". Processes
	// with the same name share the position, and one works at a time. The same name in two outboxes is two consumers.
	Name string

	// From is where a new consumer begins: at [Beginning], with the oldest event kept, or after another cursor.
	// Default: with events committed from its creation on. From has no effect on an existing consumer.
	From Cursor

	// Batch is the largest number of events in one transaction, up to 1024. Default 256.
	Batch int

	// MaxTries is how often the handler may fail on a single event before the consumer stores the event for an operator
	// ([SetAside]) and skips it. Default 10. [TryForever] removes the limit.
	MaxTries int

	// Backoff is the pause after each of these failures. Default: 1 s, doubling up to 5 min, with jitter between half
	// the pause and all.
	Backoff policy.Backoff

	// Timeout limits one transaction, from 1 s to 24 h. The handler's context ends then. The server ends the transaction two
	// seconds later if the process is silent, so Timeout also bounds how long a process that froze in mid-transaction keeps
	// others from taking over. Default 60 s.
	Timeout time.Duration

	// Wake lists the lanes on which the handler creates work. Their workers are notified after each commit. Default:
	// none; workers find the work at their next poll.
	Wake []id.LaneID
}

// Defaults of [Consumer].
const (
	DefaultConsumerBatch   = 256
	DefaultConsumerTries   = 10
	DefaultConsumerTimeout = time.Minute
)

const maxConsumerBatch = 1024

// defaultConsumerBackoff is the default pause between tries.
var defaultConsumerBackoff = policy.Backoff{First: time.Second, Max: 5 * time.Minute, Factor: 2, Jitter: true}

// Handle runs fn for each event of a source as the consumer with the given name and the defaults of [Consumer]. See
// [HandleWith].
func Handle[E any](
	ctx context.Context, eng *engine.Engine, name string, src Source[E],
	fn func(ctx context.Context, tx pgx.Tx, event E) error,
) error {
	return HandleWith(ctx, eng, Consumer{Name: name}, src, fn)
}

// HandleWith runs fn for each event of a source, in order, as a named consumer, until ctx ends. It commits fn's writes
// through tx together with the consumer's position, so each event has its effects in that database exactly once.
// Effects elsewhere, such as a call to another system, may happen again.
//
// fn shares one READ COMMITTED transaction with neighbouring events and should be quick. Calls of Commit or Rollback
// fail. [engine.Engine.WithTx] makes the engine's operations join the transaction. The context of fn ends with ctx or
// after [Consumer.Timeout]. Any number of processes may run a consumer, and one works at a time.
//
// If fn fails or panics, the transaction rolls back and the event is retried alone, with growing pauses. After
// [Consumer.MaxTries] the consumer stores the event ([SetAside]) and continues with the next. fn should return
// connection errors, wrapped or not: they don't count as tries. An existing consumer continues from its stored
// position, even with a wider filter; [MoveConsumer] moves the position. docs/events-consumers.md describes failover,
// retries and trimming.
//
// Errors: nil once ctx has ended. Before the first event: [fferr.ErrInvalidInput], also for an engine bound to a
// transaction, and errors of [Subscribe] and of the database. Later: [*GapError] if unread events were deleted, or
// [*CursorAheadError] if the database is older than the position; choose a position and call [MoveConsumer].
// [fferr.ErrNotFound] if the consumer was removed.
//
// Connections: one of the pool for each transaction and briefly each second, and the engine's listener as [Subscribe].
func HandleWith[E any](
	ctx context.Context, eng *engine.Engine, consumer Consumer, src Source[E],
	fn func(ctx context.Context, tx pgx.Tx, event E) error,
) error {
	if fn == nil {
		return &fferr.InputError{Field: "fn", Reason: "is nil"}
	}
	return handle(ctx, eng, consumer, src, func(ctx context.Context, tx pgx.Tx, events []E) (int, error) {
		began := time.Now()
		for i, event := range events {
			if err := guarded(tx, func() error { return fn(ctx, tx, event) }); err != nil {
				return i, err
			}
			if ctx.Err() != nil || time.Since(began) > consumerRenew {
				return i + 1, nil
			}
		}
		return len(events), nil
	})
}

// HandleBatches is [HandleWith] for a handler of batches: in order, at least one event, at most [Consumer.Batch].
// Writing a whole batch with one statement is much faster than one event at a time. If a batch fails, HandleBatches
// halves the batch until one succeeds or has a single event, which is then retried alone.
func HandleBatches[E any](
	ctx context.Context, eng *engine.Engine, consumer Consumer, src Source[E],
	fn func(ctx context.Context, tx pgx.Tx, events []E) error,
) error {
	if fn == nil {
		return &fferr.InputError{Field: "fn", Reason: "is nil"}
	}
	return handle(ctx, eng, consumer, src, func(ctx context.Context, tx pgx.Tx, events []E) (int, error) {
		return len(events), guarded(tx, func() error { return fn(ctx, tx, events) })
	})
}

func handle[E any](ctx context.Context, eng *engine.Engine, spec Consumer, src Source[E], call handler[E]) error {
	const op = "handle events"
	spec, err := spec.withDefaults()
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if err := readable(src); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if core.Of(eng).Tx != nil {
		return fmt.Errorf("%s: %w", op, &fferr.InputError{
			Field: "engine", Reason: "is bound to a transaction, which must not wait for other transactions",
		})
	}
	runner := pgtx.NewRunner(eng.Pool())
	c := &consumer[E]{
		Consumer: spec,
		eng:      eng,
		q:        db.New(),
		runner:   runner.ShortWait(),
		src:      src,
		call:     call,
		holder:   newHolder(),
		log:      core.Of(eng).Log.With("outbox", string(src.outbox), "consumer", spec.Name),
		limit:    spec.Batch,
	}
	if err := c.run(ctx); err != nil {
		return fmt.Errorf("%s: consumer %s: %w", op, spec.Name, err)
	}
	return nil
}

// readable returns an error for a source that consumers cannot read.
func readable[E any](src Source[E]) error {
	if src.err == nil && src.decode == nil {
		return &fferr.InputError{Field: "source", Reason: "is the zero value: use Completions, Leases, Signals or OperatorCalls"}
	}
	return src.err
}

// withDefaults returns c with every field set, or an error for the first invalid field.
func (c Consumer) withDefaults() (Consumer, error) {
	invalid := func(field, reason string) (Consumer, error) {
		return c, &fferr.InputError{Field: "Consumer." + field, Reason: reason}
	}
	if err := checkConsumerName(c.Name); err != nil {
		return c, err
	}
	c.Batch = cmp.Or(c.Batch, DefaultConsumerBatch)
	c.MaxTries = cmp.Or(c.MaxTries, DefaultConsumerTries)
	c.Timeout = cmp.Or(c.Timeout, DefaultConsumerTimeout)
	c.Backoff = cmp.Or(c.Backoff, defaultConsumerBackoff)
	switch {
	case c.Batch < 1 || c.Batch > maxConsumerBatch:
		return invalid("Batch", fmt.Sprintf("must be between 1 and %d", maxConsumerBatch))
	case c.MaxTries < 1 && c.MaxTries != TryForever || c.MaxTries > math.MaxInt32:
		return invalid("MaxTries", "must be TryForever, 0 for the default, or between 1 and 2147483647")
	case c.Timeout < time.Second || c.Timeout > 24*time.Hour:
		return invalid("Timeout", "must be between 1s and 24h")
	case c.Backoff.First < 0 || c.Backoff.Max < c.Backoff.First:
		return invalid("Backoff", "must have a First that is not negative and a Max that is not below it")
	case !(c.Backoff.Factor > 0) || math.IsInf(c.Backoff.Factor, 0):
		return invalid("Backoff.Factor", "must be finite and above 0; Fixed and Exponential set it")
	}
	for i, lane := range c.Wake {
		if err := lane.Validate(); err != nil {
			return invalid(fmt.Sprintf("Wake[%d]", i), err.Error())
		}
	}
	return c, nil
}

// checkConsumerName applies the rule for worker instance names to a consumer's name.
func checkConsumerName(name string) error {
	if err := id.WorkerInstanceID(name).Validate(); err != nil {
		return &fferr.InputError{Field: "Consumer.Name", Reason: err.Error()}
	}
	return nil
}
