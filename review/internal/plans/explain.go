package plans

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/review/internal/arguments"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

// node is a node of a plan in the form of EXPLAIN.
type node struct {
	Type      string   `json:"Node Type"`
	Operation string   `json:"Operation"`
	Relation  string   `json:"Relation Name"`
	Schema    string   `json:"Schema"`
	Index     string   `json:"Index Name"`
	Join      string   `json:"Join Type"`
	Strategy  string   `json:"Strategy"`
	Direction string   `json:"Scan Direction"`
	Condition string   `json:"Index Cond"`
	Filter    string   `json:"Filter"`
	Once      string   `json:"One-Time Filter"`
	SortKey   []string `json:"Sort Key"`
	Role      string   `json:"Parent Relationship"`
	Rows      float64  `json:"Plan Rows"`
	Plans     []*node  `json:"Plans"`
}

func (n *node) walk(visit func(n, above *node)) { n.below(nil, visit) }

func (n *node) below(above *node, visit func(n, above *node)) {
	visit(n, above)
	for _, sub := range n.Plans {
		sub.below(n, visit)
	}
}

// title describes the node, without the parts dependent only on the statistics.
func (n *node) title() string {
	parts := []string{n.Type}
	if n.Operation != "" {
		parts[0] = n.Operation
	}
	if n.Strategy != "" && n.Strategy != "Plain" {
		parts = append(parts, strings.ToLower(n.Strategy))
	}
	if n.Join != "" && n.Join != "Inner" {
		parts = append(parts, strings.ToLower(n.Join))
	}
	if n.Direction == "Backward" {
		parts = append(parts, "backward")
	}
	if n.Index != "" {
		parts = append(parts, "by "+n.Index)
	}
	if n.Relation != "" {
		parts = append(parts, "on "+n.Relation)
	}
	if len(n.SortKey) > 0 {
		parts = append(parts, "by "+strings.Join(n.SortKey, ", "))
	}
	return strings.Join(parts, " ")
}

// shape is the plan, a node a line.
func (n *node) shape() string {
	var b strings.Builder
	n.write(&b, 0)
	return b.String()
}

func (n *node) write(b *strings.Builder, depth int) {
	fmt.Fprintf(b, "%s%s\n", strings.Repeat("  ", depth), n.title())
	if n.Condition != "" {
		fmt.Fprintf(b, "%s  where %s\n", strings.Repeat("  ", depth), n.Condition)
	}
	for _, sub := range n.Plans {
		sub.write(b, depth+1)
	}
}

// bare is the shape without the conditions of indexes.
func bare(n *node) string {
	var b strings.Builder
	n.walk(func(n, _ *node) { fmt.Fprintf(&b, "%s(%d)\n", n.title(), len(n.Plans)) })
	return b.String()
}

// summary describes in one line the reading of tables, and the sorts.
func (n *node) summary() string {
	var parts []string
	n.walk(func(n, _ *node) {
		if (n.Relation != "" && n.Operation == "" || n.Index != "" || strings.HasSuffix(n.Type, "Sort")) && !slices.Contains(parts, n.title()) {
			parts = append(parts, n.title())
		}
	})
	if len(parts) == 0 {
		return n.title()
	}
	return strings.Join(parts, "; ")
}

// explained are the plans of one query on one side.
type explained struct {
	query   project.Query
	generic *node // nil if ruled out by the settings, or nothing was planned
	custom  *node
	indexed *node // generic, with sequential scans disabled
	err     error // the reason why there is none
	skipped string
}

// plans returns the relevant plans, by name.
func (e *explained) plans() map[string]*node {
	found := make(map[string]*node)
	if e.generic != nil {
		found["generic"] = e.generic
	}
	if e.custom != nil {
		found["custom"] = e.custom
	}
	return found
}

// side is one database with the plans of a side's queries.
type side struct {
	conn     *pgx.Conn
	settings map[string]string
	values   *arguments.Values
	queries  map[string]*explained
	rows     map[string]int64 // of tables, by name without schema
	indexes  map[string]*index
}

// read plans the queries of a side.
func read(ctx context.Context, conn *pgx.Conn, queries []project.Query, settings map[string]string) (*side, error) {
	s := &side{conn: conn, settings: settings, queries: make(map[string]*explained)}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if _, err := conn.Exec(ctx, "SELECT set_config($1, $2, false)", name, settings[name]); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	var err error
	if s.values, err = arguments.New(ctx, conn); err != nil {
		return nil, err
	}
	if s.rows, err = rowCounts(ctx, conn); err != nil {
		return nil, err
	}
	if s.indexes, err = readIndexes(ctx, conn); err != nil {
		return nil, err
	}
	for _, q := range queries {
		e := &explained{query: q}
		s.queries[q.Name] = e
		if !arguments.Runnable(q.SQL) {
			continue
		}
		err := s.explain(ctx, e)
		var refused *pgconn.PgError
		switch {
		case errors.As(err, &refused):
			e.err = refused
		case err != nil:
			return nil, fmt.Errorf("plan %s: %w", q.Name, err)
		}
	}
	return s, nil
}

func rowCounts(ctx context.Context, conn *pgx.Conn) (map[string]int64, error) {
	rows, err := conn.Query(ctx, `
		SELECT c.relname::text, max(greatest(c.reltuples, 0))::bigint
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\_%'
		GROUP BY 1`)
	if err != nil {
		return nil, err
	}
	counts := make(map[string]int64)
	var name string
	var count int64
	_, err = pgx.ForEachRow(rows, []any{&name, &count}, func() error { counts[name] = count; return nil })
	return counts, err
}

// explain plans a query each way. Afterwards the transaction and the prepared statement are gone.
func (s *side) explain(ctx context.Context, e *explained) (err error) {
	prepared, err := s.conn.Prepare(ctx, "reviewed", e.query.SQL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.conn.Deallocate(ctx, "reviewed")) }()

	modes := []struct {
		name string
		to   **node
	}{{"force_generic_plan", &e.generic}, {"force_custom_plan", &e.custom}}
	settled := s.settings["plan_cache_mode"]
	for _, mode := range modes {
		if strings.HasPrefix(settled, "force_") && settled != mode.name {
			continue
		}
		literals := slices.Repeat([]string{"NULL"}, len(prepared.ParamOIDs))
		if mode.name == "force_custom_plan" {
			if literals, err = s.values.For(ctx, e.query.SQL, prepared.ParamOIDs); err != nil {
				return err
			}
		}
		if *mode.to, err = s.plan(ctx, mode.name, literals, false); err != nil {
			var refused *pgconn.PgError
			if mode.name == "force_custom_plan" && errors.As(err, &refused) {
				e.skipped = refused.Message // a function refused the chosen arguments
				continue
			}
			return err
		}
	}
	e.indexed, err = s.plan(ctx, "force_generic_plan", slices.Repeat([]string{"NULL"}, len(prepared.ParamOIDs)), true)
	return err
}

func (s *side) plan(ctx context.Context, mode string, literals []string, indexed bool) (*node, error) {
	var document []byte
	err := pgx.BeginTxFunc(ctx, s.conn, pgx.TxOptions{}, func(tx pgx.Tx) error {
		statement := "SET LOCAL plan_cache_mode = " + mode + "; SET LOCAL jit = off"
		if indexed {
			statement += "; SET LOCAL enable_seqscan = off; DISCARD PLANS" // the generic plan was kept, whatever is set
		}
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
		return tx.QueryRow(ctx, "EXPLAIN (FORMAT JSON) "+arguments.Execute("reviewed", literals), pgx.QueryExecModeSimpleProtocol).Scan(&document)
	})
	if err != nil {
		return nil, err
	}
	var plans []json.RawMessage
	if err := json.Unmarshal(document, &plans); err != nil {
		return nil, err
	}
	nothing := &node{Type: "nothing"}
	if len(plans) == 0 || string(plans[0]) == `"Utility Statement"` { // such as LOCK
		return nothing, nil
	}
	var planned struct{ Plan *node }
	if err := json.Unmarshal(plans[0], &planned); err != nil {
		return nil, err
	}
	return cmp.Or(planned.Plan, nothing), nil
}
