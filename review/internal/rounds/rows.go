package rounds

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// rows has the content of each table, by name.
type rows map[string]content

// content is the content of a table: the number of rows, and a digest of the values of each column.
type content struct {
	rows    int64
	columns map[string]values
}

// values is a digest of a column: how many values are not NULL, and the sum of their hashes, which no order changes.
type values struct {
	present int64
	sum     string
}

const columnsQuery = `
SELECT quote_ident(n.nspname), quote_ident(c.relname), array_agg(quote_ident(a.attname) ORDER BY a.attname)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE
    c.relkind IN ('r', 'p')
    AND NOT c.relispartition
    AND n.nspname NOT IN ('pg_catalog', 'information_schema')
    AND n.nspname NOT LIKE 'pg\_t%'
    -- What a column is computed from is compared.
    AND a.attgenerated = ''
    AND NOT EXISTS (
        SELECT FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
    )
GROUP BY n.nspname, c.relname
ORDER BY n.nspname, c.relname`

// count reads the content of every table, each in one scan.
func count(ctx context.Context, conn *pgx.Conn, without string) (rows, error) {
	type table struct {
		Schema, Name string
		Columns      []string
	}
	found, err := conn.Query(ctx, columnsQuery)
	if err != nil {
		return nil, err
	}
	tables, err := pgx.CollectRows(found, pgx.RowToStructByPos[table])
	if err != nil {
		return nil, err
	}
	counted := rows{}
	for _, t := range tables {
		name := strings.TrimPrefix(t.Schema+"."+t.Name, "public.")
		if name == without {
			continue
		}
		expressions := []string{"count(*)"}
		for _, c := range t.Columns {
			// With half a hash the sum stays a cheap number.
			expressions = append(expressions, fmt.Sprintf("count(%s), coalesce(sum(hashtextextended(%[1]s::text, 0) >> 24), 0)::text", c))
		}
		contents := content{columns: map[string]values{}}
		targets := []any{&contents.rows}
		read := make([]values, len(t.Columns))
		for i := range read {
			targets = append(targets, &read[i].present, &read[i].sum)
		}
		query := fmt.Sprintf("SELECT %s FROM %s.%s", strings.Join(expressions, ", "), t.Schema, t.Name)
		if err := conn.QueryRow(ctx, query).Scan(targets...); err != nil {
			return nil, fmt.Errorf("read table %s: %w", name, err)
		}
		for i, c := range t.Columns {
			contents.columns[c] = read[i]
		}
		counted[name] = contents
	}
	return counted, nil
}

// compareRows reports rows and values that existed before and no longer do.
func (r *round) compareRows(before, after state) {
	var tables []string
	for name := range before.rows {
		tables = append(tables, name)
	}
	slices.Sort(tables)
	for _, name := range tables {
		old, now := before.rows[name], after.rows[name]
		if old.rows > now.rows {
			r.lost(name, fmt.Sprintf("%d of the %d rows of `%s` are lost", old.rows-now.rows, old.rows, name))
			continue
		}
		var columns []string
		for column := range old.columns {
			columns = append(columns, column)
		}
		slices.Sort(columns)
		for _, column := range columns {
			was, is := old.columns[column], now.columns[column]
			switch object := name + "." + column; {
			case was.present == 0 || was == is:
			case is.present < was.present:
				r.lost(object, fmt.Sprintf("%d of the %d values of `%s` are lost", was.present-is.present, was.present, object))
			case is.present == was.present && old.rows == now.rows:
				// More values than before: NULLs were filled, and nothing is lost.
				r.lost(object, fmt.Sprintf("Values of `%s` are others than before", object))
			}
		}
	}
}

func (r *round) lost(object, title string) {
	f := report.Finding{
		Rule: rule.RowsDoNotSurvive.Name, Severity: report.Blocking, Place: project.Locate(r.New, object, false),
		Object: object, Title: title,
		Detail: "Counted on the seeded database, before the migrations and after them and their way back.",
		Do: "Keep the old contents until no program needs them: rename, copy or add beside them. If they are to be dropped for good, " +
			"say so in the migration: `-- irreversible: the reason`.",
	}
	for _, m := range r.New {
		if m.File == f.Place.File && m.Irreversible != "" {
			f.Rule, f.Severity = rule.RowsLostByDecision.Name, report.Note
			f.Detail, f.Do = "The migration's reason for having no way back: "+m.Irreversible, ""
		}
	}
	// The same loss may appear after the way up and after the way back.
	if !slices.ContainsFunc(r.findings, func(other report.Finding) bool { return other.Object == object && other.Title == title }) {
		r.add(f)
	}
}
