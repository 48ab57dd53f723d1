package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/flowfabric/flowfabric-go/review/internal/arguments"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// need has the locks of a query on the untouched base.
type need struct {
	project.Query
	analysed held     // when the server analyses the query
	ran      held     // when the query runs, as far as possible
	keyed    held     // by the foreign keys of its inserts and deletes, if any
	args     []string // of the run, as literals
}

// readNeeds finds the locks of each query.
func (o *observation) readNeeds(ctx context.Context) error {
	if len(o.Queries) == 0 {
		return nil
	}
	for range 4 {
		conn, err := o.session(ctx)
		if err != nil {
			return err
		}
		o.trying = append(o.trying, conn)
	}
	values, err := arguments.New(ctx, o.watch)
	if err != nil {
		return err
	}
	keys, err := o.readKeys(ctx)
	if err != nil {
		return err
	}
	unread := 0
	for _, q := range o.Queries {
		n, understood, err := o.needOf(ctx, q, values)
		if err != nil {
			return fmt.Errorf("query %s: %w", q.Name, err)
		}
		if !understood {
			unread++
		}
		n.keyed = keys.of(q.SQL)
		o.needs = append(o.needs, n)
	}
	if unread > 0 {
		o.result.Skipped = append(o.result.Skipped, fmt.Sprintf("%d of %d queries cannot be tried on base's schema as sqlc gives them, so whether they would wait is not known", unread, len(o.Queries)))
	}
	return nil
}

func (o *observation) needOf(ctx context.Context, q project.Query, values *arguments.Values) (_ need, understood bool, err error) {
	n := need{Query: q, analysed: held{}, ran: held{}}
	if !arguments.Runnable(q.SQL) {
		return n, false, nil
	}
	conn := o.trying[0]
	pid := conn.PgConn().PID()
	if err := exec(ctx, conn, "BEGIN"); err != nil {
		return n, false, err
	}
	defer func() {
		if ctx.Err() == nil {
			err = errors.Join(err, exec(ctx, conn, "ROLLBACK"), conn.PgConn().Deallocate(ctx, prepared))
		}
	}()
	description, err := conn.PgConn().Prepare(ctx, prepared, q.SQL, nil)
	if err != nil {
		if isServers(err) {
			return n, false, nil
		}
		return n, false, err
	}
	if n.analysed, err = o.old.readLocks(ctx, o.watch, pid, false, true); err != nil {
		return n, true, err
	}
	if n.args, err = values.For(ctx, q.SQL, description.ParamOIDs); err != nil {
		return n, true, err
	}
	// A longer query sleeps, or waits for an event that does not come.
	if err := exec(ctx, conn, "SET LOCAL statement_timeout = '5s'; "+arguments.Execute(prepared, n.args)); err != nil {
		if isServers(err) {
			return n, true, nil // the locks have gone with the failed transaction
		}
		return n, true, err
	}
	n.ran, err = o.old.readLocks(ctx, o.watch, pid, false, true)
	return n, true, err
}

const prepared = "review" // the name of the current query in its session

// waiting tries the queries that may conflict with the held locks, and returns the waiting ones, by name.
func (o *observation) waiting(ctx context.Context, h held) ([]report.Waiting, error) {
	strong := held{}
	for oid, m := range h {
		if m >= share {
			strong[oid] = m
		}
	}
	if len(strong) == 0 || len(o.needs) == 0 {
		return nil, nil
	}
	key := strong.key()
	if known, found := o.seen[key]; found {
		return known, nil
	}
	queue := make(chan need)
	waits := make(chan report.Waiting, len(o.needs))
	group, ctx := errgroup.WithContext(ctx)
	for _, conn := range o.trying {
		group.Go(func() error {
			for n := range queue {
				waited, err := o.try(ctx, conn, n, strong)
				if err != nil {
					return fmt.Errorf("try query %s: %w", n.Name, err)
				}
				if waited {
					waits <- report.Waiting{Query: n.Name, Operations: n.Operations}
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		defer close(queue)
		for _, n := range o.needs {
			if !n.analysed.meets(strong) && !n.ran.meets(strong) && !n.keyed.meets(strong) {
				continue
			}
			select {
			case queue <- n:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	close(waits)
	var list []report.Waiting
	for w := range waits {
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b report.Waiting) int { return strings.Compare(a.Query, b.Query) })
	o.seen[key] = list
	return list, nil
}

// try reports whether a query waits for one of the locks now. If analysing the query met such a lock on the base, the
// query is only analysed. If only its foreign keys would meet one, the keys' locks are taken in its place.
func (o *observation) try(ctx context.Context, conn *pgx.Conn, n need, strong held) (waits bool, err error) {
	if !n.analysed.meets(strong) && n.ran.meets(strong) {
		o.turn.Lock() // two running queries could wait for each other's rows
		defer o.turn.Unlock()
	}
	if err := exec(ctx, conn, "BEGIN; SET LOCAL lock_timeout = '10ms'"); err != nil {
		return false, err
	}
	if n.analysed.meets(strong) || n.ran.meets(strong) {
		_, err = conn.PgConn().Prepare(ctx, prepared, n.SQL, nil)
		if err == nil && !n.analysed.meets(strong) {
			err = exec(ctx, conn, arguments.Execute(prepared, n.args))
		}
	} else {
		for _, oid := range slices.Sorted(maps.Keys(n.keyed)) {
			if err == nil && strong[oid].conflicts(n.keyed[oid]) {
				err = exec(ctx, conn, fmt.Sprintf("LOCK TABLE ONLY %s IN %s MODE", o.old[oid].name, n.keyed[oid].words()))
			}
		}
	}
	waits = code(err) == lockTimeout
	if err != nil && !isServers(err) {
		return false, err
	}
	return waits, errors.Join(exec(ctx, conn, "ROLLBACK"), conn.PgConn().Deallocate(ctx, prepared))
}

func (h held) meets(other held) bool {
	for oid, m := range h {
		if other[oid].conflicts(m) {
			return true
		}
	}
	return false
}

func (h held) key() string {
	var parts []string
	for oid, m := range h {
		parts = append(parts, fmt.Sprint(oid, ":", m))
	}
	sort.Strings(parts)
	return strings.Join(parts, " ")
}
