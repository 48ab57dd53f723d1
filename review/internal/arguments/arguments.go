// Package arguments chooses arguments for generated queries, so they can be run and planned on a filled database: a
// parameter beside a column gets a value of that column. The parameters for the columns of one table get the values of
// one row, so they go together. The same database gives the same arguments.
package arguments

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/review/internal/syntax"
)

// limit is the argument of a LIMIT, and every number about which nothing is known.
const limit = "100"

// Values chooses on one connection. It must be used by one goroutine.
type Values struct {
	conn    *pgx.Conn
	tables  map[string]*table // by name without schema
	types   map[uint32]kind
	samples map[uint32]map[string]*string
}

type table struct {
	OID     uint32
	Name    string // in SQL syntax
	Bare    string
	Rows    int64
	columns map[string]uint32
}

type kind struct {
	OID      uint32
	Name     string
	Category string
	Element  uint32 // of arrays
	Kind     string
}

// New reads the catalog.
func New(ctx context.Context, conn *pgx.Conn) (*Values, error) {
	v := &Values{conn: conn, tables: make(map[string]*table), types: make(map[uint32]kind), samples: make(map[uint32]map[string]*string)}
	rows, err := conn.Query(ctx, `
		SELECT c.oid, c.oid::regclass::text, c.relname::text, greatest(c.reltuples, 0)::bigint, a.attname::text, a.atttypid
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relkind IN ('r', 'p', 'v', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\_%'
		ORDER BY c.oid, a.attnum`)
	if err != nil {
		return nil, err
	}
	var t table
	var column string
	var of uint32
	if _, err := pgx.ForEachRow(rows, []any{&t.OID, &t.Name, &t.Bare, &t.Rows, &column, &of}, func() error {
		if v.tables[t.Bare] == nil || v.tables[t.Bare].OID != t.OID {
			known := t
			known.columns = make(map[string]uint32)
			v.tables[t.Bare] = &known
		}
		v.tables[t.Bare].columns[column] = of
		return nil
	}); err != nil {
		return nil, err
	}
	rows, err = conn.Query(ctx, `SELECT oid, format_type(oid, NULL), typcategory::text, CASE WHEN typcategory = 'A' THEN typelem ELSE 0 END, typtype::text FROM pg_type`)
	if err != nil {
		return nil, err
	}
	var k kind
	_, err = pgx.ForEachRow(rows, []any{&k.OID, &k.Name, &k.Category, &k.Element, &k.Kind}, func() error {
		v.types[k.OID] = k
		return nil
	})
	return v, err
}

// For returns an SQL literal for each parameter of a statement, whose types are known from preparing it.
func (v *Values) For(ctx context.Context, sql string, types []uint32) ([]string, error) {
	if len(types) == 0 {
		return nil, nil
	}
	columns := map[int]string{}
	var relations []string
	if tree, err := syntax.Parse(sql); err == nil {
		columns, relations = besides(tree), syntax.Relations(tree)
	}
	literals := make([]string, len(types))
	for i, of := range types {
		text, err := v.value(ctx, columns[i+1], relations, of)
		if err != nil {
			return nil, err
		}
		literals[i] = "NULL"
		if text != nil {
			literals[i] = "'" + strings.ReplaceAll(*text, "'", "''") + "'"
		}
	}
	return literals, nil
}

// Execute returns the statement that runs a prepared one.
func Execute(name string, literals []string) string {
	if len(literals) == 0 {
		return "EXECUTE " + name
	}
	return fmt.Sprintf("EXECUTE %s (%s)", name, strings.Join(literals, ", "))
}

// value returns a value of the column's type or else one of the parameter's type. Nil: NULL.
func (v *Values) value(ctx context.Context, column string, relations []string, of uint32) (*string, error) {
	k := v.types[of]
	for _, name := range relations {
		t := v.tables[name]
		if t == nil || column == "" {
			continue
		}
		in, ok := t.columns[column]
		if !ok {
			continue
		}
		array := in != of && k.Element != 0
		wanted := k
		if array {
			wanted = v.types[k.Element]
		}
		// A text may become any type of column.
		if in != of && wanted.Category != "S" && v.types[in].Category != wanted.Category {
			continue
		}
		text, err := v.sample(ctx, t, column)
		if err != nil {
			return nil, err
		}
		if text == nil {
			continue
		}
		if array {
			return new(`{"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(*text) + `"}`), nil
		}
		return text, nil
	}
	return v.usual(ctx, k)
}

// sample returns the value of the column in a row from the middle of the table or, if that is null, in another row.
func (v *Values) sample(ctx context.Context, t *table, column string) (*string, error) {
	if v.samples[t.OID] == nil {
		v.samples[t.OID] = make(map[string]*string)
		var names, texts []string
		for name := range t.columns {
			names = append(names, name)
			texts = append(texts, pgx.Identifier{name}.Sanitize()+"::text")
		}
		rows, err := v.conn.Query(ctx, fmt.Sprintf("SELECT ARRAY[%s] FROM (SELECT * FROM %s OFFSET %d LIMIT 1) AS x", strings.Join(texts, ", "), t.Name, t.Rows*3/8))
		if err != nil {
			return nil, err
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[[]*string])
		if err != nil {
			return nil, fmt.Errorf("sample %s: %w", t.Name, err)
		}
		if len(found) == 1 {
			for i, name := range names {
				v.samples[t.OID][name] = found[0][i]
			}
		}
	}
	if text, ok := v.samples[t.OID][column]; ok && text == nil {
		quoted := pgx.Identifier{column}.Sanitize()
		rows, err := v.conn.Query(ctx, fmt.Sprintf("SELECT %s::text FROM %s WHERE %s IS NOT NULL LIMIT 1", quoted, t.Name, quoted))
		if err != nil {
			return nil, err
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("sample %s: %w", t.Name, err)
		}
		if len(found) == 1 {
			v.samples[t.OID][column] = &found[0]
		} else {
			delete(v.samples[t.OID], column)
		}
	}
	return v.samples[t.OID][column], nil
}

// usual returns a value of a type about which nothing else is known.
func (v *Values) usual(ctx context.Context, k kind) (*string, error) {
	if k.Kind == "e" {
		var label string
		if err := v.conn.QueryRow(ctx, `SELECT enumlabel::text FROM pg_enum WHERE enumtypid = $1 ORDER BY enumsortorder LIMIT 1`, k.OID).Scan(&label); err != nil {
			return nil, err
		}
		return &label, nil
	}
	switch k.Name {
	case "uuid":
		return new("00000000-0000-0000-0000-000000000001"), nil
	case "json", "jsonb":
		return new("{}"), nil
	case "bytea":
		return new(`\x00`), nil
	}
	switch k.Category {
	case "N":
		return new(limit), nil
	case "S":
		return new("x"), nil
	case "B":
		return new("true"), nil
	case "D":
		return new("today"), nil
	case "T":
		return new("1 hour"), nil
	case "A":
		element, err := v.usual(ctx, v.types[k.Element])
		if err != nil || element == nil {
			return new("{}"), err
		}
		return new(`{"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(*element) + `"}`), nil
	}
	return nil, nil
}

// besides returns the column beside each parameter: compared with it, assigned to it, or unnested as it.
func besides(tree any) map[int]string {
	found := make(map[int]string)
	note := func(expression any, column string) {
		if number := syntax.Parameter(expression); number > 0 && column != "" && found[number] == "" {
			found[number] = column
		}
	}
	deep := func(expression any, column string) {
		note(expression, column)
		syntax.Walk(expression, func(kind string, object map[string]any) {
			if kind == "ParamRef" {
				note(map[string]any{kind: object}, column)
			}
		})
	}
	syntax.Walk(tree, func(kind string, object map[string]any) {
		switch kind {
		case "A_Expr":
			left, right := object["lexpr"], object["rexpr"]
			note(left, syntax.Column(right))
			if column := syntax.Column(left); column != "" {
				deep(right, column) // also IN and BETWEEN
			}
			lefts, rights := syntax.List(syntax.At(left, "RowExpr", "args")), syntax.List(syntax.At(right, "RowExpr", "args"))
			for i := range min(len(lefts), len(rights)) {
				note(rights[i], syntax.Column(lefts[i]))
				note(lefts[i], syntax.Column(rights[i]))
			}
		case "RangeFunction":
			var parameters []any
			for _, function := range syntax.List(object["functions"]) {
				items := syntax.List(syntax.At(function, "List", "items"))
				if len(items) > 0 {
					parameters = append(parameters, syntax.List(syntax.At(items[0], "FuncCall", "args"))...)
				}
			}
			for i, name := range syntax.List(syntax.At(object["alias"], "colnames")) {
				if i < len(parameters) {
					note(parameters[i], syntax.Text(name))
				}
			}
		case "ResTarget":
			name, _ := object["name"].(string)
			deep(object["val"], name)
		case "InsertStmt":
			var names []string
			for _, target := range syntax.List(object["cols"]) {
				name, _ := syntax.At(target, "ResTarget", "name").(string)
				names = append(names, name)
			}
			rows := [][]any{nil}
			for _, target := range syntax.List(syntax.At(object["selectStmt"], "SelectStmt", "targetList")) {
				rows[0] = append(rows[0], syntax.At(target, "ResTarget", "val"))
			}
			for _, row := range syntax.List(syntax.At(object["selectStmt"], "SelectStmt", "valuesLists")) {
				rows = append(rows, syntax.List(syntax.At(row, "List", "items")))
			}
			for _, row := range rows {
				for i, value := range row {
					if i < len(names) {
						deep(value, names[i])
					}
				}
			}
		}
	})
	return found
}
