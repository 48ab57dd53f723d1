package events

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/internal/warn"
)

const (
	consumerHold  = 4 * time.Second // consumerHold is how long a hold lasts unless it is renewed.
	consumerRenew = time.Second     // consumerRenew is how often the holder renews, and how often other processes check.
	consumerGoing = 3 * time.Second // consumerGoing bounds the cleanup after ctx has ended.

	firstOutage = 200 * time.Millisecond // firstOutage is the first pause after a database failure; it doubles.
	lastOutage  = 5 * time.Second
)

// item is a read event, not yet handled.
type item[E any] struct {
	row   *outbox.Row
	event E
	err   error // why the event cannot be read, or nil
}

// consumer is one call of [Handle]. A single goroutine renews the hold, reads and handles, in turn.
//
// The fields only cache the row. Every write is guarded: a handler's transaction locks the row and continues only if
// the row has this holder and this position. So a process that froze or lost the hold does no harm.
type consumer[E any] struct {
	Consumer
	eng    *engine.Engine
	q      *db.Queries
	runner pgtx.Runner
	src    Source[E]
	call   handler[E]
	holder string
	log    *slog.Logger
	cannot warn.Repeated

	begun  bool // the consumer exists in the database
	held   bool
	kept   time.Time // when the hold was last renewed or the position moved
	stored int64     // the position as last written or read

	sub     *outbox.Subscription // reads after stored; nil if not subscribed
	endSub  context.CancelFunc
	pending []item[E]

	fresh   bool      // this call created the consumer and has not read anything yet
	failing int64     // the failing event, from the row; 0 for none
	tries   int       // failures on this event so far
	nextTry time.Time // when to try again
	alone   int64     // an event of a failed batch, tried alone next
	limit   int       // largest batch; halved while the failing event is unknown
	excused int       // consecutive failures not counted against an event
}

// newHolder returns a name for this call: host, process id and a random part.
func newHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var chance [6]byte
	_, _ = rand.Read(chance[:]) // never fails
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), hex.EncodeToString(chance[:]))
}

// errLost reports that nothing was written, because another process holds the consumer, its position was moved, or its
// row is locked.
var errLost = errors.New("the consumer is not held")

// run works until ctx ends or an error ends the consumer.
func (c *consumer[E]) run(ctx context.Context) error {
	defer c.stop(ctx)
	outage := backoff.Backoff{First: firstOutage, Max: lastOutage}
	next := c.ensure
	for ctx.Err() == nil {
		err := next(ctx)
		switch {
		case err == nil:
			outage.Reset()
			next, c.begun = c.step, true
		case ctx.Err() != nil:
		case !c.begun && !errors.Is(err, fferr.ErrTransport): // retry a cut connection even before the first step
			return err
		case errors.Is(err, errLost):
			c.held = false
		case c.fresh && c.From == Beginning && errors.Is(err, ErrGap):
			if err := c.startAnew(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		case endsConsumer(err):
			return err
		default:
			c.cannot.Log(c.log, "consumer failed; retrying: check the database and the rights of its role", "error", err)
			c.held = false
			backoff.Wait(ctx, outage.Next())
		}
	}
	return nil
}

// endsConsumer reports whether the consumer cannot continue without an operator's decision.
func endsConsumer(err error) bool {
	return errors.Is(err, ErrGap) || errors.Is(err, ErrNotKept) || errors.Is(err, ErrCursorAhead) || errors.Is(err, ErrClosed) ||
		errors.Is(err, fferr.ErrNotFound) || errors.Is(err, fferr.ErrCorruption)
}

// step does the next thing: renew the hold, wait for it, read, or handle.
func (c *consumer[E]) step(ctx context.Context) error {
	if !c.held || time.Since(c.kept) >= consumerRenew {
		if err := c.take(ctx); err != nil || !c.held {
			return err
		}
	}
	if c.sub == nil {
		if err := c.subscribe(ctx); err != nil {
			return err
		}
	}
	if len(c.pending) == 0 {
		return c.read(ctx)
	}
	return c.work(ctx)
}

// examined returns the last event handled or left out by the filter.
func (c *consumer[E]) examined() int64 {
	if c.sub == nil || len(c.pending) > 0 {
		return c.stored
	}
	return max(c.stored, c.sub.Position())
}

// take acquires or renews the hold. If another process has it, take waits for a while.
func (c *consumer[E]) take(ctx context.Context) error { return c.takeAt(ctx, c.examined()) }

// takeAt is like take, and stores a new position if the hold is ours.
func (c *consumer[E]) takeAt(ctx context.Context, at int64) error {
	began := time.Now()
	row, err := pgtx.InStatement(ctx, &c.runner, func(conn db.DBTX) (db.TakeConsumerRow, error) {
		return c.q.TakeConsumer(ctx, conn, db.TakeConsumerParams{
			Outbox: string(c.src.outbox), Consumer: c.Name, Holder: c.holder, HoldMs: consumerHold.Milliseconds(),
			SeenEventID: c.stored, EventID: at,
		})
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return &fferr.NotFoundError{Entity: "consumer", ID: c.Name}
	}
	if err != nil {
		return core.OutcomeOf("take consumer", err)
	}
	if !row.Ours {
		c.held = false
		wait := consumerRenew
		if row.HeldMs > 0 {
			c.forget()
			wait = min(wait, time.Duration(row.HeldMs)*time.Millisecond)
		}
		backoff.Wait(ctx, wait)
		return nil
	}
	if row.EventID != c.stored && row.EventID != at {
		c.forget() // the position was moved, or another process has worked
	}
	c.held, c.kept, c.stored = true, began, row.EventID
	c.failing, c.tries = row.FailingEventID, int(row.Tries)
	c.nextTry = time.Now().Add(time.Duration(row.NextTryMs) * time.Millisecond)
	return nil
}

// ensure creates the consumer if it does not exist.
func (c *consumer[E]) ensure(ctx context.Context) error {
	err := c.take(ctx)
	if !errors.Is(err, fferr.ErrNotFound) {
		return err
	}
	for {
		at, err := c.start(ctx)
		if err != nil {
			return err
		}
		made, err := pgtx.InStatement(ctx, &c.runner, func(conn db.DBTX) (int64, error) {
			return c.q.EnsureConsumer(ctx, conn, db.EnsureConsumerParams{
				Outbox: string(c.src.outbox), Consumer: c.Name, EventID: at,
			})
		})
		if errors.Is(err, pgtx.ErrBusy) {
			if !backoff.Wait(ctx, consumerRenew) { // another process is creating the consumer
				return ctx.Err()
			}
			continue
		}
		c.fresh = made > 0
		return core.OutcomeOf("make consumer", err)
	}
}

// startAnew moves a new consumer to the oldest event again, since trimming has passed its position.
func (c *consumer[E]) startAnew(ctx context.Context) error {
	at, err := c.start(ctx)
	if err != nil {
		return err
	}
	return c.takeAt(ctx, at)
}

// start returns the position at which a new consumer begins.
func (c *consumer[E]) start(ctx context.Context) (int64, error) {
	if c.From == Beginning {
		ends, err := pgtx.InStatement(ctx, &c.runner, func(conn db.DBTX) (db.GetOutboxEndsRow, error) {
			return c.q.GetOutboxEnds(ctx, conn, string(c.src.outbox))
		})
		return ends.FloorEventID, core.OutcomeOf("make consumer", err)
	}
	sub, end, err := c.open(ctx, c.From.after())
	if err != nil {
		return 0, err
	}
	defer end()
	defer sub.Close()
	return sub.Position(), nil
}

// subscribe starts reading after the stored position.
func (c *consumer[E]) subscribe(ctx context.Context) (err error) {
	c.sub, c.endSub, err = c.open(ctx, &c.stored)
	return err
}

// stop releases the consumer, even if ctx has ended.
func (c *consumer[E]) stop(ctx context.Context) {
	examined := c.examined()
	c.forget()
	if !c.held {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), consumerGoing)
	defer cancel()
	err := c.q.ReturnConsumer(ctx, c.runner.AtOnce(), db.ReturnConsumerParams{
		Outbox: string(c.src.outbox), Consumer: c.Name, Holder: c.holder, SeenEventID: c.stored, EventID: examined,
	})
	if err != nil {
		c.log.Warn("cannot release the consumer; others take over within seconds: no action is needed", "error", err)
	}
}

// forget discards the subscription and the pending events.
func (c *consumer[E]) forget() {
	if c.sub != nil {
		c.sub.Close()
		c.endSub()
	}
	c.sub, c.endSub, c.pending = nil, nil, nil
	c.alone, c.limit = 0, c.Batch
}

// read waits for events until the hold has to be renewed.
func (c *consumer[E]) read(ctx context.Context) error {
	waiting, cancel := context.WithDeadline(ctx, c.kept.Add(consumerRenew))
	defer cancel()
	rows, err := c.sub.Batch(waiting, c.Batch)
	if err != nil && waiting.Err() != nil {
		return nil
	}
	if err != nil {
		return publicError(err)
	}
	c.fresh = false
	for _, row := range rows {
		event, err := c.src.decode(row)
		c.pending = append(c.pending, item[E]{row, event, err})
	}
	return nil
}

// open subscribes after an event, or from now on if after is nil. The caller closes the subscription and cancels its
// context.
func (c *consumer[E]) open(ctx context.Context, after *int64) (*outbox.Subscription, context.CancelFunc, error) {
	ctx, cancel := context.WithCancel(ctx)
	sub, err := outbox.Of(core.Of(c.eng)).Subscribe(ctx, c.src.outbox, outbox.Options{
		After: after, Buffer: max(DefaultBuffer, c.Batch), Filter: c.src.filter,
	})
	if err != nil {
		cancel()
		return nil, nil, publicError(err)
	}
	return sub, cancel, nil
}
