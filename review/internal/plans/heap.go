package plans

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/internal/syntax"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// update is the target of an UPDATE in a query: a table and its columns, sorted.
type update struct {
	Table   string
	Columns string // joined by commas
}

// updatesOf returns the updates of a statement, including updates in CTEs and in ON CONFLICT.
func updatesOf(sql string) []update {
	tree, err := syntax.Parse(sql)
	if err != nil {
		return nil
	}
	var found []update
	add := func(table any, targets []any) {
		name, _ := table.(string)
		var columns []string
		for _, target := range targets {
			if column, ok := syntax.At(target, "ResTarget", "name").(string); ok && !slices.Contains(columns, column) {
				columns = append(columns, column)
			}
		}
		slices.Sort(columns)
		if u := (update{name, strings.Join(columns, ",")}); name != "" && len(columns) > 0 && !slices.Contains(found, u) {
			found = append(found, u)
		}
	}
	syntax.Walk(tree, func(kind string, object map[string]any) {
		switch kind {
		case "UpdateStmt":
			add(syntax.At(object["relation"], "relname"), syntax.List(object["targetList"]))
		case "InsertStmt":
			add(syntax.At(object["relation"], "relname"), syntax.List(syntax.At(object["onConflictClause"], "targetList")))
		}
	})
	return found
}

// updates finds the updates of head's queries that are no longer heap-only after the change, although the query's
// updates of the table were before.
//
// The check measures: rows of the filled tables get other values in the columns, and pg_stat_xact_all_tables returns
// how many of the new versions needed no index entries. Everything is rolled back.
func (c *check) updates(ctx context.Context) ([]report.Finding, error) {
	before := &heap{conn: c.before.conn, known: make(map[update]*bool)}
	after := &heap{conn: c.after.conn, known: make(map[update]*bool)}
	type ending struct {
		update update
		wasOf  string
	}
	ended := make(map[ending][]project.Query)
	for _, q := range c.Head.Queries {
		old, ok := c.Base.Query(q.Name)
		if !ok {
			old = q // a new query: the result of its updates before the change
		}
		was := updatesOf(old.SQL)
		for _, u := range updatesOf(q.SQL) {
			i := slices.IndexFunc(was, func(o update) bool { return o.Table == u.Table })
			if i < 0 {
				continue
			}
			now, err := after.only(ctx, u)
			if err != nil {
				return nil, err
			}
			if now == nil || *now {
				continue
			}
			then, err := before.only(ctx, was[i])
			if err != nil {
				return nil, err
			}
			if then != nil && *then {
				ended[ending{u, was[i].Columns}] = append(ended[ending{u, was[i].Columns}], q)
			}
		}
	}
	// A finding for each table and its hindering indexes, rather than for each query.
	byTable := make(map[string][]project.Query)
	columns := make(map[string][]string)
	for e, queries := range ended {
		byTable[e.update.Table] = append(byTable[e.update.Table], queries...)
		columns[e.update.Table] = append(columns[e.update.Table], strings.Split(e.update.Columns, ",")...)
	}
	at, _ := places(c.Head.Migrations)
	var findings []report.Finding
	for _, table := range slices.Sorted(maps.Keys(byTable)) {
		queries := byTable[table]
		slices.SortFunc(queries, func(a, b project.Query) int { return strings.Compare(a.Name, b.Name) })
		var names []string
		for _, q := range queries {
			if name := "`" + q.Name + "`"; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		f := report.Finding{
			Rule: rule.UpdateNotHeapOnly.Name, Severity: report.Risk, Object: table, Place: queries[0].Place,
			Title: fmt.Sprintf("Updates of %s are no longer heap-only", table),
			Detail: fmt.Sprintf("Measured on the filled tables: before the change an update by %s wrote no index, after it every one writes to all indexes of `%s`, which also have to be vacuumed.",
				strings.Join(names, ", "), table),
			Do: "Leave the columns that are updated out of the index, out of its condition too.",
		}
		set := columns[table]
		slices.Sort(set)
		var culprits []string
		for _, name := range slices.Sorted(maps.Keys(c.after.indexes)) {
			i := c.after.indexes[name]
			if c.before.indexes[name] == nil && strings.TrimPrefix(i.Table, "public.") == table {
				culprits = append(culprits, "`"+name+"`")
				if place, ok := at[name]; ok && len(culprits) == 1 {
					f.Place = place
				}
			}
		}
		if len(culprits) > 0 {
			f.Detail += fmt.Sprintf(" New on the table: %s. The updates set %s.", strings.Join(culprits, ", "), strings.Join(slices.Compact(set), ", "))
		} else {
			f.Detail += fmt.Sprintf(" The updates set %s.", strings.Join(slices.Compact(set), ", "))
		}
		findings = append(findings, f)
	}
	return findings, nil
}

// heap measures updates on one database.
type heap struct {
	conn  *pgx.Conn
	known map[update]*bool
}

// only reports whether an update of the columns is heap-only. Nil: unknown, as on an empty table.
func (h *heap) only(ctx context.Context, u update) (*bool, error) {
	if result, ok := h.known[u]; ok {
		return result, nil
	}
	var result *bool
	tx, err := h.conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is committed
	// Without triggers if the user may disable them: only the statement's own work is measured.
	if err := pgx.BeginFunc(ctx, tx, func(sub pgx.Tx) error {
		_, err := sub.Exec(ctx, `SET LOCAL session_replication_role = replica`)
		return err
	}); err != nil && !refused(err) {
		return nil, err
	}
	if _, err := tx.Exec(ctx, `SET LOCAL enable_seqscan = on; SET LOCAL lock_timeout = '2s'`); err != nil {
		return nil, err
	}
	for _, made := range []bool{false, true} {
		sets, err := h.sets(ctx, tx, u, made)
		if err != nil && !refused(err) {
			return nil, err
		}
		if err != nil || sets == "" {
			break
		}
		if result, err = h.measure(ctx, tx, u.Table, sets); err != nil {
			return nil, err
		}
		if result != nil {
			break
		}
	}
	h.known[u] = result
	return result, nil
}

// measure updates one row a few times. The first new version goes to a page with free space, as vacuum and the fill
// factor leave in production; one of the next stays there, if the indexes allow.
func (h *heap) measure(ctx context.Context, tx pgx.Tx, table, sets string) (result *bool, err error) {
	name := pgx.Identifier{table}.Sanitize()
	err = pgx.BeginFunc(ctx, tx, func(sub pgx.Tx) error {
		var part uint32
		var place string
		if err := sub.QueryRow(ctx, fmt.Sprintf(`SELECT tableoid, ctid::text FROM %s LIMIT 1`, name)).Scan(&part, &place); err != nil {
			return err
		}
		for range 4 {
			var hotBefore, allBefore, hot, all int64
			if err := h.count(ctx, sub, table, &hotBefore, &allBefore); err != nil {
				return err
			}
			err := sub.QueryRow(ctx, fmt.Sprintf(`UPDATE %s AS t SET %s WHERE t.tableoid = $1 AND t.ctid = $2::text::tid RETURNING tableoid, ctid::text`, name, sets), part, place).Scan(&part, &place)
			if err != nil {
				return err
			}
			if err := h.count(ctx, sub, table, &hot, &all); err != nil {
				return err
			}
			if all > allBefore {
				result = new(hot > hotBefore)
			}
			if hot > hotBefore {
				return nil
			}
		}
		return nil
	})
	if refused(err) || errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return result, err
}

func refused(err error) bool {
	_, ok := errors.AsType[*pgconn.PgError](err)
	return ok
}

func (h *heap) count(ctx context.Context, tx pgx.Tx, table string, hot, all *int64) error {
	return tx.QueryRow(ctx, `
		SELECT coalesce(sum(pg_stat_get_xact_tuples_hot_updated(o.oid)), 0)::bigint, coalesce(sum(pg_stat_get_xact_tuples_updated(o.oid)), 0)::bigint
		FROM (SELECT $1::regclass::oid UNION SELECT relid FROM pg_partition_tree($1::regclass)) AS o (oid)`, pgx.Identifier{table}.Sanitize()).Scan(hot, all)
}

// sets returns assignments that give each column of a row t another value: another row's or, failing that, a made-up
// one; with madeUp the other way round. Empty: the table does not have the columns.
func (h *heap) sets(ctx context.Context, tx pgx.Tx, u update, madeUp bool) (string, error) {
	name := pgx.Identifier{u.Table}.Sanitize()
	var sets []string
	for _, column := range strings.Split(u.Columns, ",") {
		quoted := pgx.Identifier{column}.Sanitize()
		var category, kind, generated string
		err := tx.QueryRow(ctx, `SELECT t.typcategory::text, format_type(a.atttypid, a.atttypmod), a.attgenerated::text FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
			WHERE a.attrelid = $1::regclass AND a.attname = $2 AND NOT a.attisdropped`, name, column).Scan(&category, &kind, &generated)
		if errors.Is(err, pgx.ErrNoRows) || generated != "" {
			continue
		}
		if err != nil {
			return "", err
		}
		made := ""
		switch {
		case category == "N":
			made = fmt.Sprintf("coalesce(t.%s, 0) + 1", quoted)
		case category == "B":
			made = fmt.Sprintf("NOT coalesce(t.%s, false)", quoted)
		case kind == "jsonb" || kind == "json":
			made = fmt.Sprintf(`CASE WHEN t.%s::text = '{"n": 1}' THEN '{"n": 2}' ELSE '{"n": 1}' END::%s`, quoted, kind)
		case kind == "timestamp with time zone" || kind == "timestamp without time zone":
			made = fmt.Sprintf("coalesce(t.%s, 'today') + interval '1 second'", quoted)
		case kind == "uuid":
			made = fmt.Sprintf("md5(coalesce(t.%s::text, ''))::uuid", quoted)
		case kind == "bytea":
			made = fmt.Sprintf(`coalesce(t.%s, '') || '\x01'`, quoted)
		}
		// Text is often one of a few words a check allows. Only the first rows are examined.
		other := fmt.Sprintf("(SELECT o.%s FROM (SELECT x.%s FROM %s AS x LIMIT 200) AS o WHERE o.%s::text IS DISTINCT FROM t.%s::text AND o.%s IS NOT NULL LIMIT 1)",
			quoted, quoted, name, quoted, quoted, quoted)
		if made == "" && category == "S" {
			made = fmt.Sprintf("coalesce(t.%s, '') || 'x'", quoted)
		}
		switch {
		case made == "":
			made = fmt.Sprintf("coalesce(%s, t.%s)", other, quoted)
		case !madeUp:
			made = fmt.Sprintf("coalesce(%s, %s)", other, made)
		}
		sets = append(sets, quoted+" = "+made)
	}
	return strings.Join(sets, ", "), nil
}
