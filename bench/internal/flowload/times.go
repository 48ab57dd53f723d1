package flowload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// times collects the durations of calls, by their name.
type times struct {
	mu    sync.Mutex
	calls map[string][]time.Duration
}

func newTimes() *times { return &times{calls: make(map[string][]time.Duration)} }

func (t *times) add(what string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls[what] = append(t.calls[what], took)
}

// print writes a line for each kind of call, and returns the longest duration.
func (t *times) print(out io.Writer) (slowest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "call\tcalls\tp50, ms\tp99, ms\tlongest, ms\t")
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }
	for _, what := range slices.SortedFunc(maps.Keys(t.calls), cmp.Compare[string]) {
		took := t.calls[what]
		slices.Sort(took)
		longest := took[len(took)-1]
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t\n", what, len(took), ms(took[len(took)/2]), ms(took[len(took)*99/100]), ms(longest))
		slowest = max(slowest, longest)
	}
	_ = table.Flush() // the underlying writer reports errors itself
	return slowest
}

// givenUp counts statements that the server aborted in favour of others.
type givenUp struct{ locks, deadlocks atomic.Int64 }

func (g *givenUp) note(err error) {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pgErr.Code {
		case "55P03":
			g.locks.Add(1)
		case "40P01":
			g.deadlocks.Add(1)
		}
	}
}

func (g *givenUp) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (g *givenUp) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	g.note(data.Err)
}

func (g *givenUp) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (g *givenUp) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	g.note(data.Err)
}

func (g *givenUp) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
