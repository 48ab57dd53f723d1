package seed

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/review/internal/syntax"
)

// mostLeaves is the greatest number of partitions of a table to get rows.
const mostLeaves = 64

// leaf is a partition with rows, and its bounds of columns.
type leaf struct {
	constraint string   // "" for every row
	checks     []string // of its own
	bounds     map[string]bound
}

// bound has a partition's values of a column: a list, or a range from lower to below upper.
type bound struct {
	list         []string // literals' texts
	null         bool     // of a list: takes NULL too
	lower, upper *string  // nil: unbounded
}

// branch is a node of the tree of a table's partitions.
type branch struct {
	Root, OID, Parent uint32
	Leaf              bool
	Constraint        string
	Checks            []string // of its own
	Bound             string
	Keys              []string // names of the columns the parent divides by; "" for an expression
	Expressions       string   // for the parent's keys, separated by commas
}

// listLeaves reads the partitions. Foreign tables are left out. A table without a partition has no leaf.
func listLeaves(ctx context.Context, tx pgx.Tx, byOID map[uint32]*table) error {
	branches, err := rowsOf[branch](ctx, tx, `
		SELECT c.oid AS root, l.relid::oid AS oid, coalesce(l.parentrelid::oid, 0) AS parent, l.isleaf AND p.relkind = 'r' AS leaf,
			coalesce(pg_get_partition_constraintdef(l.relid), '') AS constraint,
			ARRAY(SELECT pg_get_expr(k.conbin, k.conrelid) FROM pg_constraint AS k
				WHERE k.conrelid = l.relid AND k.contype = 'c' AND k.coninhcount = 0 ORDER BY k.conname) AS checks,
			coalesce(pg_get_expr(p.relpartbound, p.oid), '') AS bound,
			ARRAY(SELECT coalesce(a.attname::text, '') FROM unnest(d.partattrs::smallint[]) WITH ORDINALITY AS k (number, position)
				LEFT JOIN pg_attribute AS a ON a.attrelid = d.partrelid AND a.attnum = k.number AND k.number <> 0
				ORDER BY k.position) AS keys,
			coalesce(pg_get_expr(d.partexprs, d.partrelid), '') AS expressions
		FROM pg_class AS c
		JOIN pg_namespace AS n ON n.oid = c.relnamespace
		CROSS JOIN LATERAL pg_partition_tree(c.oid) AS l
		JOIN pg_class AS p ON p.oid = l.relid
		LEFT JOIN pg_partitioned_table AS d ON d.partrelid = l.parentrelid
		WHERE c.relkind = 'p' AND `+ordinary+`
		ORDER BY c.oid, l.relid::regclass::text`)
	if err != nil {
		return fmt.Errorf("list partitions: %w", err)
	}
	nodes := make(map[uint32]*branch)
	for _, b := range branches {
		nodes[b.OID] = b
	}
	for _, b := range branches {
		if t := byOID[b.Root]; b.Leaf {
			t.leaves = append(t.leaves, b.leaf(nodes))
		}
	}
	for _, t := range byOID {
		t.keepLeaves()
	}
	return nil
}

// keepLeaves leaves a number of partitions to choose from, spread over all, and adds the condition for a row in any.
func (t *table) keepLeaves() {
	if n := len(t.leaves); n > mostLeaves {
		var some []*leaf
		for i := range mostLeaves {
			some = append(some, t.leaves[i*n/mostLeaves])
		}
		t.leaves = some
	}
	var conditions []string
	for _, l := range t.leaves {
		var all []string
		for _, text := range append([]string{l.constraint}, l.checks...) {
			if text != "" {
				all = append(all, "("+text+")")
			}
		}
		if len(all) == 0 {
			return
		}
		conditions = append(conditions, "("+strings.Join(all, " AND ")+")")
	}
	if len(conditions) > 0 {
		t.checks = append(t.checks, check{Table: t.OID, Name: partitionCheck, Text: strings.Join(conditions, " OR ")})
	}
}

const partitionCheck = "the bounds of its partitions"

func (b *branch) leaf(nodes map[uint32]*branch) *leaf {
	l := &leaf{constraint: b.Constraint, checks: b.Checks, bounds: make(map[string]bound)}
	var path []*branch
	for at := b; at != nil && at.OID != at.Root; at = nodes[at.Parent] {
		path = append(path, at)
	}
	for _, at := range slices.Backward(path) {
		at.read(l.bounds)
	}
	return l
}

// read adds the bounds of one level. A default or a hash partition has none.
func (b *branch) read(bounds map[string]bound) {
	tree, err := syntax.Parse("CREATE TABLE x PARTITION OF y " + b.Bound)
	if err != nil {
		return
	}
	var spec map[string]any
	syntax.Walk(tree, func(kind string, object map[string]any) {
		if kind == "partbound" {
			spec = object
		}
	})
	names := b.names()
	switch spec["strategy"] {
	case "l":
		if len(names) != 1 || names[0] == "" {
			return
		}
		var l bound
		for _, item := range syntax.List(spec["listdatums"]) {
			if text := datum(item); text != nil {
				l.list = append(l.list, *text)
			} else {
				l.null = true
			}
		}
		if len(l.list) > 0 || l.null {
			bounds[names[0]] = l
		}
	case "r":
		lowers, uppers := syntax.List(spec["lowerdatums"]), syntax.List(spec["upperdatums"])
		for i, name := range names {
			if i >= len(lowers) || i >= len(uppers) || name == "" {
				return
			}
			lower, upper := datum(lowers[i]), datum(uppers[i])
			if lower != nil && upper != nil && *lower == *upper {
				bounds[name] = bound{list: []string{*lower}} // the next column decides
				continue
			}
			if i+1 < len(names) && lower != nil {
				// Rows at the lower bound of the first column take the next column's.
				bounds[name] = bound{list: []string{*lower}}
				if next := datum(lowers[i+1]); names[i+1] != "" && next != nil {
					bounds[names[i+1]] = bound{lower: next}
				}
				return
			}
			bounds[name] = bound{lower: lower, upper: upper}
			return
		}
	}
}

// names returns the columns of the key. An expression over one column counts as the column: the column gets the bounds'
// values, and the partitions' conditions decide.
func (b *branch) names() []string {
	names := slices.Clone(b.Keys)
	if b.Expressions == "" {
		return names
	}
	tree, err := syntax.Parse("SELECT " + b.Expressions)
	if err != nil {
		return names
	}
	var targets []any
	syntax.Walk(tree, func(kind string, object map[string]any) {
		if kind == "SelectStmt" && targets == nil {
			targets = syntax.List(object["targetList"])
		}
	})
	for i, name := range names {
		if name != "" || len(targets) == 0 {
			continue
		}
		if columns := columnsIn(targets[0]); len(columns) == 1 {
			names[i] = columns[0]
		}
		targets = targets[1:]
	}
	return names
}

// columnsIn returns the names of the columns in an expression.
func columnsIn(tree any) []string {
	var names []string
	syntax.Walk(tree, func(kind string, object map[string]any) {
		if name := syntax.Last(object["fields"]); kind == "ColumnRef" && name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	})
	return names
}

// datum returns a literal's text. Nil: NULL, MINVALUE or MAXVALUE.
func datum(tree any) *string {
	if values, ok := constants(tree); ok && len(values) == 1 {
		return &values[0]
	}
	if value, ok := syntax.At(syntax.Bare(tree), "A_Const", "boolval").(map[string]any); ok {
		truth, _ := value["boolval"].(bool)
		return new(strconv.FormatBool(truth))
	}
	return nil
}

// divided returns the value of a column bounded by partitions, by leaf, the partition of the row, or "".
func (c *composing) divided(column *column, w wish, general string) string {
	var cases []string
	for number, l := range c.table.leaves {
		b, ok := l.bounds[column.Name]
		if !ok {
			continue
		}
		n := fmt.Sprintf("(i / %d)", len(c.table.leaves))
		salt := salt(c.table.Name, column.Name, strconv.Itoa(number))
		if !w.unique {
			n = skewed(strconv.FormatInt(max(10, c.rows), 10), salt)
		}
		if value := b.value(column, n, w.unique, salt); value != "" {
			cases = append(cases, fmt.Sprintf("WHEN %d THEN %s", number, value))
		}
	}
	if len(cases) == 0 {
		return ""
	}
	if general == "" {
		general = "NULL"
	}
	return fmt.Sprintf("CASE leaf %s ELSE %s END", strings.Join(cases, " "), general)
}

// value returns a value within the bound; "" if nothing is known about the type.
func (b bound) value(column *column, n string, unique bool, salt uint32) string {
	switch {
	case len(b.list) > 0:
		return fmt.Sprintf("(%s::text[])[1 + (%s) %% %d]::%s", quoteArray(b.list), n, len(b.list), column.Base)
	case b.null:
		return "NULL::" + column.Base
	case b.lower == nil && b.upper == nil:
		return ""
	}
	literal := func(text *string) string { return quote(*text) + "::" + column.Base }
	switch column.sort.Plain {
	case "int2", "int4", "int8", "numeric", "float4", "float8":
		return b.number(literal, n, "", column.Base)
	case "date":
		return b.number(literal, n, "::integer", column.Base)
	case "timestamp", "timestamptz":
		step := fmt.Sprintf("interval '1 second' * (%s)", n)
		switch {
		case b.lower == nil:
			return fmt.Sprintf("(%s - interval '1 second' - %s)", literal(b.upper), step)
		case b.upper == nil:
			return fmt.Sprintf("(%s + %s)", literal(b.lower), step)
		case unique:
			return fmt.Sprintf("(%s + interval '1 second' * ((%s) %% greatest(1, extract(epoch FROM %s - %s)::bigint)))",
				literal(b.lower), n, literal(b.upper), literal(b.lower))
		}
		return fmt.Sprintf("(%s + (%s - %s) * %s)", literal(b.lower), literal(b.upper), literal(b.lower), chance(salt))
	}
	if b.lower == nil {
		return ""
	}
	if column.text() {
		return fmt.Sprintf("(%s || '-' || (%s))::%s", quote(*b.lower), n, column.Base)
	}
	if column.sort.Plain == "uuid" && len(*b.lower) == 36 {
		return fmt.Sprintf("(%s || lpad(to_hex(%s), 12, '0'))::uuid", quote((*b.lower)[:24]), n)
	}
	return literal(b.lower)
}

// number returns a value of a type with addition of whole numbers, after the cast.
func (b bound) number(literal func(*string) string, n, cast, kind string) string {
	switch {
	case b.lower == nil:
		return fmt.Sprintf("(%s - 1 - (%s)%s)::%s", literal(b.upper), n, cast, kind)
	case b.upper == nil:
		return fmt.Sprintf("(%s + (%s)%s)::%s", literal(b.lower), n, cast, kind)
	}
	return fmt.Sprintf("(%s + ((%s) %% greatest(1, (%s - %s)::bigint))%s)::%s", literal(b.lower), n, literal(b.upper), literal(b.lower), cast, kind)
}
