package plans

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/internal/syntax"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// index is an index of a database.
type index struct {
	OID       uint32
	Name      string
	Table     string
	TableOID  uint32
	Parent    string // of a partition's index, the name of the whole table's
	Enforces  bool   // uniqueness, an exclusion, the identity of rows for replication
	Serves    string // a foreign key whose check looks rows up by the index
	Columns   []string
	Method    string
	Condition string // must be equal, beside the columns, for two indexes to serve the same
	Included  []string
	Comment   string
}

func readIndexes(ctx context.Context, conn *pgx.Conn) (map[string]*index, error) {
	rows, err := conn.Query(ctx, `
		SELECT i.indexrelid AS oid, x.relname::text AS name, i.indrelid::regclass::text AS "table", i.indrelid AS table_oid,
			coalesce((SELECT p.inhparent::regclass::text FROM pg_inherits AS p WHERE p.inhrelid = i.indexrelid), '') AS parent,
			i.indisunique OR i.indisexclusion OR i.indisreplident OR i.indisclustered AS enforces,
			coalesce((SELECT min(r.conname)::text FROM pg_constraint AS r WHERE r.contype = 'f' AND r.conrelid = i.indrelid AND i.indpred IS NULL
				AND r.conkey <@ (i.indkey::smallint[])[0:cardinality(r.conkey) - 1]), '') AS serves,
			ARRAY(SELECT pg_get_indexdef(i.indexrelid, k, false) || ' ' || i.indclass[k - 1] || ' ' || i.indcollation[k - 1] || ' ' || i.indoption[k - 1]
				FROM generate_series(1, i.indnkeyatts) AS k ORDER BY k) AS columns,
			m.amname::text AS method, coalesce(pg_get_expr(i.indpred, i.indrelid), '') AS condition,
			ARRAY(SELECT pg_get_indexdef(i.indexrelid, k, false) FROM generate_series(i.indnkeyatts + 1, i.indnatts) AS k ORDER BY 1) AS included,
			coalesce(obj_description(i.indexrelid), '') AS comment
		FROM pg_index AS i
		JOIN pg_class AS x ON x.oid = i.indexrelid
		JOIN pg_am AS m ON m.oid = x.relam
		JOIN pg_class AS c ON c.oid = i.indrelid
		JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE i.indisvalid AND c.relkind IN ('r', 'p', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\_%'
		AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
		ORDER BY x.relname`)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[index])
	if err != nil {
		return nil, fmt.Errorf("list indexes: %w", err)
	}
	indexes := make(map[string]*index)
	for _, i := range found {
		indexes[i.Name] = i
	}
	return indexes, nil
}

// used returns the indexes in plans. An index of a partition also counts for the index of the whole table.
func (s *side) used() map[string]bool {
	used := make(map[string]bool)
	for _, e := range s.queries {
		for _, plan := range []*node{e.generic, e.custom, e.indexed} {
			if plan == nil {
				continue
			}
			plan.walk(func(n, _ *node) {
				for name := n.Index; name != "" && !used[name]; {
					used[name] = true
					if s.indexes[name] == nil {
						break
					}
					name = s.indexes[name].Parent
				}
			})
		}
	}
	return used
}

// unused returns the indexes without a query or another purpose.
func (s *side) unused() map[string]*index {
	used, found := s.used(), make(map[string]*index)
	for name, i := range s.indexes {
		if !used[name] && !i.Enforces && i.Serves == "" && i.Parent == "" {
			found[name] = i
		}
	}
	return found
}

// emptied returns the tables of before not read by queries of after because the plans are empty: row security hides all
// rows, or a condition is false. From version 17 on such a plan doesn't name the indexes it would use.
func (c *check) emptied() map[string]bool {
	tables := make(map[string]bool)
	for name, after := range c.after.queries {
		before := c.before.queries[name]
		if before == nil || before.generic == nil || !after.readsNothing() {
			continue
		}
		before.generic.walk(func(n, _ *node) { tables[n.Relation] = true })
	}
	return tables
}

// readsNothing reports whether the planner found a part of the query to have no rows.
func (e *explained) readsNothing() bool {
	nothing := false
	if e.generic != nil {
		e.generic.walk(func(n, _ *node) { nothing = nothing || n.Once == "false" })
	}
	return nothing
}

// redundant returns, for an index, another one for every use: the index's columns lead the other's.
func (s *side) redundant() map[string]string {
	found := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(s.indexes)) {
		i := s.indexes[name]
		if i.Enforces || i.Parent != "" || i.Method != "btree" {
			continue
		}
		for _, other := range slices.Sorted(maps.Keys(s.indexes)) {
			o := s.indexes[other]
			if o == i || o.TableOID != i.TableOID || o.Method != i.Method || o.Condition != i.Condition || len(o.Columns) < len(i.Columns) ||
				!slices.Equal(o.Columns[:len(i.Columns)], i.Columns) || slices.ContainsFunc(i.Included, func(c string) bool { return !o.covers(c) }) {
				continue
			}
			// Of two equal ones, the second is redundant.
			if same := len(o.Columns) == len(i.Columns) && len(o.Included) == len(i.Included) && !o.Enforces; same && name < other {
				continue
			}
			found[name] = other
			break
		}
	}
	return found
}

// partition reports whether a table is a partition with an index of the whole table.
func (s *side) partition(table string) bool {
	for _, i := range s.indexes {
		if i.Table == table && i.Parent != "" {
			return true
		}
	}
	return false
}

func (i *index) covers(column string) bool {
	return slices.Contains(i.Included, column) || slices.ContainsFunc(i.Columns, func(c string) bool { return strings.HasPrefix(c, column+" ") })
}

// places returns where migrations create each index, and which indexes have a comment there with an excuse from a rule.
func places(migrations []project.Migration) (at map[string]report.Place, excused map[string][]string) {
	at, excused = make(map[string]report.Place), make(map[string][]string)
	for _, m := range migrations {
		for _, s := range m.Up.Statements {
			if !strings.Contains(strings.ToLower(s.SQL), "index") {
				continue
			}
			tree, err := syntax.Parse(s.SQL)
			if err != nil {
				continue
			}
			syntax.Walk(tree, func(kind string, object map[string]any) {
				if name, ok := object["idxname"].(string); ok && kind == "IndexStmt" {
					at[name] = s.Place
					excused[name] = nil
					for _, silence := range s.Silence {
						excused[name] = append(excused[name], silence.Rule)
					}
				}
			})
		}
	}
	return at, excused
}

// indexes compares the use of indexes.
func (c *check) indexes() []report.Finding {
	at, excused := places(c.Head.Migrations)
	var findings []report.Finding
	add := func(broken, name string, severity report.Severity, title, detail, do string) {
		f := report.Finding{Rule: broken, Severity: severity, Object: name, Place: at[name], Title: title, Detail: detail, Do: do}
		findings = append(findings, f)
	}

	unused, before, emptied := c.after.unused(), c.before.unused(), c.emptied()
	var old []string
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		i := unused[name]
		switch known := c.before.indexes[name]; {
		case c.before.partition(i.Table) && !c.after.partition(i.Table): // the change detaches the partition, with the rows programs no longer want
		case emptied[i.Table[strings.LastIndexByte(i.Table, '.')+1:]] && before[name] == nil: // a use by queries is unknown
		case known == nil:
			add(rule.IndexUnused.Name, name, report.Advice, fmt.Sprintf("No query uses the new index %s", report.Code(name)),
				fmt.Sprintf("It is on `%s`. No plan of the queries takes it, not even where the server may not read tables whole. Every write keeps it.", i.Table),
				"Leave it out, or say at the statement which queries it serves: `-- review: allow index-unused until …: …`.")
		case before[name] == nil:
			add(rule.IndexUnused.Name, name, report.Advice, fmt.Sprintf("No query uses the index %s any longer", report.Code(name)),
				fmt.Sprintf("It is on `%s`. Queries used it before the change.", i.Table), "Drop it, once no program of before runs.")
		case !slices.Contains(excused[name], rule.IndexUnused.Name):
			old = append(old, fmt.Sprintf("`%s` on `%s`", name, i.Table))
		}
	}
	if len(old) > 0 {
		findings = append(findings, report.Finding{Rule: rule.IndexUnused.Name, Severity: report.Note, Object: "indexes",
			Title: fmt.Sprintf("Of the indexes of before, %s", counted(len(old), "is used by no query", "are used by no query")), Detail: strings.Join(old, ", ") + "."})
	}

	redundant, redundantBefore := c.after.redundant(), c.before.redundant()
	old = nil
	for _, name := range slices.Sorted(maps.Keys(redundant)) {
		other := redundant[name]
		if redundantBefore[name] == other {
			if !slices.Contains(excused[name], rule.IndexRedundant.Name) {
				old = append(old, fmt.Sprintf("`%s` beside `%s`", name, other))
			}
			continue
		}
		if c.before.indexes[name] != nil { // the other one is new: the finding belongs there
			at[name] = cmp.Or(at[other], at[name])
		}
		add(rule.IndexRedundant.Name, name, report.Advice, fmt.Sprintf("The index %s serves nothing that %s does not serve", report.Code(name), report.Code(other)),
			fmt.Sprintf("Its columns lead those of `%s`, on the same table under the same condition.", other), fmt.Sprintf("Keep one: drop `%s`.", name))
	}
	if len(old) > 0 {
		findings = append(findings, report.Finding{Rule: rule.IndexRedundant.Name, Severity: report.Note, Object: "indexes",
			Title: fmt.Sprintf("Of the indexes of before, %s", counted(len(old), "is redundant", "are redundant")), Detail: strings.Join(old, ", ") + "."})
	}
	return findings
}

func counted(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}
