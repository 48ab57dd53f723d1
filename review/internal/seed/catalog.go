package seed

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Querier reads in a transaction: a connection or a pool.
type Querier interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// table is a table to fill, also with the rows of its partitions.
type table struct {
	OID         uint32
	Name        string // in SQL syntax, with its schema unless public
	SQL         string // in SQL syntax, with its schema
	Seen        string // in SQL syntax, as the session's search path shows it
	Schema      string // unquoted
	Bare        string // unquoted, without the schema
	Partitioned bool
	Forced      bool // row level security also applies to the owner
	Rules       bool // on INSERT or UPDATE, with which ON CONFLICT cannot be used

	columns    []*column
	keys       []key // unique
	references []reference
	checks     []check
	leaves     []*leaf          // of a partitioned table
	statistics *tableStatistics // of production; nil: not known
	scale      float64          // rows here for each one there
}

type column struct {
	Table     uint32
	Number    int16
	Name      string // unquoted
	Type      string // with the modifier; a domain by name
	TypeOID   uint32
	Modifier  int32
	NotNull   bool   // by itself or by the domain
	Identity  bool   // the server numbers it
	Generated string // the expression of a generated column
	Default   string // the expression; "" is none
	Volatile  bool   // the default numbers rows

	// Base is the type below domains, as is sort.
	Base  string
	sort  *sort
	types map[uint32]*sort
	depth int // of a part of a column
	// DomainChecks are the conditions of the domains Type is of; the value is called VALUE in them.
	DomainChecks []string
	MaxLength    int // of a varchar, char or bit; 0: none
	Precision    int // of a numeric; 0: none
	Scale        int // of a numeric
}

type key struct {
	Table      uint32
	Name       string
	Columns    []string
	Expression bool // of an expression, or of some rows only
	Primary    bool
	// Deferred: checked at the end of the transaction. ON CONFLICT cannot use such a key.
	Deferred bool
}

type reference struct {
	Table   uint32
	Name    string
	Columns []string
	To      uint32
	ToNames []string
	// Deferrable: may be checked at the end of the transaction.
	Deferrable bool

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

// tables reads the tables of a database by name, and the texts of the conditions. Expressions name everything with the
// schema, so they mean the same under every search path.
func tables(ctx context.Context, q Querier) (found []*table, texts []string, err error) {
	err = pgx.BeginFunc(ctx, q, func(tx pgx.Tx) error {
		if found, err = listTables(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SET LOCAL search_path = ''`); err != nil {
			return err
		}
		byOID := make(map[uint32]*table)
		for _, t := range found {
			byOID[t.OID] = t
		}
		for _, part := range []func(context.Context, pgx.Tx, map[uint32]*table) error{
			listColumns, listKeys, listReferences, listChecks, listLeaves,
		} {
			if err := part(ctx, tx, byOID); err != nil {
				return err
			}
		}
		texts, err = conditions(ctx, tx)
		return err
	})
	return found, texts, err
}

func listTables(ctx context.Context, tx pgx.Tx) ([]*table, error) {
	found, err := rowsOf[table](ctx, tx, `
		SELECT c.oid, CASE WHEN n.nspname = 'public' THEN '' ELSE quote_ident(n.nspname) || '.' END || quote_ident(c.relname) AS name,
			quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS sql, c.oid::regclass::text AS seen,
			n.nspname::text AS schema, c.relname::text AS bare, c.relkind = 'p' AS partitioned,
			c.relrowsecurity AND c.relforcerowsecurity AS forced,
			EXISTS (SELECT FROM pg_rewrite AS r WHERE r.ev_class = c.oid AND r.ev_type IN ('2', '3')) AS rules
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE `+ordinary+` ORDER BY 2`)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return found, nil
}

func listColumns(ctx context.Context, tx pgx.Tx, byOID map[uint32]*table) error {
	types, err := sorts(ctx, tx)
	if err != nil {
		return err
	}
	columns, err := rowsOf[column](ctx, tx, `
		SELECT a.attrelid AS "table", a.attnum AS number, a.attname::text AS name,
			format_type(a.atttypid, a.atttypmod) AS type, a.atttypid AS type_oid, a.atttypmod AS modifier,
			a.attnotnull AS not_null, a.attidentity <> '' AS identity,
			CASE WHEN a.attgenerated <> '' THEN pg_get_expr(d.adbin, d.adrelid) ELSE '' END AS generated,
			CASE WHEN a.attgenerated = '' THEN coalesce(pg_get_expr(d.adbin, d.adrelid), '') ELSE '' END AS "default",
			a.attgenerated = '' AND coalesce(pg_get_expr(d.adbin, d.adrelid) LIKE '%nextval(%', false) AS volatile
		FROM pg_attribute AS a
		JOIN pg_class AS c ON c.oid = a.attrelid
		JOIN pg_namespace AS n ON n.oid = c.relnamespace
		LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE a.attnum > 0 AND NOT a.attisdropped AND `+ordinary+`
		ORDER BY a.attrelid, a.attnum`)
	if err != nil {
		return fmt.Errorf("list columns: %w", err)
	}
	for _, c := range columns {
		c.resolve(types)
		byOID[c.Table].columns = append(byOID[c.Table].columns, c)
	}
	return nil
}

func listKeys(ctx context.Context, tx pgx.Tx, byOID map[uint32]*table) error {
	keys, err := rowsOf[key](ctx, tx, `
		SELECT i.indrelid AS "table", x.relname::text AS name,
			ARRAY(
				SELECT a.attname::text FROM unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (number, position)
				JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number
				WHERE k.position <= i.indnkeyatts ORDER BY k.position
			) AS columns,
			i.indexprs IS NOT NULL OR i.indpred IS NOT NULL AS expression, i.indisprimary AS "primary", NOT i.indimmediate AS deferred
		FROM pg_index AS i
		JOIN pg_class AS x ON x.oid = i.indexrelid
		JOIN pg_class AS c ON c.oid = i.indrelid
		JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE (i.indisunique OR i.indisexclusion) AND `+ordinary+`
		ORDER BY i.indrelid, NOT i.indisprimary, x.relname`)
	if err != nil {
		return fmt.Errorf("list keys: %w", err)
	}
	for _, k := range keys {
		byOID[k.Table].keys = append(byOID[k.Table].keys, *k)
	}
	return nil
}

func listReferences(ctx context.Context, tx pgx.Tx, byOID map[uint32]*table) error {
	references, err := rowsOf[reference](ctx, tx, `
		SELECT r.conrelid AS "table", r.conname::text AS name,
			ARRAY(SELECT a.attname::text FROM unnest(r.conkey) WITH ORDINALITY AS k (number, position)
				JOIN pg_attribute AS a ON a.attrelid = r.conrelid AND a.attnum = k.number ORDER BY k.position) AS columns,
			r.confrelid AS "to",
			ARRAY(SELECT a.attname::text FROM unnest(r.confkey) WITH ORDINALITY AS k (number, position)
				JOIN pg_attribute AS a ON a.attrelid = r.confrelid AND a.attnum = k.number ORDER BY k.position) AS to_names,
			r.condeferrable AS deferrable
		FROM pg_constraint AS r
		JOIN pg_class AS c ON c.oid = r.conrelid
		JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE r.contype = 'f' AND `+ordinary+`
		ORDER BY r.conrelid, r.conname`)
	if err != nil {
		return fmt.Errorf("list references: %w", err)
	}
	for _, r := range references {
		if byOID[r.To] != nil && !slices.ContainsFunc(byOID[r.Table].references, func(o reference) bool {
			return o.To == r.To && slices.Equal(o.Columns, r.Columns) && slices.Equal(o.ToNames, r.ToNames)
		}) {
			byOID[r.Table].references = append(byOID[r.Table].references, *r)
		}
	}
	return nil
}

func listChecks(ctx context.Context, tx pgx.Tx, byOID map[uint32]*table) error {
	checks, err := rowsOf[check](ctx, tx, `
		SELECT r.conrelid AS "table", r.conname::text AS name, pg_get_expr(r.conbin, r.conrelid) AS text,
			ARRAY(SELECT a.attname::text FROM pg_attribute AS a WHERE a.attrelid = r.conrelid AND a.attnum = ANY (r.conkey)) AS columns
		FROM pg_constraint AS r
		JOIN pg_class AS c ON c.oid = r.conrelid
		JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE r.contype = 'c' AND `+ordinary+`
		ORDER BY 1, 2`)
	if err != nil {
		return fmt.Errorf("list checks: %w", err)
	}
	for _, c := range checks {
		byOID[c.Table].checks = append(byOID[c.Table].checks, *c)
	}
	return nil
}

// conditions reads the expressions of indexes, triggers and views, whose literals are values of columns.
func conditions(ctx context.Context, tx pgx.Tx) ([]string, error) {
	found, err := rowsOf[condition](ctx, tx, `
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

func rowsOf[T any](ctx context.Context, tx pgx.Tx, sql string) ([]*T, error) {
	rows, err := tx.Query(ctx, sql)
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
