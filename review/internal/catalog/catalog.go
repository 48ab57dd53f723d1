// Package catalog reads the objects of a database and compares two databases: schemas, types, tables with their
// columns, constraints, indexes and storage parameters, views, functions, triggers, policies and comments.
//
// Objects of extensions and of PostgreSQL itself are left out. The order of columns in a table is ignored, which
// differs between a database grown by migrations and one that went down and up.
package catalog

import (
	"context"
	_ "embed"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/pmezard/go-difflib/difflib"

	"github.com/flowfabric/flowfabric-go/review/report"
)

//go:embed facts.sql
var factsQuery string

// kinds are in the order of the differences.
var kinds = []string{
	"schema", "extension", "type", "sequence", "table", "column", "constraint", "index", "view", "function", "trigger",
	"policy", "statistics", "comment",
}

// Catalog has the objects of one database, in stable order.
type Catalog struct {
	objects []object
	known   map[key]int
}

type key struct{ kind, name string }

// object is an object of the catalog with its properties.
type object struct {
	key
	table string // the table of the object
	facts []fact // by name
}

// fact is a property: of a column its "type", "nullability" and "default", of an index its "definition".
type fact struct{ name, value string }

// Read reads the catalog of conn's database, without the named tables: a migration tool's own.
func Read(ctx context.Context, conn *pgx.Conn, without ...string) (*Catalog, error) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	// Objects in public are named without a schema, as in migrations.
	if _, err := tx.Exec(ctx, "SET LOCAL search_path = public"); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, factsQuery)
	if err != nil {
		return nil, err
	}
	c := &Catalog{known: map[key]int{}}
	var k key
	var f fact
	var table string
	_, err = pgx.ForEachRow(rows, []any{&k.kind, &k.name, &table, &f.name, &f.value}, func() error {
		if table != "" && slices.ContainsFunc(without, func(name string) bool { return strings.TrimPrefix(name, "public.") == table }) {
			return nil
		}
		at, found := c.known[k]
		if !found {
			at = len(c.objects)
			c.known[k] = at
			c.objects = append(c.objects, object{key: k, table: table})
		}
		if f.value != "" {
			c.objects[at].facts = append(c.objects[at].facts, f)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, o := range c.objects {
		slices.SortFunc(o.facts, func(a, b fact) int { return strings.Compare(a.name, b.name) })
	}
	slices.SortStableFunc(c.objects, func(a, b object) int { return a.compare(b.key) })
	for i, o := range c.objects {
		c.known[o.key] = i
	}
	return c, nil
}

func (k key) compare(other key) int {
	if k.kind != other.kind {
		return slices.Index(kinds, k.kind) - slices.Index(kinds, other.kind)
	}
	return strings.Compare(k.name, other.name)
}

// HasTable reports whether there is a table of the name, as in Diff.
func (c *Catalog) HasTable(name string) bool { return !c.lacks(name) }

// HasColumn reports whether a table has the column.
func (c *Catalog) HasColumn(table, column string) bool {
	_, has := c.known[key{"column", table + "." + pgx.Identifier{column}.Sanitize()}]
	if !has {
		_, has = c.known[key{"column", table + "." + column}]
	}
	return has
}

// Diff returns the changes from before to after, each difference one line, in stable order: kinds from schemas to
// comments, objects by name, their properties by name. A new or removed table includes all its parts.
func Diff(before, after *Catalog) []report.Change {
	names := map[key]bool{}
	var all []key
	for _, c := range []*Catalog{before, after} {
		for _, o := range c.objects {
			if !names[o.key] {
				names[o.key] = true
				all = append(all, o.key)
			}
		}
	}
	slices.SortFunc(all, key.compare)
	var changes []report.Change
	for _, k := range all {
		old, was := before.known[k]
		now, is := after.known[k]
		switch {
		case !was:
			if o := after.objects[now]; !before.lacks(o.table) || o.kind == "table" {
				changes = append(changes, report.Change{Kind: k.kind, Object: k.name, After: o.oneLine(), Details: after.details(o)})
			}
		case !is:
			if o := before.objects[old]; !after.lacks(o.table) || o.kind == "table" {
				changes = append(changes, report.Change{Kind: k.kind, Object: k.name, Before: o.oneLine(), Details: before.details(o)})
			}
		default:
			changes = append(changes, diffFacts(before.objects[old], after.objects[now])...)
		}
	}
	return changes
}

// lacks reports whether c does not have the table.
func (c *Catalog) lacks(table string) bool {
	if table == "" {
		return false
	}
	_, has := c.known[key{"table", table}]
	return !has
}

// details returns the parts of a table, or the text of an object with a long one.
func (c *Catalog) details(o object) string {
	var text strings.Builder
	if o.kind != "table" {
		if definition := o.fact("definition"); strings.Contains(definition, "\n") {
			return definition
		}
		return ""
	}
	for _, part := range c.objects {
		if part.table == o.name && part.kind != "table" {
			text.WriteString(part.kind + " " + part.name + ": " + part.oneLine() + "\n")
		}
	}
	return text.String()
}

func diffFacts(before, after object) []report.Change {
	var names []string
	for _, o := range []object{before, after} {
		for _, f := range o.facts {
			if !slices.Contains(names, f.name) {
				names = append(names, f.name)
			}
		}
	}
	slices.Sort(names)
	var changes []report.Change
	for _, name := range names {
		old, now := before.fact(name), after.fact(name)
		if old == now {
			continue
		}
		change := report.Change{Kind: before.kind, Object: before.name}
		if name != "definition" {
			change.Kind += " " + name
		}
		change.Before, change.After = oneLine(old), oneLine(now)
		if strings.Contains(old+now, "\n") {
			change.Before, change.After = "differs", "differs"
			change.Details, _ = difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
				A: difflib.SplitLines(old), B: difflib.SplitLines(now), FromFile: "before", ToFile: "after", Context: 3,
			})
		}
		if change.Before == "" {
			change.Before = "none"
		}
		if change.After == "" {
			change.After = "none"
		}
		changes = append(changes, change)
	}
	return changes
}

func (o object) fact(name string) string {
	for _, f := range o.facts {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// oneLine describes an object only on one side.
func (o object) oneLine() string {
	switch o.kind {
	case "column":
		parts := []string{o.fact("type"), o.fact("nullability")}
		if value := o.fact("default"); value != "" {
			parts = append(parts, "DEFAULT "+value)
		}
		if value := o.fact("generated"); value != "" {
			parts = append(parts, value)
		}
		return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), " ")
	case "function":
		return "returns " + o.fact("result")
	case "table":
		return o.fact("kind")
	}
	if definition := o.fact("definition"); definition != "" {
		return oneLine(definition)
	}
	return o.kind
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
