package seed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// fill inserts the rows of every table, referenced ones first, in one transaction.
func (f *filling) fill(ctx context.Context) error {
	return pgx.BeginFunc(ctx, f.conn, func(tx pgx.Tx) error {
		// For the transaction only, by a superuser.
		if _, err := try(ctx, tx, `SET LOCAL session_replication_role = replica`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off; SET LOCAL statement_timeout = 0;
			SET LOCAL lock_timeout = 0; SET LOCAL timezone = 'UTC'; SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL intervalstyle = 'postgres';
			SET LOCAL default_transaction_read_only = off; SET LOCAL row_security = off; SET LOCAL xmloption = content`); err != nil {
			return err
		}
		restore, err := f.open(ctx, tx)
		if err != nil {
			return err
		}
		done, err := f.fillTables(ctx, tx)
		if err != nil {
			return err
		}
		if err := f.close(ctx, tx, done); err != nil {
			return err
		}
		for _, t := range f.tables {
			f.result.Tables = append(f.result.Tables, *done[t.OID])
		}
		for _, id := range slices.Sorted(maps.Keys(f.copies)) {
			if _, err := tx.Exec(ctx, `DROP TABLE `+f.copies[id].name); err != nil {
				return err
			}
		}
		return restore()
	})
}

// fillTables fills the tables one after another. A table the server refuses to read or fill stays unchanged.
func (f *filling) fillTables(ctx context.Context, tx pgx.Tx) (map[uint32]*Filled, error) {
	done := make(map[uint32]*Filled)
	for _, t := range f.tables {
		filled := &Filled{Table: t.Name, Seen: t.Seen, Production: -1}
		if t.statistics != nil {
			filled.Production = int64(max(-1, t.statistics.rows))
		}
		done[t.OID] = filled
		refusal, err := inside(ctx, tx, func(sub pgx.Tx) error {
			return sub.QueryRow(ctx, `SELECT count(*) FROM `+t.SQL).Scan(&filled.Rows)
		})
		if err != nil {
			return nil, fmt.Errorf("count %s: %w", t.Name, err)
		}
		filled.Reason, f.filled[t.OID] = refusal, filled.Rows
	}
	quotas := f.quotas()
	for _, t := range f.order() {
		filled, n := done[t.OID], quotas[t.OID]
		f.processed[t.OID] = true
		if filled.Rows > 0 || n == 0 || filled.Reason != "" {
			continue
		}
		copies := maps.Clone(f.copies)
		refusal, err := inside(ctx, tx, func(sub pgx.Tx) (err error) {
			filled.Rows, filled.Reason, err = f.insert(ctx, sub, t, n)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("fill %s: %w", t.Name, err)
		}
		if refusal != "" {
			f.copies = copies
			filled.Rows, filled.Reason = 0, refusal
		}
		f.filled[t.OID] = filled.Rows
	}
	return done, nil
}

// try runs a statement the server may refuse, and reports success.
func try(ctx context.Context, tx pgx.Tx, sql string) (bool, error) {
	refusal, err := inside(ctx, tx, func(sub pgx.Tx) error {
		_, err := sub.Exec(ctx, sql)
		return err
	})
	return refusal == "" && err == nil, err
}

// inside calls fn in a subtransaction. If the server refuses a statement, fn is rolled back, and the refusal says why.
func inside(ctx context.Context, tx pgx.Tx, fn func(pgx.Tx) error) (refusal string, err error) {
	err = pgx.BeginFunc(ctx, tx, fn)
	if err != nil && isServerError(err) {
		return explained(err), nil
	}
	return "", err
}

// insert fills one table, using all known facts, or fewer if the server refuses.
func (f *filling) insert(ctx context.Context, tx pgx.Tx, t *table, n int64) (rows int64, reason string, err error) {
	if t.Partitioned && len(t.leaves) == 0 {
		return 0, "it has no partition that could hold rows", nil
	}
	for _, way := range []way{{later: true}, {}, {bare: true}} {
		c := &composing{filling: f, table: t, rows: n, way: way}
		refusal, err := c.draw(ctx, tx)
		if err != nil {
			return 0, "", err
		}
		if refusal != "" {
			return 0, refusal, nil
		}
		copies := maps.Clone(f.copies)
		refusal, err = inside(ctx, tx, func(sub pgx.Tx) (err error) {
			rows, err = c.insert(ctx, sub)
			return err
		})
		if err != nil {
			return 0, "", err
		}
		if refusal != "" {
			f.copies = copies
			rows, reason = 0, refusal
			continue
		}
		if rows > 0 {
			for r := range c.pending {
				f.rings = append(f.rings, ring{t, t.references[r]})
			}
			if rows < n {
				return rows, fmt.Sprintf("%d rows instead of %d keep its constraints", rows, n), nil
			}
			return rows, "", nil
		}
		if reason == "" {
			if reason, err = c.refusals(ctx, tx); err != nil {
				return 0, "", err
			}
		}
	}
	return rows, reason, nil
}

// way is how many of the known facts a statement uses.
type way struct {
	later bool // also the constraints after the change
	bare  bool // only columns that need a value
}

// isServerError reports whether the server refuses a statement because of its text. A failure for lack of RAM, disk or
// locks, by a deadlock or a cancellation is none.
func isServerError(err error) bool {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return false
	}
	switch class := server.Code[:min(2, len(server.Code))]; class {
	case "40", "53", "55", "57", "58", "XX":
		return false
	}
	return true
}

// explained returns the server's message. The message names no value of the database except made ones.
func explained(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Message
	}
	return err.Error()
}

// analyze makes the same statistics for the same rows: every row is in the sample. It skips a table or a materialized
// view the server refuses to analyse.
func (f *filling) analyze(ctx context.Context, views []string) error {
	most := int64(0)
	names := slices.Clone(views)
	for _, t := range f.tables {
		most = max(most, f.filled[t.OID])
		names = append(names, t.SQL)
	}
	if len(names) == 0 {
		return nil
	}
	target := min(max(100, most/300+1), 1000)
	if _, err := f.conn.Exec(ctx, fmt.Sprintf("SET default_statistics_target = %d", target)); err != nil {
		return err
	}
	// A vacuum also marks pages as visible to all, which index-only scans need.
	if _, err := f.conn.Exec(ctx, "VACUUM (ANALYZE) "+strings.Join(names, ", ")); err != nil {
		if !isServerError(err) {
			return fmt.Errorf("analyse: %w", err)
		}
		for _, name := range names {
			if _, err := f.conn.Exec(ctx, "VACUUM (ANALYZE) "+name); err != nil && !isServerError(err) {
				return fmt.Errorf("analyse: %w", err)
			}
		}
	}
	_, err := f.conn.Exec(ctx, "RESET default_statistics_target")
	return err
}
