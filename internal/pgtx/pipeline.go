package pgtx

import (
	"context"
	"errors"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/db"
)

// A Step is one statement of a transaction: one call of a generated function.
type Step func(conn db.DBTX) error

// sender is a transaction, or a connection with a transaction for each batch.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// InOneTrip runs independent steps in a single round trip, in order, each with its own snapshot as if sent alone. It
// stops at the first error.
//
// Without a server limit (see olderServer), the server could wait for ever for the rest of a batch whose client falls
// silent in the middle. A batch too large to be sent at once is split then. A single statement of this size goes alone.
//
// A generated function sends its statement and reads the answer in one call, so each step is called twice: the first
// call records the statement, the second gets the answer.
func InOneTrip(ctx context.Context, tx sender, steps ...Step) error {
	var batch pgx.Batch
	var sent []Step
	for _, s := range steps {
		switch err := s(noting{&batch}); {
		case errors.Is(err, errNoted):
			sent = append(sent, s)
		case err != nil:
			return err
		}
	}
	if len(sent) == 0 {
		return nil
	}
	if begun, ok := tx.(pgx.Tx); ok && mayBeCut(begun, &batch) {
		for queued := batch.QueuedQueries; len(sent) > 0; {
			n := fitting(queued)
			if err := together(ctx, tx, &pgx.Batch{QueuedQueries: queued[:n]}, sent[:n]); err != nil {
				return err
			}
			queued, sent = queued[n:], sent[n:]
		}
		return nil
	}
	return together(ctx, tx, &batch, sent)
}

// together sends a batch, and passes the answers to the steps.
func together(ctx context.Context, tx sender, batch *pgx.Batch, steps []Step) error {
	results := tx.SendBatch(ctx, batch)
	for _, s := range steps {
		if err := s(answering{results}); err != nil {
			if closed := results.Close(); closed != nil && !errors.Is(err, closed) {
				err = errors.Join(err, closed)
			}
			return err
		}
	}
	return results.Close()
}

// The size of a message usually sent at once.
const maxInOneGo = 64 << 10

// mayBeCut reports whether part of a batch may reach the server, run there, and keep its locks while the rest does not
// arrive, without a limit of the server.
func mayBeCut(tx pgx.Tx, batch *pgx.Batch) bool {
	if limitsTransactions(tx.Conn()) {
		return false
	}
	size := 0
	for _, q := range batch.QueuedQueries {
		size += querySize(q)
	}
	return size > maxInOneGo
}

// fitting returns how many of the first statements can be sent at once: at least one, however large it is.
func fitting(queued []*pgx.QueuedQuery) int {
	size := querySize(queued[0])
	for n := 1; n < len(queued); n++ {
		if size += querySize(queued[n]); size > maxInOneGo {
			return n
		}
	}
	return len(queued)
}

// querySize is the approximate size of the arguments of a statement, in bytes.
func querySize(q *pgx.QueuedQuery) int {
	size := 0
	for _, arg := range q.Arguments {
		switch value := arg.(type) {
		case []byte:
			size += len(value)
		case string:
			size += len(value)
		default:
			size += arraySize(value)
		}
	}
	return size
}

// arraySize is the approximate size of an array, in bytes; 0 if it is not an array.
func arraySize(array any) int {
	const length = 4 // goes before each
	value := reflect.ValueOf(array)
	if value.Kind() != reflect.Slice {
		return 0
	}
	size := value.Len() * length
	switch elements := array.(type) {
	case [][]byte:
		for _, v := range elements {
			size += len(v)
		}
	case []string:
		for _, v := range elements {
			size += len(v)
		}
	default:
		size += value.Len() * int(value.Type().Elem().Size())
	}
	return size
}

var errNoted = errors.New("noted to be sent")

// noting is a connection for recording statements instead of sending them.
type noting struct{ batch *pgx.Batch }

func (n noting) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	n.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, errNoted
}

func (n noting) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	n.batch.Queue(sql, args...)
	return nil, errNoted
}

func (n noting) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	n.batch.Queue(sql, args...)
	return singleRow{err: errNoted}
}

// answering is a connection for the answers of the sent statements.
type answering struct{ results pgx.BatchResults }

func (a answering) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return a.results.Exec()
}

func (a answering) Query(context.Context, string, ...any) (pgx.Rows, error) { return a.results.Query() }

func (a answering) QueryRow(context.Context, string, ...any) pgx.Row { return a.results.QueryRow() }
