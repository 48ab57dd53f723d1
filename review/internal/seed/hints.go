package seed

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// injective reports whether the column makes a unique key unique. The column is the last of the key that no reference,
// file or check decides. If no column is free, conflicting rows are left out.
func (c *composing) injective(column *column) bool {
	if column == nil {
		return false
	}
	if column.Identity || column.Volatile {
		return true
	}
	for _, k := range c.table.keys {
		if k.Expression && len(k.Columns) == 0 || !slices.Contains(k.Columns, column.Name) {
			continue
		}
		best := -1
		for position, name := range k.Columns {
			if other := c.table.column(name); other != nil && c.free(other) && (best < 0 || c.wide(other) >= c.wide(c.table.column(k.Columns[best]))) {
				best = position
			}
		}
		if best >= 0 && k.Columns[best] == column.Name {
			return true
		}
	}
	return false
}

func (c *composing) free(column *column) bool {
	if column == nil {
		return false
	}
	if _, _, ok := c.drawn(column.Name); ok || column.Identity || column.Volatile || column.Generated != "" {
		return false
	}
	said := c.spec.Tables[c.table.Name].Columns[column.Name]
	if said.Null || said.Constant != nil || said.SQL != "" || len(said.Values) > 0 || len(said.Range) > 0 || said.Distinct > 0 {
		return false
	}
	for _, kind := range c.spec.Tables[c.table.Name].Kinds {
		if _, ok := kind.Set[column.Name]; ok {
			return false
		}
	}
	only, _ := c.pools(column, c.hints(column))
	return len(only) == 0
}

// wide is roughly how many values the type has.
func (c *composing) wide(column *column) int {
	switch {
	case column.sort.Plain == "uuid":
		return 4
	case column.sort.Plain == "bool" || column.sort.Kind == "e" || column.sort.Plain == "char":
		return 0
	case column.sort.Plain == "int2":
		return 1
	case column.text() || column.sort.Plain == "bytea":
		return 3
	}
	return 2
}

// hints returns the facts about a column in the table's checks.
func (c *composing) hints(column *column) *hints {
	var texts []string
	for _, check := range c.table.checks {
		if (!check.later || c.way.later) && check.Name != partitionCheck {
			texts = append(texts, whereOf+check.Text)
		}
	}
	for _, l := range c.table.leaves {
		for _, text := range l.checks {
			texts = append(texts, whereOf+text)
		}
	}
	all := new(hints)
	if found := c.parsed(texts)[column.Name]; found != nil {
		*all = *found
	}
	if len(column.DomainChecks) > 0 {
		found := domainHints(column.DomainChecks)
		found.add(all)
		all = found
	}
	if found := c.literals[column.Name]; all.json == nil && found != nil {
		all.json = found.json
	}
	return all
}

// domainHints returns the facts about a value in the checks of its domain.
func domainHints(checks []string) *hints {
	var texts []string
	for _, text := range checks {
		texts = append(texts, whereOf+text)
	}
	if found := literalsOf(texts)["value"]; found != nil {
		return found
	}
	return new(hints)
}

// allowed returns the literals a check allows exclusively.
func (c *column) allowed(h *hints) []string {
	if !c.text() && !c.number() {
		return nil
	}
	only := distinct(h.literals)
	if c.number() {
		only = slices.DeleteFunc(only, func(text string) bool { _, err := strconv.ParseFloat(text, 64); return err != nil })
	}
	return only
}

// pools returns the literals a check allows, and literals from elsewhere.
func (c *composing) pools(column *column, h *hints) (only, often []string) {
	only = column.allowed(h)
	if !column.text() {
		return only, nil
	}
	if found := c.literals[column.Name]; found != nil {
		often = distinct(append(slices.Clone(found.literals), found.avoided...))
		often = slices.DeleteFunc(often, func(text string) bool { return slices.Contains(h.avoided, text) || text == "" })
	}
	if column.MaxLength > 0 {
		often = slices.DeleteFunc(often, func(text string) bool { return len(text) > column.MaxLength })
	}
	return only, often
}

func distinct(texts []string) []string {
	var all []string
	for _, text := range texts {
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// refusals returns the checks no row satisfies.
func (c *composing) refusals(ctx context.Context, tx pgx.Tx) (string, error) {
	made := c.made(1, 50)
	var names []string
	for _, check := range c.judged() {
		var kept bool
		err := pgx.BeginFunc(ctx, tx, func(sub pgx.Tx) error {
			return sub.QueryRow(ctx, fmt.Sprintf("SELECT EXISTS (SELECT FROM %s WHERE ((%s) IS NOT FALSE))", made, check.Text)).Scan(&kept)
		})
		if err != nil && !isServerError(err) {
			return "", err
		}
		if !kept {
			names = append(names, check.Name)
		}
	}
	if len(names) == 0 {
		return "no row that was made keeps all its constraints at once", nil
	}
	return "no row that was made keeps " + strings.Join(names, ", "), nil
}

// parsed reads checks once.
func (f *filling) parsed(texts []string) map[string]*hints {
	id := strings.Join(texts, "\n")
	if f.texts[id] == nil {
		if f.texts == nil {
			f.texts = make(map[string]map[string]*hints)
		}
		f.texts[id] = literalsOf(texts)
	}
	return f.texts[id]
}
