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
	"github.com/flowfabric/flowfabric-go/internal/backoff"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// handler handles events in a transaction and returns how many were handled. After a failure, the number is the index
// of the failed event, or len(events) if the failed event is unknown.
type handler[E any] func(ctx context.Context, tx pgx.Tx, events []E) (int, error)

const (
	maxExcused     = 3                // consecutive failures blamed on the server before one counts against the event
	maxErrorText   = 16 << 10         // limit for a stored handler error, in bytes
	commitTimeout  = 30 * time.Second // for storing the position and committing
	serverPatience = 2 * time.Second  // how much longer than the handler's context the server waits
)

// handlerError reports a handler's failed transaction, rolled back.
type handlerError struct {
	at  int // index of the failed event; the number of events if unknown
	err error
}

// work handles the first pending events in one transaction.
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
	c.log.Warn("handler failed in a batch; retrying with fewer events until one is left", "events", n)
	return nil
}

// next returns how many pending events the next transaction takes. It stops before an unreadable event, and takes an
// event that failed before by itself.
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

// advance drops the first n pending events, which are handled.
func (c *consumer[E]) advance(n int) {
	c.stored, c.kept = c.pending[n-1].row.ID, time.Now()
	clear(c.pending[:n])
	c.pending = c.pending[n:]
	c.failing, c.tries = 0, 0
}

// try handles items in one transaction. It returns how many were committed, fewer than all if ctx ended, or the handler's
// failure. err is any other failure: the hold is lost, the database failed, or ctx ended. A commit may then have
// succeeded; the next step reads the position from the row before it does anything else.
func (c *consumer[E]) try(ctx context.Context, items []item[E]) (done int, failed *handlerError, err error) {
	timed, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	tx, err := c.runner.BeginForeign(timed, c.Timeout+serverPatience)
	if err != nil {
		return 0, nil, core.OutcomeOf("begin", err)
	}
	defer pgtx.Rollback(tx)
	_, err = c.q.LockConsumer(timed, tx, db.LockConsumerParams{
		Outbox: string(c.src.outbox), Consumer: c.Name, Holder: c.holder, EventID: c.stored,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil, errLost
	}
	if err != nil {
		return 0, nil, core.OutcomeOf("lock consumer", err)
	}
	events := make([]E, len(items))
	for i := range items {
		events[i] = items[i].event
	}
	done, err = c.call(timed, handlerTx{tx}, events)
	if err != nil {
		return c.failed(ctx, timed, tx, done, err)
	}

	// Commit handled events even if ctx has ended, since the outcome of an interrupted commit is unknown.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	n, err := c.q.AdvanceConsumer(ending, tx, db.AdvanceConsumerParams{
		Outbox: string(c.src.outbox), Consumer: c.Name, Holder: c.holder, HoldMs: consumerHold.Milliseconds(),
		EventID: c.stored, ToEventID: items[done-1].row.ID,
	})
	switch {
	case err == nil && n == 0:
		return 0, nil, errLost // the handler changed the consumer's row
	case err == nil:
		err = tx.Commit(ending)
	}
	if err != nil {
		return c.failed(ctx, timed, tx, len(items), err)
	}
	return done, nil, nil
}

// failed decides whether a failed transaction counts against the event.
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
		return 0, nil, core.OutcomeOf("handle", err)
	case (tx.Conn().IsClosed() || isConflict(err)) && c.excused < maxExcused:
		c.excused++
		return 0, nil, core.OutcomeOf("handle", err)
	}
	return 0, &handlerError{at, err}, nil
}

// isCut reports whether the network or the server ended the connection, rather than the handler by closing the
// connection or by a context of its own.
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

// isConflict reports whether the server aborted the transaction in favour of another.
func isConflict(err error) bool {
	switch pgtx.SQLState(err) {
	case "40001", "40P01", "55P03":
		return true
	}
	return false
}

// count records a failure of the first pending event, which was tried alone.
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
		return core.OutcomeOf("note failure", err)
	}
	if n == 0 {
		return errLost
	}
	c.log.Warn("handler failed on an event; retrying: see the error",
		"event", event, "tries", tries, "again_in", pause, "error", errorText(reason))
	c.failing, c.tries, c.nextTry = event, tries, time.Now().Add(pause)
	return nil
}

// pause returns how long to wait after the given number of failures.
func (c *consumer[E]) pause(tries int) time.Duration {
	b := c.Backoff
	pause := min(float64(b.First)*math.Pow(b.Factor, float64(tries-1)), float64(b.Max))
	if b.Jitter {
		pause -= rand.Float64() * pause / 2
	}
	return time.Duration(pause)
}

// setAside stores the first pending event with its error for an operator, and moves the position past it.
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
		return core.OutcomeOf("set event aside", err)
	}
	if n == 0 {
		return errLost
	}
	c.log.Error("event was set aside: fix the cause, then retry or forget it",
		"event", row.ID, "tries", tries, "error", errorText(reason))
	c.advance(1)
	return nil
}

// handlerTx is the handler's transaction. Only the consumer may end it.
type handlerTx struct{ pgx.Tx }

var (
	errNotToEnd = errors.New("only the consumer may end the transaction of an event handler")
	errAborted  = errors.New("the handler left its transaction aborted, and returned no error")
	errClosed   = errors.New("the connection of the handler's transaction is closed")
	errEnded    = errors.New("the handler ended its transaction")
)

func (handlerTx) Commit(context.Context) error { return errNotToEnd }

func (handlerTx) Rollback(context.Context) error { return errNotToEnd }

// panicked is the error of a handler after a panic.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// guarded calls a handler. It returns an error if the handler fails, panics, or leaves the transaction unusable.
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

// errorText returns the text to store for a handler's error: valid UTF-8, at most maxErrorText bytes.
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
