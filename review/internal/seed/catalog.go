package seed

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Querier reads: a connection, a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// table is a table that may be filled. Its partitions are filled through it.
type table struct {
	OID         uint32
	Name        string // in SQL syntax
	Partitioned bool

	columns    []*column
	keys       []key // unique
	references []reference
	checks     []check
}

type column struct {
	Table   uint32
	Number  int16
	Name    string // unquoted
	Type    string // with its modifier; a domain by its name
	Base    string // the type below domains
	Element string // of an array
	Kind    string // pg_type.typtype of Base: "e" an enum, "c" a composite, "r" a range
	Subtype string // of a range
	// DomainChecks are the conditions of the domains that Type is of; the value is called VALUE in them.
	DomainChecks []string
	MaxLength    int    // of a varchar, char or bit; 0: none
	Precision    int    // of a numeric; 0: none
	Scale        int    // of a numeric
	NotNull      bool   // by itself or its domain
	Identity     bool   // the server numbers it
	Generated    string // the expression of a generated column
	Default      string // the expression; "" is none
	Volatile     bool   // the default numbers rows
}

type key struct {
	Table      uint32
	Name       string
	Columns    []string
	Expression bool // of an expression, or of some rows only
	Primary    bool
}

type reference struct {
	Table   uint32
	Name    string
	Columns []string
	To      uint32
	ToNames []string

	once bool
	soft bool // no constraint
}

type check struct {
	Table   uint32
	Name    string
	Text    string
	Columns []string

	later bool // of the schema after the change
}

// condition is an expression whose literals are values of columns.
type condition struct {
	Text string
}

const ordinary = `c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
	AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\_%'
	AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')`

// tables reads the tables of a database by name.
func tables(ctx context.Context, q Querier) ([]*table, error) {
	found, err := rowsOf[table](ctx, q, `
		SELECT c.oid, c.oid::regclass::text AS name, c.relkind = 'p' AS partitioned
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE `+ordinary+` ORDER BY 2`)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	byOID := make(map[uint32]*table)
	for _, t := range found {
		byOID[t.OID] = t
	}
	columns, err := rowsOf[column](ctx, q, `
		WITH RECURSIVE based AS (
			SELECT t.oid, t.oid AS base, t.typbasetype AS below, t.typtypmod AS modifier, t.typnotnull AS required FROM pg_type AS t
			UNION ALL
			SELECT b.oid, t.oid, t.typbasetype, CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE b.modifier END, b.required OR t.typnotnull
			FROM based AS b JOIN pg_type AS t ON t.oid = b.below
		), typed AS (
			SELECT b.oid, b.base, b.modifier, b.required FROM based AS b WHERE b.below = 0
		)
		SELECT a.attrelid AS "table", a.attnum AS number, a.attname::text AS name,
			format_type(a.atttypid, a.atttypmod) AS type,
			format_type(b.oid, m.modifier) AS base,
			CASE WHEN b.typcategory = 'A' AND b.typelem <> 0 THEN format_type(b.typelem, nullif(m.modifier, -1)) ELSE '' END AS element,
			b.typtype::text AS kind,
			coalesce((SELECT format_type(r.rngsubtype, NULL) FROM pg_range AS r WHERE b.oid IN (r.rngtypid, r.rngmultitypid)), '') AS subtype,
			ARRAY(SELECT pg_get_expr(r.conbin, 0) FROM based AS s JOIN pg_constraint AS r ON r.contypid = s.base
				WHERE s.oid = a.atttypid AND r.contype = 'c' ORDER BY r.conname) AS domain_checks,
			CASE WHEN m.modifier < 0 THEN 0
				WHEN b.oid IN ('varchar'::regtype, 'bpchar'::regtype) THEN m.modifier - 4
				WHEN b.oid IN ('bit'::regtype, 'varbit'::regtype) THEN m.modifier ELSE 0 END AS max_length,
			CASE WHEN b.oid = 'numeric'::regtype AND m.modifier >= 0 THEN ((m.modifier - 4) >> 16) & 65535 ELSE 0 END AS precision,
			CASE WHEN b.oid = 'numeric'::regtype AND m.modifier >= 0 THEN (((m.modifier - 4) & 2047) # 1024) - 1024 ELSE 0 END AS scale,
			a.attnotnull OR y.required AS not_null,
			a.attidentity <> '' AS identity,
			CASE WHEN a.attgenerated <> '' THEN pg_get_expr(d.adbin, d.adrelid) ELSE '' END AS generated,
			CASE WHEN a.attgenerated = '' THEN coalesce(pg_get_expr(d.adbin, d.adrelid), '') ELSE '' END AS "default",
			a.attgenerated = '' AND coalesce(pg_get_expr(d.adbin, d.adrelid) LIKE '%nextval(%', false) AS volatile
		FROM pg_attribute AS a
		JOIN pg_class AS c ON c.oid = a.attrelid
		JOIN pg_namespace AS n ON n.oid = c.relnamespace
		JOIN typed AS y ON y.oid = a.atttypid
		JOIN pg_type AS b ON b.oid = y.base
		CROSS JOIN LATERAL (SELECT CASE WHEN b.oid = a.atttypid THEN a.atttypmod ELSE y.modifier END) AS m (modifier)
		LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE a.attnum > 0 AND NOT a.attisdropped AND `+ordinary+`
		ORDER BY a.attrelid, a.attnum`)
	if err != nil {
		return nil, fmt.Errorf("list columns: %w", err)
	}
	for _, c := range columns {
		byOID[c.Table].columns = append(byOID[c.Table].columns, c)
	}
	keys, err := rowsOf[key](ctx, q, `
		SELECT i.indrelid AS "table", x.relname::text AS name,
			ARRAY(
				SELECT a.attname::text FROM unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (number, position)
				JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number
				WHERE k.position <= i.indnkeyatts ORDER BY k.position
			) AS columns,
			i.indexprs IS NOT NULL OR i.indpred IS NOT NULL AS expression, i.indisprimary AS "primary"
		FROM pg_index AS i
		JOIN pg_class AS x ON x.oid = i.indexrelid
		JOIN pg_class AS c ON c.oid = i.indrelid
		JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE (i.indisunique OR i.indisexclusion) AND `+ordinary+`
		ORDER BY i.indrelid, NOT i.indisprimary, x.relname`)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	for _, k := range keys {
		byOID[k.Table].keys = append(byOID[k.Table].keys, *k)
	}
	references, err := rowsOf[reference](ctx, q, `
		SELECT r.conrelid AS "table", r.conname::text AS name,
			ARRAY(SELECT a.attname::text FROM unnest(r.conkey) WITH ORDINALITY AS k (number, position)
				JOIN pg_attribute AS a ON a.attrelid = r.conrelid AND a.attnum = k.number ORDER BY k.position) AS columns,
			r.confrelid AS "to",
			ARRAY(SELECT a.attname::text FROM unnest(r.confkey) WITH ORDINALITY AS k (number, position)
				JOIN pg_attribute AS a ON a.attrelid = r.confrelid AND a.attnum = k.number ORDER BY k.position) AS to_names
		FROM pg_constraint AS r
		JOIN pg_class AS c ON c.oid = r.conrelid
		JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE r.contype = 'f' AND `+ordinary+`
		ORDER BY r.conrelid, r.conname`)
	if err != nil {
		return nil, fmt.Errorf("list references: %w", err)
	}
	for _, r := range references {
		if byOID[r.To] != nil {
			byOID[r.Table].references = append(byOID[r.Table].references, *r)
		}
	}
	checks, err := rowsOf[check](ctx, q, `
		SELECT r.conrelid AS "table", r.conname::text AS name, pg_get_expr(r.conbin, r.conrelid) AS text,
			ARRAY(SELECT a.attname::text FROM pg_attribute AS a WHERE a.attrelid = r.conrelid AND a.attnum = ANY (r.conkey)) AS columns
		FROM pg_constraint AS r
		JOIN pg_class AS c ON c.oid = r.conrelid
		JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE r.contype = 'c' AND `+ordinary+`
		UNION ALL
		-- Of partitions that take some rows only: one of them takes each.
		SELECT c.oid, 'partition', string_agg('(' || pg_get_partition_constraintdef(l.relid) || ')', ' OR ' ORDER BY l.relid), '{}'
		FROM pg_class AS c
		JOIN pg_namespace AS n ON n.oid = c.relnamespace
		CROSS JOIN LATERAL pg_partition_tree(c.oid) AS l
		WHERE c.relkind = 'p' AND l.isleaf AND l.relid <> c.oid AND `+ordinary+`
		GROUP BY c.oid HAVING bool_and(pg_get_partition_constraintdef(l.relid) IS NOT NULL)
		ORDER BY 1, 2`)
	if err != nil {
		return nil, fmt.Errorf("list checks: %w", err)
	}
	for _, c := range checks {
		byOID[c.Table].checks = append(byOID[c.Table].checks, *c)
	}
	return found, nil
}

// conditions reads the expressions of indexes, triggers and views, whose literals are values of columns.
func conditions(ctx context.Context, q Querier) ([]string, error) {
	found, err := rowsOf[condition](ctx, q, `
		SELECT 'SELECT FROM x WHERE ' || pg_get_expr(i.indpred, i.indrelid) AS text
		FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE i.indpred IS NOT NULL AND `+ordinary+`
		UNION
		SELECT pg_get_triggerdef(t.oid)
		FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE NOT t.tgisinternal AND t.tgqual IS NOT NULL AND `+ordinary+`
		UNION
		SELECT pg_get_viewdef(c.oid)
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('v', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
		ORDER BY 1`)
	if err != nil {
		return nil, fmt.Errorf("list conditions: %w", err)
	}
	var texts []string
	for _, c := range found {
		texts = append(texts, c.Text)
	}
	return texts, nil
}

func rowsOf[T any](ctx context.Context, q Querier, sql string) ([]*T, error) {
	rows, err := q.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToAddrOfStructByNameLax[T])
}

func (t *table) column(name string) *column {
	i := slices.IndexFunc(t.columns, func(c *column) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return t.columns[i]
}

func (t *table) hasAll(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return t.column(name) == nil })
}
