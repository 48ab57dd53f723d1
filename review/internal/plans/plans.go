package plans

import (
	"cmp"
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

// Input has the two sides [Check] compares.
type Input struct {
	Base, Head *project.Side
	// Before is a database with base's schema, filled; After the same migrated to head's, its new tables filled too. Both
	// are analysed. No other session may write there meanwhile. Check undoes its changes.
	Before, After string
	// Large is the number of rows from which a table counts as large.
	Large int64
	// Sized reports whether the seed file gives a table's number of rows. In other, possibly small tables new queries are
	// a risk at most. Nil: there is no such table.
	Sized func(table string) bool
	// Settings are the settings of the project's programs' sessions, from the seed file.
	Settings map[string]string
}

// Result is the result of [Check]: the changed plans, and the unchecked queries, a line each.
type Result struct {
	Findings []report.Finding
	Changes  []report.Change
	Skipped  []string
}

// check is one call of [Check].
type check struct {
	Input
	before, after *side
	refused       []string            // queries the schema of neither side accepts, with the reason
	old           map[string][]string // problems from before, by rule: a line each
}

// Check plans the queries of both sides, each on its own database. The result has the differences, and head's problems.
func Check(ctx context.Context, in Input) (*Result, error) {
	c := &check{Input: in, old: make(map[string][]string)}
	type read1 struct {
		side *side
		err  error
	}
	open := func(url string, queries []project.Query) (s *side, close func(), err error) {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return nil, func() {}, err
		}
		close = func() { conn.Close(context.WithoutCancel(ctx)) }
		s, err = read(ctx, conn, queries, in.Settings)
		return s, close, err
	}
	done := make(chan read1)
	var closeBefore func()
	go func() {
		s, close, err := open(in.Before, in.Base.Queries)
		closeBefore = close
		done <- read1{s, err}
	}()
	after, closeAfter, err := open(in.After, in.Head.Queries)
	defer closeAfter()
	before := <-done
	defer closeBefore()
	if err := errors.Join(err, before.err); err != nil {
		return nil, fmt.Errorf("plans: %w", err)
	}
	c.before, c.after = before.side, after

	result := new(Result)
	for _, name := range slices.Sorted(maps.Keys(c.after.queries)) {
		result.Findings = append(result.Findings, c.query(name)...)
		result.Changes = append(result.Changes, c.changes(name)...)
	}
	for _, name := range slices.Sorted(maps.Keys(c.old)) {
		if lines := c.old[name]; len(lines) > 0 {
			what := map[string]string{rule.SequentialScan.Name: "large tables are read whole", rule.LargeSort.Name: "the rows of large tables are sorted"}[name]
			result.Findings = append(result.Findings, report.Finding{
				Rule: name, Severity: report.Note, Object: "queries", Detail: strings.Join(lines, "\n"),
				Title: fmt.Sprintf("As before the change, %s by %s", what, counted(len(lines), "plan of a query", "plans of queries")),
			})
		}
	}
	result.Findings = append(result.Findings, c.indexes()...)
	updates, err := c.updates(ctx)
	if err != nil {
		return nil, fmt.Errorf("heap-only updates: %w", err)
	}
	result.Findings = append(result.Findings, updates...)
	result.Skipped = Refused(c.refused)
	return result, nil
}

// Refused lists, in a line or a few, the queries their own schema refuses.
func Refused(lines []string) []string {
	slices.Sort(lines)
	lines = slices.Compact(lines)
	const most = 3
	if len(lines) <= most {
		for i, line := range lines {
			lines[i] = "the query " + line
		}
		return lines
	}
	return []string{fmt.Sprintf("%d queries are refused by the schema that they were written for, as %s", len(lines), strings.Join(lines[:most], "; "))}
}

// modes are the ways to plan, in the order of the report.
var modes = []string{"generic", "custom"}

// changes returns the differences between the plans of a query of both sides.
func (c *check) changes(name string) []report.Change {
	after, before := c.after.queries[name], c.before.queries[name]
	var changes []report.Change
	was := make(map[string]string)
	for _, mode := range modes {
		now := after.plans()[mode]
		if now == nil || before == nil || before.plans()[mode] == nil {
			continue
		}
		old := before.plans()[mode]
		from, to := old.shape(), now.shape()
		if from == to || was[from] == to { // the second plan often changes as the first one
			continue
		}
		was[from] = to
		change := report.Change{
			Kind: "plan", Object: fmt.Sprintf("%s (%s)", name, mode), Before: old.summary(), After: now.summary(), Place: after.query.Place,
			Details: "Before:\n" + from + "After:\n" + to,
		}
		if change.Before == change.After { // equal in one line
			change.After += "; composed otherwise"
			if bare(old) == bare(now) {
				change.After = change.Before + "; by other conditions"
			}
		}
		changes = append(changes, change)
	}
	return changes
}

// trouble has the problems of a plan, by rule and table.
type trouble map[[2]string]complaint

type complaint struct {
	what string
	// perhaps: the plan may end long before reading everything.
	perhaps bool
}

func (c *check) troubles(s *side, plan *node) trouble {
	found := make(trouble)
	if plan == nil {
		return found
	}
	plan.walk(func(n, above *node) {
		switch {
		case n.Type == "Seq Scan" && s.rows[n.Relation] >= c.Large:
			if n.Filter == "" && above != nil && above.Type == "Limit" {
				return // ends after a few rows
			}
			what := fmt.Sprintf("reads `%s` whole", n.Relation)
			if n.Filter != "" {
				what += " for " + report.Code(n.Filter)
			}
			found[[2]string{rule.SequentialScan.Name, n.Relation}] = complaint{what: what}
		case strings.HasPrefix(n.Type, "Index") && n.Relation != "" && n.Condition == "" && n.Filter != "" && s.rows[n.Relation] >= c.Large &&
			(s.indexes[n.Index] == nil || s.indexes[n.Index].Condition == ""):
			about := [2]string{rule.SequentialScan.Name, n.Relation}
			if _, ok := found[about]; !ok {
				found[about] = complaint{what: fmt.Sprintf("goes through all of `%s` in the order of `%s` for %s", n.Relation, n.Index, report.Code(n.Filter)), perhaps: true}
			}
		case n.Type == "Sort" && len(n.Plans) > 0 && n.Plans[0].Rows >= float64(c.Large):
			tables := n.tables()
			found[[2]string{rule.LargeSort.Name, strings.Join(tables, ", ")}] = complaint{what: fmt.Sprintf("sorts the rows of `%s` by %s", strings.Join(tables, "`, `"), report.Code(strings.Join(n.SortKey, ", ")))}
		}
	})
	return found
}

func (n *node) tables() []string {
	var names []string
	n.walk(func(n, _ *node) {
		if n.Relation != "" && !slices.Contains(names, n.Relation) {
			names = append(names, n.Relation)
		}
	})
	return names
}

// lacksSame reports whether both errors are about the same table, which does not exist.
func lacksSame(before, after error) bool {
	refused, is := errors.AsType[*pgconn.PgError](after)
	return is && refused.Code == "42P01" && fmt.Sprint(before) == fmt.Sprint(after)
}

// query checks the plans of one of head's queries.
func (c *check) query(name string) []report.Finding {
	after, before := c.after.queries[name], c.before.queries[name]
	if after.err != nil {
		// A query about a temporary table fails so on both sides, with the same or another text.
		if before != nil && before.err != nil && (before.query.SQL == after.query.SQL || lacksSame(before.err, after.err)) || !plannable(after.query.SQL) {
			c.refused = append(c.refused, fmt.Sprintf("%s: %v", name, after.err))
			return nil
		}
		return []report.Finding{{
			Rule: rule.QueryNotPlanned.Name, Severity: report.Blocking, Place: after.query.Place, Object: name,
			Title: fmt.Sprintf("The schema after the change refuses the query %s", name), Detail: fmt.Sprint(after.err),
			Do: "Change the query with the schema, or keep the objects it needs.",
		}}
	}
	was := make(map[string]trouble)
	if before != nil && before.err == nil {
		for _, mode := range modes {
			was[mode] = c.troubles(c.before, before.plans()[mode])
		}
	}
	plans := after.plans()
	all := make(map[[2]string][]string) // the modes with the problem
	what := make(map[[2]string]string)
	certain := make(map[[2]string]bool)
	for _, mode := range modes {
		for about, complaint := range c.troubles(c.after, plans[mode]) {
			all[about] = append(all[about], mode)
			what[about] = cmp.Or(what[about], complaint.what)
			certain[about] = certain[about] || !complaint.perhaps
		}
	}
	unavoidable := c.troubles(c.after, after.indexed)
	var findings []report.Finding
	for _, about := range slices.SortedFunc(maps.Keys(all), func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }) {
		in := all[about]
		f := report.Finding{Rule: about[0], Place: after.query.Place, Object: name}
		switch {
		case len(in) == len(plans) && certain[about]:
			f.Severity = report.Blocking
		case in[0] == "generic" && (certain[about] || len(in) == len(plans)):
			f.Severity = report.Risk
		default:
			f.Severity = report.Advice
		}
		if unsized := c.Sized == nil || !c.Sized(about[1]); unsized && f.Severity == report.Blocking && (before == nil || before.err != nil) {
			f.Severity = report.Risk
		}
		old := slices.ContainsFunc(in, func(mode string) bool { _, ok := was[mode][about]; return ok })
		when := "Its plan"
		if len(plans) > 1 {
			when = "The " + strings.Join(in, " and the ") + " plan"
			if len(in) > 1 {
				when = "Its plan, generic and custom alike,"
			}
		}
		reason := "An index could serve it; the server expects so many rows that reading all of them is cheaper."
		if !certain[about] {
			reason = "It ends once it has found enough rows, which takes long where few rows are meant."
		} else if _, ok := unavoidable[about]; ok {
			reason = "No index can serve it."
		}
		if about[0] == rule.LargeSort.Name {
			f.Title = fmt.Sprintf("The query %s sorts the rows of %s", name, about[1])
			f.Do = "Add an index in that order, or sort fewer rows."
			reason = ""
		} else {
			f.Title = fmt.Sprintf("The query %s reads %s whole", name, about[1])
			f.Do = "Add an index for the condition, or write the condition for one that is there."
		}
		f.Detail = strings.TrimSpace(fmt.Sprintf("%s %s (%d rows in the database of the review). %s", when, what[about], c.after.rows[about[1]], reason))
		if about[0] == rule.LargeSort.Name {
			f.Detail = fmt.Sprintf("%s %s.", when, what[about])
		}
		if old {
			c.old[about[0]] = append(c.old[about[0]], fmt.Sprintf("- `%s`: %s %s", name, strings.ToLower(when[:1])+when[1:], what[about]))
			if !slices.ContainsFunc(after.query.Silence, func(s project.Silence) bool { return s.Rule == about[0] }) {
				continue
			}
			f.Severity, f.Do = report.Note, ""
			f.Detail += " It did so before the change."
			c.old[about[0]] = c.old[about[0]][:len(c.old[about[0]])-1]
		}
		findings = append(findings, f)
	}
	return findings
}

// plannable reports whether PREPARE accepts the statement.
func plannable(sql string) bool {
	tree, err := syntax.Parse(sql)
	if err != nil {
		return true // the server reports the error
	}
	statements := syntax.List(syntax.At(tree, "stmts"))
	if len(statements) != 1 {
		return false
	}
	for _, kind := range []string{"SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt"} {
		if syntax.At(statements[0], "stmt", kind) != nil {
			return true
		}
	}
	return false
}
