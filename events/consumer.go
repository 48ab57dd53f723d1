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
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/policy"
)

// TryForever as [Consumer.MaxTries]: no event is ever set aside, and the first that cannot be handled holds up all others.
const TryForever = -1

// Consumer names a consumer and says how it works. The zero value of every field but the name is its default.
type Consumer struct {
	// Name is the consumer's, in its outbox: 1 to 255 bytes of UTF-8 without control characters or "|". Processes that give
	// the same name share the work, one at a time, and go on where the last one stopped. Consumers of one name in two
	// outboxes are two consumers.
	Name string

	// From is where it begins when the database does not know it yet: [Beginning], with the oldest event that is kept, or
	// behind another cursor. Default: with what is committed from its making on. Later calls have no effect.
	From Cursor

	// Batch is how many events go into one transaction at most, to 1024. Default 256.
	Batch int

	// MaxTries is how often the handler may fail at an event, alone, before that is set aside. Default 10. [TryForever]: any
	// number of times.
	MaxTries int

	// Backoff is the pause after each of these failures. Default: from 1 s on doubling up to 5 min, each of random length
	// between half and all of it.
	Backoff policy.Backoff

	// Timeout is how long a transaction may take, from 1 s: its context ends then, and a server that has heard nothing of the
	// process for two seconds longer ends it. So it is also how long a process that was stopped in the middle of one keeps
	// others from taking over. Default 60 s.
	Timeout time.Duration

	// Wake are the lanes that the handler creates work on: their workers are woken after each commit. Default: none, and the
	// work is found at their next poll.
	Wake []id.LaneID
}

// Defaults of [Consumer].
const (
	DefaultConsumerBatch   = 256
	DefaultConsumerTries   = 10
	DefaultConsumerTimeout = time.Minute
)

const maxConsumerBatch = 1024

// defaultConsumerBackoff is the pause between tries.
var defaultConsumerBackoff = policy.Backoff{First: time.Second, Max: 5 * time.Minute, Factor: 2, Jitter: true}

// Handle runs fn for each event of a source as the consumer of that name, with the defaults of [Consumer]: see
// [HandleWith].
func Handle[E any](
	ctx context.Context, eng *engine.Engine, name string, src Source[E],
	fn func(ctx context.Context, tx pgx.Tx, event E) error,
) error {
	return HandleWith(ctx, eng, Consumer{Name: name}, src, fn)
}

// HandleWith runs fn for each event of a source, in order, as a named consumer, until ctx ends. What fn writes by tx is
// committed together with the consumer's position: in that database each event has its effects exactly once, whatever is
// killed, cut off or restarted. What fn does elsewhere (a call of another system, a file) may happen again.
//
// fn runs in the middle of a transaction at READ COMMITTED, with the events before and behind it: up to [Consumer.Batch]
// of those that are there at the moment, and no more than are handled in a second or so. It may use tx for anything but Commit and Rollback, which are refused, and by
// [engine.Engine.WithTx] for operations of the engine. It should be quick: the transaction holds what it has locked, and
// readers of the outboxes that it writes to wait for its end. Its context ends with ctx and after [Consumer.Timeout].
//
// **One at a time.** Any number of processes may run a consumer; one works, the others look every second. When that
// one ends they take over with their next look; when it is killed, within five seconds; when it is stopped in the middle
// of a transaction, once the server has ended that, by Consumer.Timeout. At no time are two transactions of one consumer
// under way: each has locked the consumer's row.
//
// **Failures.** An error or a panic of fn, a transaction that it leaves aborted, and a commit that the server refuses,
// roll the transaction back. The events before the one that failed are then handled anew and committed, and that one is
// tried alone: so fn may see an event more than once, but its earlier writes are gone. Its failures alone are counted, in
// the database, with growing pauses between them, across restarts. After [Consumer.MaxTries] it is set aside with its
// content ([SetAside]), and the consumer goes on behind it; so is, at once, an event that cannot be read. A transaction
// that the server aborted in favour of others is repeated at once, three times, before that counts as a failure of the
// event. A connection that the network or the server cuts never counts: the transaction is repeated with growing pauses,
// as an outage of the database is waited out. Return the error of the connection, wrapped or not. If the handler hides
// it, the fourth cut in a row counts.
//
// A consumer of that name that has come further, in an earlier process or with another filter, goes on from there: its
// position is one number, and a wider filter does not go back. [MoveConsumer] does, also while it runs. As long as it
// was stored in the last seven days, no event behind it is trimmed. A consumer that is not needed any more wants
// [RemoveConsumer].
//
// Errors: nil after ctx has ended, and the transaction under way with it; its position is stored then and the next process
// takes over. Before it starts: [engine.ErrInvalidInput], also for an engine bound to a transaction; what [Subscribe]
// returns; [engine.ErrNotMigrated], [engine.ErrReadOnly], [engine.ErrUnavailable] and whatever else keeps it from the
// database. Later a [*GapError], when events that it has not seen are gone, a [*CursorAheadError], when the database
// is older than its position: somebody decides where to go on, and calls [MoveConsumer]. [engine.ErrNotFound] when it was
// removed meanwhile.
//
// Connections: one of the pool for each transaction, and for a moment each second; the engine's listener as [Subscribe].
func HandleWith[E any](
	ctx context.Context, eng *engine.Engine, consumer Consumer, src Source[E],
	fn func(ctx context.Context, tx pgx.Tx, event E) error,
) error {
	if fn == nil {
		return &engine.InputError{Field: "fn", Reason: "is nil"}
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

// HandleBatches is [HandleWith] for a handler that takes events by the batch, in order, at least one and at most
// [Consumer.Batch]: what it writes of all of them by one statement is much faster than one by one. A batch that fails is
// halved until it goes through or one event is left, which is then tried alone.
func HandleBatches[E any](
	ctx context.Context, eng *engine.Engine, consumer Consumer, src Source[E],
	fn func(ctx context.Context, tx pgx.Tx, events []E) error,
) error {
	if fn == nil {
		return &engine.InputError{Field: "fn", Reason: "is nil"}
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
	if eng.Tx() != nil {
		return fmt.Errorf("%s: %w", op, &engine.InputError{
			Field: "engine", Reason: "is bound to a transaction, which must not wait for what others commit",
		})
	}
	runner := pgtx.NewRunner(eng.Pool())
	c := &consumer[E]{
		Consumer: spec,
		eng:      eng,
		q:        db.New(),
		runner:   runner.Impatient(),
		src:      src,
		call:     call,
		holder:   newHolder(),
		log:      eng.Log().With("outbox", string(src.outbox), "consumer", spec.Name),
		limit:    spec.Batch,
	}
	if err := c.run(ctx); err != nil {
		return fmt.Errorf("%s: consumer %s: %w", op, spec.Name, err)
	}
	return nil
}

// readable refuses a source that a consumer cannot read.
func readable[E any](src Source[E]) error {
	if src.err == nil && src.decode == nil {
		return &engine.InputError{Field: "source", Reason: "is the zero value: Completions, Leases, Signals and OperatorCalls make one"}
	}
	return src.err
}

// withDefaults returns c with every field set, or why it cannot be.
func (c Consumer) withDefaults() (Consumer, error) {
	invalid := func(field, reason string) (Consumer, error) {
		return c, &engine.InputError{Field: "Consumer." + field, Reason: reason}
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

// checkConsumerName holds a consumer's name to the rule of names that people give to processes.
func checkConsumerName(name string) error {
	if err := id.WorkerInstanceID(name).Validate(); err != nil {
		return &engine.InputError{Field: "Consumer.Name", Reason: err.Error()}
	}
	return nil
}
