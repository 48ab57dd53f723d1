package rolling

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/review/internal/arguments"
)

// trial is a database on which queries are tried, each once.
type trial struct {
	conn   *pgx.Conn
	values *arguments.Values
	types  map[uint32]kind
	ran    map[string]*outcome // by statement
}

type kind struct {
	Name     string
	Category string
}

// outcome is the result of a query.
type outcome struct {
	unprepared bool // the server did not even accept the statement
	failure    *pgconn.PgError
	literals   []string
	parameters []kind
	results    []kind
	fields     []pgconn.FieldDescription
}

func open(ctx context.Context, url string, settings map[string]string) (*trial, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	d := &trial{conn: conn, types: make(map[uint32]kind), ran: make(map[string]*outcome)}
	if err := d.prepare(ctx, settings); err != nil {
		d.close(ctx)
		return nil, err
	}
	return d, nil
}

func (d *trial) prepare(ctx context.Context, settings map[string]string) (err error) {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if _, err := d.conn.Exec(ctx, "SELECT set_config($1, $2, false)", name, settings[name]); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	if d.values, err = arguments.New(ctx, d.conn); err != nil {
		return err
	}
	rows, err := d.conn.Query(ctx, `SELECT oid, format_type(oid, NULL), typcategory::text FROM pg_type`)
	if err != nil {
		return err
	}
	var oid uint32
	var k kind
	_, err = pgx.ForEachRow(rows, []any{&oid, &k.Name, &k.Category}, func() error { d.types[oid] = k; return nil })
	return err
}

func (d *trial) close(ctx context.Context) { d.conn.Close(context.WithoutCancel(ctx)) }

// run tries a statement, with the arguments of another outcome or with its own, and rolls back.
func (d *trial) run(ctx context.Context, sql string, of *outcome) (*outcome, error) {
	if o, ok := d.ran[sql]; ok && (of == nil || slices.Equal(of.literals, o.literals)) {
		return o, nil
	}
	o := new(outcome)
	prepared, err := d.conn.Prepare(ctx, "tried", sql)
	if errors.As(err, &o.failure) {
		o.unprepared = true
		d.ran[sql] = o
		return o, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.conn.Deallocate(ctx, "tried")) }()
	for _, oid := range prepared.ParamOIDs {
		o.parameters = append(o.parameters, d.types[oid])
	}
	o.fields = prepared.Fields
	for _, f := range prepared.Fields {
		o.results = append(o.results, d.types[f.DataTypeOID])
	}
	if of != nil {
		o.literals = of.literals
	} else if o.literals, err = d.values.For(ctx, sql, prepared.ParamOIDs); err != nil {
		return nil, err
	}
	if len(o.literals) == len(prepared.ParamOIDs) { // otherwise the types suffice
		if o.failure, err = d.try(ctx, arguments.Execute("tried", o.literals)); err != nil {
			return nil, err
		}
	}
	if of == nil || d.ran[sql] == nil {
		d.ran[sql] = o
	}
	return o, nil
}

// try runs the prepared statement in a transaction.
func (d *trial) try(ctx context.Context, execute string) (failure *pgconn.PgError, err error) {
	tx, err := d.conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is committed
	if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = '2s'; SET LOCAL lock_timeout = '1s'`); err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, execute, pgx.QueryExecModeSimpleProtocol)
	if errors.As(err, &failure) {
		return failure, nil
	}
	return nil, err
}

// unrelated are failures from the arguments or from the time of a statement: unique_violation, exclusion_violation,
// query_canceled, lock_not_available.
var unrelated = []string{"23505", "23P01", "57014", "55P03"}

// always are the classes of failures independent of arguments: the query fails at all times.
var always = []string{"0A", "42", "55"}

// difference returns why a query with result o on its own side's schema breaks on the other one, or "".
func (o *outcome) difference(there *outcome) string {
	switch {
	case o.failure != nil && slices.Contains(always, o.failure.Code[:2]):
		return "" // it fails on both sides, or works better on the other
	case there.unprepared:
		return there.failure.Message
	case there.failure != nil && !slices.Contains(unrelated, there.failure.Code) && (o.failure == nil || o.failure.Code != there.failure.Code):
		return there.failure.Message
	case len(o.results) != len(there.results):
		return fmt.Sprintf("it returns %d columns instead of %d", len(there.results), len(o.results))
	case len(o.parameters) != len(there.parameters):
		return fmt.Sprintf("it takes %d parameters instead of %d", len(there.parameters), len(o.parameters))
	}
	for i, k := range o.parameters {
		if !interchangeable(k, there.parameters[i]) {
			return fmt.Sprintf("its parameter %d is of type %s instead of %s", i+1, there.parameters[i].Name, k.Name)
		}
	}
	for i, k := range o.results {
		if !interchangeable(k, there.results[i]) {
			return fmt.Sprintf("its column %s is of type %s instead of %s", there.fields[i].Name, there.results[i].Name, k.Name)
		}
	}
	return ""
}

// interchangeable reports whether a program expecting one works with the other. The driver converts whole numbers of
// different widths, and texts, including enums, are read and written as text. A time is a time with and without its
// zone; the different generated type is the API's finding.
func interchangeable(a, b kind) bool {
	if a == b {
		return true
	}
	for _, same := range [][]string{{"smallint", "integer", "bigint"}, {"real", "double precision"}, {"json", "jsonb"},
		{"timestamp without time zone", "timestamp with time zone"}} {
		if slices.Contains(same, a.Name) && slices.Contains(same, b.Name) {
			return true
		}
	}
	text := []string{"S", "E"}
	return slices.Contains(text, a.Category) && slices.Contains(text, b.Category)
}
