package tests

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
)

// stopped is a process that stops before it sends one statement for the first time: what it has read by then is old
// when that statement begins. Unlike [fixture.holding] it does not matter what the statement reads, and its snapshot
// is a new one.
type stopped struct {
	*rival
	statement string
	once      sync.Once
	reached   chan struct{}
	resumed   chan struct{}
}

// stoppedBefore returns a process that is going to stop before a statement.
func (f *fixture) stoppedBefore(t *testing.T, statement string) *stopped {
	t.Helper()
	s := &stopped{statement: statement, reached: make(chan struct{}), resumed: make(chan struct{})}
	s.rival = f.rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = s })
	return s
}

// awaitStop returns once the process has stopped.
func (s *stopped) awaitStop(t *testing.T) {
	t.Helper()
	progress.Receive(t, s.statement+" to be sent", s.reached)
}

func (s *stopped) resume() { close(s.resumed) }

func (s *stopped) meet(ctx context.Context, sql string) {
	if strings.HasPrefix(sql, "-- name: "+s.statement+" ") {
		s.once.Do(func() {
			close(s.reached)
			select {
			case <-s.resumed:
			case <-ctx.Done():
			}
		})
	}
}

func (s *stopped) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.meet(ctx, data.SQL)
	return ctx
}

func (*stopped) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *stopped) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		s.meet(ctx, q.SQL)
	}
	return ctx
}

func (*stopped) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (*stopped) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
