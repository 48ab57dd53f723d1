package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// handler handles events in a transaction, and returns how many of them it is through with; with an error, it is the next
// one that it failed at, or, if none is left, nobody knows which.
type handler[E any] func(ctx context.Context, tx pgx.Tx, events []E) (int, error)

const (
	maxExcused     = 3                // failures in a row that may be the server's, before one is the event's
	maxErrorText   = 16 << 10         // of what is kept of a handler's error, in bytes
	commitTimeout  = 30 * time.Second // for the end of a transaction whose handler is through
	serverPatience = 2 * time.Second  // how much longer than the handler's context the server waits
)

// handlerError is a transaction of the handler that was rolled back because of it.
type handlerError struct {
	at  int // of the events; as many as there are: nobody knows
	err error
}

// work handles the first of the pending events, as many as one transaction is to take.
func (c *consumer[E]) work(ctx context.Context) error {
	first := c.pending[0]
	if first.err != nil {
		return c.setAside(ctx, 0, first.err)
	}
	if wait := time.Until(c.nextTry); first.row.ID == c.failing && wait > 0 {
		backoff.Wait(ctx, min(wait, time.Until(c.kept.Add(consumerRenew))))
		return nil
	}
	n := c.next()
	done, failed, err := c.try(ctx, c.pending[:n])
	switch {
	case err != nil:
		return err
	case failed == nil:
		c.advance(done)
		c.limit = min(2*c.limit, c.Batch)
		c.excused = 0
		if len(c.Wake) > 0 {
			c.eng.Wake(c.Wake...)
		}
		return nil
	case n == 1:
		c.excused = 0
		return c.count(ctx, failed.err)
	case failed.at == n:
		c.limit = n / 2
	default:
		c.alone = c.pending[failed.at].row.ID
	}
	c.log.Warn("handler failed in a batch; the event it failed at is tried by itself, and logged then", "events", n)
	return nil
}

// next returns how many of the pending events the next transaction takes: none that cannot be read, and by itself what was
// failed at.
func (c *consumer[E]) next() int {
	own := func(i int) bool { return c.pending[i].row.ID == c.failing || c.pending[i].row.ID == c.alone }
	if own(0) {
		return 1
	}
	for i := 1; i < len(c.pending) && i < c.limit; i++ {
		if own(i) || c.pending[i].err != nil {
			return i
		}
	}
	return min(len(c.pending), c.limit)
}

// advance notes that the first n pending events are over and done with.
func (c *consumer[E]) advance(n int) {
	c.stored, c.kept = c.pending[n-1].row.ID, time.Now()
	clear(c.pending[:n])
	c.pending = c.pending[n:]
	c.failing, c.tries = 0, 0
}

// try handles items in one transaction and returns how many were committed, fewer when ctx has ended; or why it was rolled
// back. An error is not the handler's: the consumer is lost, or the database is, or ctx has ended. Whether a commit was
// under way then, the row will tell: its position is read before anything else is done.
func (c *consumer[E]) try(ctx context.Context, items []item[E]) (done int, failed *handlerError, err error) {
	timed, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	tx, err := c.runner.BeginForeign(timed, c.Timeout+serverPatience)
	if err != nil {
		return 0, nil, engine.Classify("begin", err)
	}
	defer pgtx.Rollback(tx)
	_, err = c.q.LockConsumer(timed, tx, db.LockConsumerParams{
		Outbox: string(c.src.outbox), Consumer: c.Name, Holder: c.holder, EventID: c.stored,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil, errLost
	}
	if err != nil {
		return 0, nil, engine.Classify("lock consumer", err)
	}
	events := make([]E, len(items))
	for i := range items {
		events[i] = items[i].event
	}
	done, err = c.call(timed, handlerTx{tx}, events)
	if err != nil {
		return c.failed(ctx, timed, tx, done, err)
	}

	// What the handler is through with is committed although ctx has ended: nobody would know of a commit that is cut.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	n, err := c.q.AdvanceConsumer(ending, tx, db.AdvanceConsumerParams{
		Outbox: string(c.src.outbox), Consumer: c.Name, Holder: c.holder, HoldMs: consumerHold.Milliseconds(),
		EventID: c.stored, ToEventID: items[done-1].row.ID,
	})
	switch {
	case err == nil && n == 0:
		return 0, nil, errLost // the handler has written to the row
	case err == nil:
		err = tx.Commit(ending)
	}
	if err != nil {
		return c.failed(ctx, timed, tx, len(items), err)
	}
	return done, nil, nil
}

// failed decides whose fault it is that a transaction failed.
func (c *consumer[E]) failed(ctx, timed context.Context, tx pgx.Tx, at int, err error) (int, *handlerError, error) {
	switch {
	case ctx.Err() != nil:
		return 0, nil, ctx.Err()
	case timed.Err() != nil:
		err = fmt.Errorf("it took longer than %v: %w", c.Timeout, err)
	case tx.Conn().IsClosed() && isCut(err):
		c.excused++
		if more := c.excused - maxExcused; more > 0 {
			backoff.Wait(ctx, min(firstOutage<<min(more, 8), lastOutage))
		}
		return 0, nil, engine.Classify("handle", err)
	case (tx.Conn().IsClosed() || isConflict(err)) && c.excused < maxExcused:
		c.excused++
		return 0, nil, engine.Classify("handle", err)
	}
	return 0, &handlerError{at, err}, nil
}

// isCut reports whether an error comes from a connection that the network or the server ended, and not the handler by
// closing it or by a context of its own.
func isCut(err error) bool {
	if code := pgtx.SQLState(err); code != "" {
		return strings.HasPrefix(code, "57P") || strings.HasPrefix(code, "08")
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// isConflict says whether the server aborted a transaction in favour of another.
func isConflict(err error) bool {
	switch pgtx.SQLState(err) {
	case "40001", "40P01", "55P03":
		return true
	}
	return false
}

// count counts a failure at the first pending event, which was tried alone.
func (c *consumer[E]) count(ctx context.Context, reason error) error {
	event := c.pending[0].row.ID
	tries := 1
	if event == c.failing {
		tries = c.tries + 1
	}
	if c.MaxTries != TryForever && tries >= c.MaxTries {
		return c.setAside(ctx, tries, reason)
	}
	pause := c.pause(tries)
	n, err := pgtx.InStatement(ctx, &c.runner, func(conn db.DBTX) (int64, error) {
		return c.q.NoteFailedTry(ctx, conn, db.NoteFailedTryParams{
			Outbox: string(c.src.outbox), Consumer: c.Name, EventID: c.stored, FailingEventID: event,
			TriesBefore: int32(tries - 1), Tries: int32(tries), PauseMs: pause.Milliseconds(), LastError: errorText(reason),
		})
	})
	if err != nil {
		return engine.Classify("note failure", err)
	}
	if n == 0 {
		return errLost
	}
	c.log.Warn("handler failed at an event; it is tried again: see the error",
		"event", event, "tries", tries, "again_in", pause, "error", errorText(reason))
	c.failing, c.tries, c.nextTry = event, tries, time.Now().Add(pause)
	return nil
}

// pause returns how long to wait after so many failures.
func (c *consumer[E]) pause(tries int) time.Duration {
	b := c.Backoff
	pause := min(float64(b.First)*math.Pow(b.Factor, float64(tries-1)), float64(b.Max))
	if b.Jitter {
		pause -= rand.Float64() * pause / 2
	}
	return time.Duration(pause)
}

// setAside goes past the first pending event and keeps it for a person to look at.
func (c *consumer[E]) setAside(ctx context.Context, tries int, reason error) error {
	row := c.pending[0].row
	event, err := storeEvent(c.src.outbox, row)
	if err != nil {
		return err
	}
	n, err := pgtx.InStatement(ctx, &c.runner, func(conn db.DBTX) (int64, error) {
		return c.q.SetAsideEvent(ctx, conn, db.SetAsideEventParams{
			Outbox: string(c.src.outbox), Consumer: c.Name, Holder: c.holder, HoldMs: consumerHold.Milliseconds(),
			FromEventID: c.stored, EventID: row.ID, Event: event, Tries: int32(tries), LastError: errorText(reason),
		})
	})
	if err != nil {
		return engine.Classify("set event aside", err)
	}
	if n == 0 {
		return errLost
	}
	c.log.Error("event was set aside: once the cause is mended, retry or forget it",
		"event", row.ID, "tries", tries, "error", errorText(reason))
	c.advance(1)
	return nil
}

// handlerTx is the transaction as the handler has it: the consumer ends it.
type handlerTx struct{ pgx.Tx }

var (
	errNotToEnd = errors.New("the transaction of an event handler is ended by its consumer")
	errAborted  = errors.New("the handler left its transaction aborted, and returned no error")
	errClosed   = errors.New("the connection of the handler's transaction is closed")
	errEnded    = errors.New("the handler ended its transaction")
)

func (handlerTx) Commit(context.Context) error { return errNotToEnd }

func (handlerTx) Rollback(context.Context) error { return errNotToEnd }

// panicked is what a handler panicked with.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// guarded calls a handler. Its panic is an error, and so is a transaction with which nothing more can be done.
func guarded(tx pgx.Tx, call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicked{value, debug.Stack()}
		}
	}()
	if err := call(); err != nil {
		return err
	}
	switch conn := tx.Conn().PgConn(); {
	case conn.IsClosed():
		return errClosed
	case conn.TxStatus() == 'E':
		return errAborted
	case conn.TxStatus() == 'I':
		return errEnded
	}
	return nil
}

// errorText is how a handler's error is kept.
func errorText(err error) string {
	text := err.Error()
	if p, ok := errors.AsType[*panicked](err); ok {
		text += "\n\n" + string(p.stack)
	}
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= maxErrorText {
		return text
	}
	cut := maxErrorText
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}
