package rolling

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/review/internal/arguments"
	"github.com/flowfabric/flowfabric-go/review/internal/plans"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/internal/words"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// Input has the two sides for [Check].
type Input struct {
	Base, Head *project.Side
	// Before is a database with base's schema, filled; After the same migrated to head's. Check undoes its changes in
	// them, except numbers drawn from sequences.
	Before, After string
	// Copied: After was copied from Before, so the tables have the same numbers in both.
	Copied bool
	// Settings are the settings of the project's programs' sessions, from the seed file.
	Settings map[string]string
}

// Result is the result of [Check]. Skipped are the undecided queries, a line each.
type Result struct {
	Order    report.Order
	Declared string
	Findings []report.Finding
	Skipped  []string
}

// broken is a query with a failure on the other side's schema.
type broken struct {
	query project.Query
	why   string
}

// Check runs the queries of both sides on both databases.
func Check(ctx context.Context, in Input) (*Result, error) {
	before, err := open(ctx, in.Before, in.Settings)
	if err != nil {
		return nil, err
	}
	defer before.close(ctx)
	after, err := open(ctx, in.After, in.Settings)
	if err != nil {
		return nil, err
	}
	defer after.close(ctx)

	c := &check{Input: in, result: new(Result), before: before, after: after}
	// Queries of both sides are tried once; the same runs show whether they work on their own side.
	old, err := c.compare(ctx, in.Base.Queries, before, after)
	if err != nil {
		return nil, fmt.Errorf("queries of before on the schema of after: %w", err)
	}
	recent, err := c.compare(ctx, in.Head.Queries, after, before)
	if err != nil {
		return nil, fmt.Errorf("queries of after on the schema of before: %w", err)
	}
	switch {
	case len(old) > 0 && len(recent) > 0:
		c.result.Order = report.NoOrder
	case len(old) > 0:
		c.result.Order = report.CodeFirst
	case len(recent) > 0:
		c.result.Order = report.SchemaFirst
	default:
		c.result.Order = report.AnyOrder
	}
	c.orderFinding(old, recent)
	c.declaration(old)
	if err := c.reads(ctx); err != nil {
		return nil, err
	}
	if err := c.nulls(ctx); err != nil {
		return nil, err
	}
	c.own()
	c.result.Skipped = plans.Refused(c.refused)
	return c.result, nil
}

type check struct {
	Input
	before, after *trial
	result        *Result
	refused       []string // queries refused by the schema of their own side, with the reason
}

// compare returns the queries that run on their own side's database, and break on the other's.
func (c *check) compare(ctx context.Context, queries []project.Query, own, other *trial) ([]broken, error) {
	var all []broken
	for _, q := range queries {
		if !arguments.Runnable(q.SQL) {
			c.refused = append(c.refused, q.Name+": such a statement cannot be tried in a transaction")
			continue
		}
		here, err := own.run(ctx, q.SQL, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q.Name, err)
		}
		if here.unprepared {
			c.refused = append(c.refused, fmt.Sprintf("%s: %v", q.Name, here.failure))
			continue
		}
		there, err := other.run(ctx, q.SQL, here)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q.Name, err)
		}
		if why := here.difference(there); why != "" {
			all = append(all, broken{q, why})
		}
	}
	return all, nil
}

// place is the first new migration's file.
func (c *check) place() report.Place {
	if added := project.New(c.Base, c.Head); len(added) > 0 {
		return report.Place{File: added[0].File}
	}
	return report.Place{}
}

// most limits how many queries a finding names with the reasons.
const most = 8

func listed(all []broken) string {
	var lines []string
	shown, rest := words.Cut(all, most)
	for _, b := range shown {
		used := ""
		if len(b.query.Operations) > 0 {
			used = " (" + strings.Join(b.query.Operations, ", ") + ")"
		}
		lines = append(lines, fmt.Sprintf("- `%s`%s: %s", b.query.Name, used, b.why))
	}
	if rest > 0 {
		lines = append(lines, "- and "+words.More(rest))
	}
	return strings.Join(lines, "\n")
}

func (c *check) orderFinding(old, recent []broken) {
	f := report.Finding{Place: c.place(), Object: "deploy order"}
	const oldFail, recentFail = "Queries of programs of before, on the schema of after:\n", "Queries of programs of after, on the schema of before:\n"
	switch c.result.Order {
	case report.NoOrder:
		f.Rule, f.Severity, f.Title = rule.RollingNoOrder.Name, report.Blocking, "No order of deployment is safe: programs and schema of before and after do not work together"
		f.Detail = oldFail + listed(old) + "\n\n" + recentFail + listed(recent)
		f.Do = "Split the change: first add the new parts and keep the old ones, then change the programs, then remove the old parts."
	case report.CodeFirst:
		f.Rule, f.Severity, f.Title = rule.RollingCodeFirst.Name, report.Risk, "Programs of before fail on the new schema: migrate when none of them runs any longer"
		f.Detail = oldFail + listed(old)
		f.Do = "Deploy the programs first, everywhere, then migrate."
	case report.SchemaFirst:
		f.Rule, f.Severity, f.Title = rule.RollingSchemaFirst.Name, report.Note, "Programs of after need the new schema: migrate first"
		f.Detail = recentFail + listed(recent)
	default:
		return
	}
	c.result.Findings = append(c.result.Findings, f)
}

// declaration compares the declarations of the new migrations with the result. V in "usable-from: V" is the newest
// migration that a program has to know.
func (c *check) declaration(old []broken) {
	added := project.New(c.Base, c.Head)
	newest, declares := "", false
	for _, m := range c.Base.Migrations {
		if !m.Repeatable && (newest == "" || m.Tool.Compare(m.Version, newest) > 0) {
			newest = m.Version
		}
		declares = declares || m.Usable != ""
	}
	usable := ""
	for _, m := range added {
		if m.Usable == "" && declares {
			c.result.Findings = append(c.result.Findings, report.Finding{
				Rule: rule.RollingDeclaration.Name, Severity: report.Advice, Place: report.Place{File: m.File}, Object: m.Version,
				Title: "The migration does not declare which programs may use the database after it", Do: "Add a line `-- usable-from: VERSION`, as those before it have.",
			})
		}
		if m.Usable != "" && (usable == "" || m.Tool.Compare(m.Usable, usable) > 0) {
			usable = m.Usable
			c.result.Declared = "usable-from: " + m.Usable
		}
	}
	if usable == "" || newest == "" {
		return
	}
	f := report.Finding{Rule: rule.RollingDeclaration.Name, Place: c.place(), Object: usable}
	for _, m := range added {
		if m.Usable == usable {
			f.Place = report.Place{File: m.File}
		}
	}
	tool := added[0].Tool
	switch {
	case tool.Compare(usable, newest) <= 0 && len(old) > 0:
		f.Severity, f.Title = report.Blocking, "The migration declares itself usable for programs that fail on it"
		f.Detail = fmt.Sprintf("It says `usable-from: %s`, which programs of before know.\n%s", usable, listed(old))
		f.Do = "Declare the version that the programs have to know, or keep the objects they need."
	case tool.Compare(usable, newest) > 0 && len(old) == 0:
		f.Severity, f.Title = report.Advice, "The migration excludes programs that would work on it"
		f.Detail = fmt.Sprintf("It says `usable-from: %s`; all queries of programs of before, which know %s, run on it as they did.", usable, newest)
		f.Do = "Declare an older version, unless the programs break in a way that their queries do not show."
	default:
		return
	}
	c.result.Findings = append(c.result.Findings, f)
}

// reads finds the old queries whose results may be NULL after the change, or have other types.
func (c *check) reads(ctx context.Context) error {
	nullable, err := c.loosened(ctx)
	if err != nil {
		return err
	}
	columns := make(map[string][]string)
	var retyped []string
	for _, q := range c.Base.Queries {
		here, there := c.before.ran[q.SQL], c.after.ran[q.SQL]
		if here == nil || there == nil || here.unprepared || there.unprepared {
			continue
		}
		for _, field := range here.fields {
			if name := nullable[column{field.TableOID, field.TableAttributeNumber}]; name != "" && !slices.Contains(columns[name], q.Name) {
				columns[name] = append(columns[name], q.Name)
			}
		}
		if len(here.results) == len(there.results) && !slices.Equal(here.results, there.results) {
			retyped = append(retyped, "`"+q.Name+"`")
		}
	}
	var names []string
	for name := range columns {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		queries := columns[name]
		slices.Sort(queries)
		c.result.Findings = append(c.result.Findings, report.Finding{
			Rule: rule.RollingNull.Name, Severity: report.Risk, Place: c.place(), Object: name,
			Title:  fmt.Sprintf("Programs of before read %s, which may be NULL from now on", name),
			Detail: fmt.Sprintf("Their types for the results of `%s` have no NULL: a row that a program of after writes without a value is an error to them.", strings.Join(queries, "`, `")),
			Do:     "Let programs write NULL there only when none of before runs any longer.",
		})
	}
	if len(retyped) > 0 {
		slices.Sort(retyped)
		c.result.Findings = append(c.result.Findings, report.Finding{
			Rule: rule.RollingCachedPlan.Name, Severity: report.Advice, Place: c.place(), Object: "prepared statements",
			Title:  "Prepared statements of running programs fail once: their results get other types",
			Detail: fmt.Sprintf("The server answers \"cached plan must not change result type\" (0A000) in each session that has prepared %s, also in the middle of a transaction.", strings.Join(retyped, ", ")),
			Do:     "Restart the programs after the migration, or let them retry that error.",
		})
	}
	return nil
}

// loosened returns the columns, by their place in the database before, that are NOT NULL only before the change. The
// databases are compared by names: the second may have been made apart, with other numbers. In a copy, a renamed column
// is found by its place.
func (c *check) loosened(ctx context.Context) (map[column]string, error) {
	was, err := c.before.columns(ctx)
	if err != nil {
		return nil, err
	}
	is, err := c.after.columns(ctx)
	if err != nil {
		return nil, err
	}
	places := make(map[column]columnFacts)
	if c.Copied {
		for _, after := range is {
			places[after.column] = after
		}
	}
	found := make(map[column]string)
	for name, before := range was {
		after, kept := is[name]
		if !kept {
			after, kept = places[before.column]
		}
		if kept && before.notNull && !after.notNull {
			found[before.column] = name
		}
	}
	return found, nil
}

// column is the place of a column in one database.
type column struct {
	table  uint32
	number uint16
}

type columnFacts struct {
	column
	notNull bool
}

// columns returns the columns of the database's tables by their names, as SQL writes them.
func (d *trial) columns(ctx context.Context) (map[string]columnFacts, error) {
	const sql = `SELECT a.attrelid, a.attnum::int, a.attrelid::regclass::text || '.' || quote_ident(a.attname), a.attnotnull
		FROM pg_attribute AS a JOIN pg_class AS t ON t.oid = a.attrelid JOIN pg_namespace AS n ON n.oid = t.relnamespace
		WHERE a.attnum > 0 AND NOT a.attisdropped AND t.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\_%'`
	rows, err := d.conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	found := make(map[string]columnFacts)
	var (
		name   string
		number int
		facts  columnFacts
	)
	_, err = pgx.ForEachRow(rows, []any{&facts.table, &number, &name, &facts.notNull}, func() error {
		facts.number = uint16(number)
		found[name] = facts
		return nil
	})
	return found, err
}
