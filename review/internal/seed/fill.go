package seed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Fill fills the database that conn is connected to, and analyses it. Constraints hold for every row. Triggers do not
// run if the user may turn them off for the session, as a superuser may.
//
// Transaction: one of its own, then VACUUM, so conn must not be in one.
func Fill(ctx context.Context, conn *pgx.Conn, spec *Spec, opts Options) (*Result, error) {
	if spec == nil {
		spec = new(Spec)
	}
	if opts.Now.IsZero() {
		opts.Now = time.Now()
	}
	opts.Now = opts.Now.UTC().Truncate(24 * time.Hour)
	f := &filling{conn: conn, spec: spec, opts: opts, filled: make(map[uint32]int64), copies: make(map[string]keyCopy), result: new(Result)}
	if err := f.read(ctx); err != nil {
		return nil, err
	}
	if err := f.fill(ctx); err != nil {
		return nil, err
	}
	if err := f.analyze(ctx); err != nil {
		return nil, err
	}
	return f.result, nil
}

// filling is one call of [Fill].
type filling struct {
	conn *pgx.Conn
	spec *Spec
	opts Options

	tables   []*table
	literals map[string]*hints
	filled   map[uint32]int64             // rows by table
	copies   map[string]keyCopy           // of keys that references are drawn from, by table and columns
	texts    map[string]map[string]*hints // of checks, by their text
	result   *Result
}

func (f *filling) read(ctx context.Context) error {
	var err error
	if f.tables, err = tables(ctx, f.conn); err != nil {
		return err
	}
	texts, err := conditions(ctx, f.conn)
	if err != nil {
		return err
	}
	f.literals = literalsOf(append(texts, f.opts.Queries...))
	for _, name := range slices.Sorted(maps.Keys(f.spec.Tables)) {
		f.missing(name, f.spec.Tables[name])
	}
	for _, t := range f.tables {
		f.soften(t)
	}
	if f.opts.Later == nil {
		return nil
	}
	later, err := tables(ctx, f.opts.Later)
	if err != nil {
		return fmt.Errorf("the schema after the change: %w", err)
	}
	names := make(map[uint32]string)
	for _, l := range later {
		names[l.OID] = l.Name
	}
	for _, l := range later {
		if t := f.named(l.Name); t != nil {
			f.keepLater(t, l, names)
		}
	}
	return nil
}

func (f *filling) named(name string) *table {
	i := slices.IndexFunc(f.tables, func(t *table) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return f.tables[i]
}

// missing records the tables and columns that the seed file names and the schema does not have.
func (f *filling) missing(name string, said Table) {
	t := f.named(name)
	if t == nil {
		f.result.Missing = append(f.result.Missing, name)
		return
	}
	var columns []string
	columns = slices.AppendSeq(columns, maps.Keys(said.Columns))
	for _, k := range said.Kinds {
		columns = slices.AppendSeq(columns, maps.Keys(k.Set))
	}
	for _, r := range said.References {
		columns = append(columns, r.Columns...)
		to := f.named(r.Table)
		if to == nil {
			f.result.Missing = append(f.result.Missing, r.Table)
			continue
		}
		for _, column := range r.to() {
			if to.column(column) == nil {
				f.result.Missing = append(f.result.Missing, r.Table+"."+column)
			}
		}
	}
	slices.Sort(columns)
	for _, column := range slices.Compact(columns) {
		if t.column(column) == nil {
			f.result.Missing = append(f.result.Missing, name+"."+column)
		}
	}
}

// soften adds references without a constraint: those of the file, and columns named like customer_id if there is a
// table customer or customers with a key of one column of that type.
func (f *filling) soften(t *table) {
	for _, said := range f.spec.Tables[t.Name].References {
		if to := f.named(said.Table); to != nil && t.hasAll(said.Columns) && to.hasAll(said.to()) {
			t.references = append(t.references, reference{Table: t.OID, Name: said.Table, Columns: said.Columns, To: to.OID, ToNames: said.to(), once: said.Once, soft: true})
		}
	}
	for _, c := range t.columns {
		stem, ok := strings.CutSuffix(c.Name, "_id")
		if !ok || t.referred(c.Name) {
			continue
		}
		for _, plural := range []string{stem + "s", stem, stem + "es", strings.TrimSuffix(stem, "y") + "ies"} {
			to := f.named(plural)
			if to == nil || to == t {
				continue
			}
			for _, k := range to.keys {
				if key := to.column(k.first()); k.Primary && len(k.Columns) == 1 && key != nil && key.Base == c.Base && (key.Name == "id" || key.Name == c.Name) {
					t.references = append(t.references, reference{Table: t.OID, Name: plural, Columns: []string{c.Name}, To: to.OID, ToNames: k.Columns, soft: true})
				}
			}
			break
		}
	}
}

func (k key) first() string {
	if len(k.Columns) == 0 {
		return ""
	}
	return k.Columns[0]
}

func (t *table) referred(name string) bool {
	return slices.ContainsFunc(t.references, func(r reference) bool { return slices.Contains(r.Columns, name) })
}

// keepLater adds the constraints after the change on columns that the table has before it.
func (f *filling) keepLater(t, later *table, names map[uint32]string) {
	for _, c := range later.columns {
		if mine := t.column(c.Name); mine != nil && c.NotNull {
			mine.NotNull = true
		}
	}
	for _, k := range later.keys {
		if t.hasAll(k.Columns) && !slices.ContainsFunc(t.keys, func(mine key) bool { return slices.Equal(mine.Columns, k.Columns) }) {
			t.keys = append(t.keys, k)
		}
	}
	for _, r := range later.references {
		to := f.named(names[r.To])
		if to == nil || !t.hasAll(r.Columns) || !to.hasAll(r.ToNames) ||
			slices.ContainsFunc(t.references, func(mine reference) bool { return slices.Equal(mine.Columns, r.Columns) }) {
			continue
		}
		r.Table, r.To, r.soft = t.OID, to.OID, true
		t.references = append(t.references, r)
	}
	for _, c := range later.checks {
		if c.Name != "partition" && t.hasAll(c.Columns) && !slices.ContainsFunc(t.checks, func(mine check) bool { return mine.Text == c.Text }) {
			c.later = true
			t.checks = append(t.checks, c)
		}
	}
}

// fill inserts the rows of every table, referenced ones first, in one transaction.
func (f *filling) fill(ctx context.Context) error {
	return pgx.BeginFunc(ctx, f.conn, func(tx pgx.Tx) error {
		// Both for the transaction only. The first needs a superuser: without it the triggers run.
		if err := pgx.BeginFunc(ctx, tx, func(sub pgx.Tx) error {
			_, err := sub.Exec(ctx, `SET LOCAL session_replication_role = replica`)
			return err
		}); err != nil && !isServerError(err) {
			return err
		}
		if _, err := tx.Exec(ctx, `SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off; SET LOCAL statement_timeout = 0; SET LOCAL timezone = 'UTC'`); err != nil {
			return err
		}
		for _, t := range f.tables {
			var some bool
			if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+t.Name+`)`).Scan(&some); err != nil {
				return fmt.Errorf("read %s: %w", t.Name, err)
			}
			if some {
				var rows int64
				if err := tx.QueryRow(ctx, `SELECT count(*) FROM `+t.Name).Scan(&rows); err != nil {
					return fmt.Errorf("count %s: %w", t.Name, err)
				}
				f.filled[t.OID] = rows
			}
		}
		quotas := f.quotas()
		done := make(map[string]Filled)
		for _, t := range f.order() {
			filled := Filled{Table: t.Name, Rows: f.filled[t.OID]}
			if n := quotas[t.OID]; filled.Rows == 0 && n > 0 {
				var err error
				if filled.Rows, filled.Reason, err = f.insert(ctx, tx, t, n); err != nil {
					return fmt.Errorf("fill %s: %w", t.Name, err)
				}
				f.filled[t.OID] = filled.Rows
			}
			done[t.Name] = filled
		}
		for _, t := range f.tables {
			f.result.Tables = append(f.result.Tables, done[t.Name])
		}
		for _, id := range slices.Sorted(maps.Keys(f.copies)) {
			if _, err := tx.Exec(ctx, `DROP TABLE `+f.copies[id].name); err != nil {
				return err
			}
		}
		return nil
	})
}

// quotas returns how many rows each table gets.
func (f *filling) quotas() map[uint32]int64 {
	total, factor := f.opts.rows(f.spec)
	left := total
	quotas := make(map[uint32]int64)
	var open []*table
	sharing := 0
	for _, t := range f.tables {
		if rows := f.spec.Tables[t.Name].Rows; rows != nil {
			n := int64(float64(*rows) * factor)
			if *rows > 0 {
				n = max(1, n)
			}
			quotas[t.OID] = n
			left -= int(n)
			continue
		}
		if f.filled[t.OID] == 0 {
			open = append(open, t)
		}
		// Tables filled by an earlier call keep their share: a table that came later gets no more. A few rows are a
		// migration's.
		if f.filled[t.OID] == 0 || f.filled[t.OID] >= 100 {
			sharing++
		}
	}
	for _, t := range open {
		quotas[t.OID] = max(int64(left)/int64(sharing), 20)
	}
	return quotas
}

// order puts referenced tables before those that refer to them. If tables refer to each other, a reference that may
// be null is filled later.
func (f *filling) order() []*table {
	var sorted []*table
	placed := make(map[uint32]bool)
	ready := func(t *table, strict bool) bool {
		for _, r := range t.references {
			if r.To != t.OID && !placed[r.To] && (strict || !r.soft && t.required(r)) {
				return false
			}
		}
		return true
	}
	for len(sorted) < len(f.tables) {
		i := -1
		for _, strict := range []bool{true, false} {
			if i < 0 {
				i = slices.IndexFunc(f.tables, func(t *table) bool { return !placed[t.OID] && ready(t, strict) })
			}
		}
		if i < 0 {
			i = slices.IndexFunc(f.tables, func(t *table) bool { return !placed[t.OID] })
		}
		placed[f.tables[i].OID] = true
		sorted = append(sorted, f.tables[i])
	}
	return sorted
}

// required reports whether no column of the reference may be null.
func (t *table) required(r reference) bool {
	return !slices.ContainsFunc(r.Columns, func(name string) bool { return !t.column(name).NotNull })
}

// insert fills one table, using all known facts, and with fewer of them if that fails.
func (f *filling) insert(ctx context.Context, tx pgx.Tx, t *table, n int64) (rows int64, reason string, err error) {
	for _, way := range []way{{later: true}, {}, {bare: true}} {
		c := &composing{filling: f, table: t, rows: n, way: way}
		refusal, err := c.draw(ctx, tx)
		if err != nil {
			return 0, "", err
		}
		if refusal != "" {
			return 0, refusal, nil
		}
		rows = 0
		copies := maps.Clone(f.copies)
		err = pgx.BeginFunc(ctx, tx, func(sub pgx.Tx) error {
			var err error
			rows, err = c.insert(ctx, sub)
			return err
		})
		if err != nil {
			if !isServerError(err) {
				return 0, "", err
			}
			f.copies = copies
			rows, reason = 0, explained(err)
			continue
		}
		if rows > 0 {
			if rows < n {
				reason = fmt.Sprintf("%d rows instead of %d keep its constraints", rows, n)
			} else {
				reason = ""
			}
			return rows, reason, nil
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

func isServerError(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && !strings.HasPrefix(server.Code, "57")
}

// explained returns the server's message. It names no value of the database except those made here.
func explained(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Message
	}
	return err.Error()
}

// analyze makes statistics that are the same for the same rows: every row is in the sample.
func (f *filling) analyze(ctx context.Context) error {
	most := int64(0)
	var names []string
	for _, t := range f.tables {
		most = max(most, f.filled[t.OID])
		names = append(names, t.Name)
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
		return fmt.Errorf("analyse: %w", err)
	}
	_, err := f.conn.Exec(ctx, "RESET default_statistics_target")
	return err
}
