package observe

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/review/internal/ddl"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

// outside runs a statement that cannot run in a transaction. The statement is stopped at the first lock on its named
// tables, and reported to hold the lock.
func (o *observation) outside(ctx context.Context, s project.Statement, tree ddl.Statement) (seen, error) {
	saw := seen{Statement: s, tree: tree, outside: true, held: held{}}
	brake, err := o.brake(ctx, tree)
	if err != nil {
		return saw, err
	}
	before, err := o.old.readState(ctx, o.main)
	if err != nil {
		return saw, err
	}
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- exec(ctx, o.main, s.SQL) }()

	err = o.whileHeldUp(ctx, ended, &saw)
	if brake != nil {
		began = time.Now()
		if released := exec(ctx, brake, "ROLLBACK"); err == nil {
			err = released
		}
	}
	if ran := <-ended; err == nil {
		err = ran
	}
	if err != nil {
		return saw, err
	}
	saw.measured.Duration = time.Since(began)
	after, err := o.old.readState(ctx, o.main)
	if err != nil {
		return saw, err
	}
	// The counters have gone with the statement's own transactions, so only files show the work.
	after.counters = before.counters
	saw.did = o.old.between(before, after, tree.Truncates())
	saw.measured.WALBytes = after.wal - before.wal
	waiting := saw.measured.Waiting
	err = o.measure(ctx, &saw)
	saw.measured.Waiting = waiting
	return saw, err
}

// whileHeldUp watches main until main waits for the brake or has ended, and leaves main's result in ended.
func (o *observation) whileHeldUp(ctx context.Context, ended chan error, saw *seen) error {
	pid := o.main.PgConn().PID()
	for {
		select {
		case err := <-ended:
			ended <- err
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
		var waits bool
		if err := o.watch.QueryRow(ctx, `SELECT cardinality(pg_blocking_pids($1)) > 0`, int32(pid)).Scan(&waits); err != nil {
			return err
		}
		locks, err := o.old.readLocks(ctx, o.watch, pid, true, false)
		if err != nil {
			return err
		}
		for oid, m := range locks {
			if waits || m >= shareUpdateExclusive { // brief row locks of a procedure with COMMIT appear by chance
				saw.held[oid] = max(saw.held[oid], m)
			}
		}
		if waits {
			saw.measured.Waiting, err = o.waiting(ctx, saw.held)
			return err
		}
	}
}

// brake locks the tables a statement names, so the statement waits. Nil: there are no tables.
func (o *observation) brake(ctx context.Context, tree ddl.Statement) (*pgx.Conn, error) {
	var tables []string
	for _, name := range tree.Names() {
		var table string
		err := o.main.QueryRow(ctx, `
			SELECT t.oid::regclass::text FROM pg_class AS c
			LEFT JOIN pg_index AS i ON i.indexrelid = c.oid
			JOIN pg_class AS t ON t.oid = coalesce(i.indrelid, c.oid)
			WHERE c.oid = to_regclass($1) AND t.relkind IN ('r', 'p')`, pgx.Identifier(strings.SplitN(name, ".", 2)).Sanitize()).Scan(&table)
		if err == pgx.ErrNoRows {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !slices.Contains(tables, table) {
			tables = append(tables, table)
		}
	}
	if len(tables) == 0 {
		return nil, nil
	}
	conn, err := o.session(ctx)
	if err != nil {
		return nil, err
	}
	if err := exec(ctx, conn, "BEGIN"); err != nil {
		return nil, err
	}
	for _, table := range tables {
		if err := exec(ctx, conn, "LOCK TABLE ONLY "+table+" IN SHARE UPDATE EXCLUSIVE MODE"); err != nil {
			return nil, err
		}
	}
	return conn, nil
}
