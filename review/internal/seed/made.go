package seed

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// made returns the rows before the checks.
func (c *composing) made(from, n int64) string {
	c.inserted = nil
	columns, derived, generated := c.columns()
	rows := fmt.Sprintf("(SELECT generate_series(%d, %d)::bigint AS i) AS numbered", from, from-1+n*tries)
	rows = fmt.Sprintf("(SELECT %s FROM %s OFFSET 0) AS drawn", strings.Join(c.choices(), ", "), rows)
	for i := range c.table.references {
		if len(c.keys[i].shared) > 0 {
			rows = fmt.Sprintf("(SELECT drawn.*, %s FROM %s OFFSET 0) AS drawn", c.key(i), rows)
		}
	}
	rows = fmt.Sprintf("(SELECT %s FROM %s OFFSET 0)", strings.Join(columns, ", "), rows)
	for _, more := range [][]string{derived, generated} {
		if len(more) > 0 {
			rows = fmt.Sprintf("(SELECT plain.*, %s FROM %s AS plain OFFSET 0)", strings.Join(more, ", "), rows)
		}
	}
	return rows + " AS made"
}

// choices returns the number of a row, and the row's kind, partition, and referenced rows.
func (c *composing) choices() []string {
	chosen := []string{"i"}
	if kinds := c.spec.Tables[c.table.Name].Kinds; len(kinds) > 0 {
		var numbers []string
		var weights []float64
		for k, kind := range kinds {
			numbers, weights = append(numbers, strconv.Itoa(k)), append(weights, kind.Share)
		}
		chosen = append(chosen, oneOf(numbers, weights, "integer", salt(c.table.Name, "kind"))+" AS kind")
	}
	if len(c.table.leaves) > 0 {
		chosen = append(chosen, fmt.Sprintf("(i %% %d)::integer AS leaf", len(c.table.leaves)))
	}
	for i := range c.table.references {
		if c.keys[i].name != "" && len(c.keys[i].shared) == 0 {
			chosen = append(chosen, c.key(i))
		}
	}
	return chosen
}

// columns returns the expressions of the columns: plain ones, consequences by a check, and generated ones.
func (c *composing) columns() (columns, derived, generated []string) {
	follows := c.derivations()
	for _, column := range c.table.columns {
		name := pgx.Identifier{column.Name}.Sanitize()
		if column.Generated != "" {
			generated = append(generated, fmt.Sprintf("(%s) AS %s", column.Generated, name))
			continue
		}
		if text, ok := follows[column.Name]; ok {
			c.inserted = append(c.inserted, column)
			derived = append(derived, fmt.Sprintf("(%s)::%s AS %s", text, column.Base, name))
			continue
		}
		expression := c.expression(column)
		if expression == "" {
			continue
		}
		c.inserted = append(c.inserted, column)
		columns = append(columns, fmt.Sprintf("%s AS %s", expression, name))
	}
	// Columns the server fills by itself, for checks on them.
	for _, column := range c.table.columns {
		if column.Generated == "" && !slices.Contains(c.inserted, column) {
			value := "NULL::" + column.Base
			switch {
			case column.Identity || column.Volatile:
				value = "i::" + column.Base
			case column.Default != "":
				value = fmt.Sprintf("(%s)::%s", column.Default, column.Base)
			}
			columns = append(columns, fmt.Sprintf("%s AS %s", value, pgx.Identifier{column.Name}.Sanitize()))
		}
	}
	return columns, derived, generated
}

// single reports whether only the reference makes the rows of a unique key differ, so each row refers to another one
// until all are used.
func (c *composing) single(r reference) bool {
	return slices.ContainsFunc(c.table.keys, func(k key) bool {
		refers := func(name string) bool { return slices.Contains(r.Columns, name) }
		differs := func(name string) bool { return !refers(name) && c.injective(c.table.column(name)) }
		return !k.Expression && slices.ContainsFunc(k.Columns, refers) && !slices.ContainsFunc(k.Columns, differs)
	})
}

// expression returns the value of a column, as an expression over i, kind and the references; "" leaves the choice to
// the server.
func (c *composing) expression(column *column) string {
	if column.Identity || column.Volatile {
		if _, _, ok := c.drawn(column.Name); !ok && !c.bounded(column.Name) {
			return ""
		}
	}
	spec := c.spec.Tables[c.table.Name]
	general := c.general(column)
	var kinds []string
	for k, kind := range spec.Kinds {
		if said, ok := kind.Set[column.Name]; ok {
			m := maker{now: c.opts.Now, rows: c.rows}
			if value := c.withNulls(column, said.Nulls, 0, m.said(column, said, salt(c.table.Name, column.Name, strconv.Itoa(k)))); value != "" {
				kinds = append(kinds, fmt.Sprintf("WHEN %d THEN %s", k, value))
			}
		}
	}
	if len(kinds) == 0 {
		return general
	}
	if general == "" {
		general = "NULL::" + column.Base
		c.unknown = ""
	}
	return fmt.Sprintf("CASE kind %s ELSE %s END", strings.Join(kinds, " "), general)
}

func (c *composing) withNulls(column *column, said *float64, usual float64, value string) string {
	share := usual
	if said != nil {
		share = *said
	}
	if value == "" || share == 0 || column.NotNull {
		return value
	}
	return fmt.Sprintf("CASE WHEN %s < %g THEN NULL ELSE %s END", chance(c.nullSalt(column)), share, value)
}

func (c *composing) general(column *column) string {
	said := c.spec.Tables[c.table.Name].Columns[column.Name]
	seed := salt(c.table.Name, column.Name)
	m := maker{now: c.opts.Now, rows: c.rows}
	if value := m.said(column, said, seed); value != "" {
		return c.withNulls(column, said.Nulls, 0, value)
	}
	h := c.hints(column)
	nulls := 0.1
	if h.optional {
		nulls = 0.5
	}
	statistic := c.table.statistic(column.Name)
	if statistic != nil {
		nulls = statistic.NullFrac
	}
	if i, p, ok := c.drawn(column.Name); ok {
		r := c.table.references[i]
		if c.keys[i].name != "" {
			return c.withNulls(column, said.Nulls, nulls, fmt.Sprintf("(r%d).%s", i, pgx.Identifier{r.ToNames[p]}.Sanitize()))
		}
		if !column.NotNull {
			return "NULL::" + column.Base
		}
		if c.pending[i] {
			return m.value(column, wish{unique: true, hints: h}, seed)
		}
		// The first rows of a table with references to itself refer to themselves.
		if to := c.table.column(r.ToNames[p]); to != nil && to != column {
			return c.general(to)
		}
	}
	bounded := c.bounded(column.Name)
	if c.way.bare && (!column.NotNull || column.Default != "") && !bounded {
		return ""
	}
	w := wish{unique: c.injective(column), distinct: int64(said.Distinct), hints: h}
	w.only, w.often = c.pools(column, w.hints)
	if statistic != nil {
		w = w.like(statistic, c.rows, c.table.scale)
	} else if w.unique {
		nulls = 0
	}
	value := m.value(column, w, seed)
	if bounded {
		nulls = 0
		if within := c.divided(column, w, value); within != "" {
			return within
		}
	}
	switch {
	case value == "" && column.Default != "":
		return ""
	case value == "" && !column.NotNull:
		return ""
	case value == "":
		c.unknown = fmt.Sprintf("no value of type %s is known, of column %s: the seed file may say one (sql)", column.Type, column.Name)
		return ""
	}
	if column.Default != "" && !w.unique && constantDefault(column.Default) && len(w.only) == 0 {
		value = fmt.Sprintf("CASE WHEN %s < 0.6 THEN (%s)::%s ELSE %s END", chance(salt(c.table.Name, column.Name, "default")), column.Default, column.Base, value)
	}
	return c.withNulls(column, said.Nulls, nulls, value)
}

// constantDefault reports whether the default is a literal, as far as the text shows.
func constantDefault(text string) bool { return !strings.Contains(text, "(") }

// nullSalt makes the columns of one reference NULL together.
func (c *composing) nullSalt(column *column) uint32 {
	if i, _, ok := c.drawn(column.Name); ok && len(c.table.references[i].Columns) > 1 {
		return salt(c.table.Name, c.table.references[i].Name, "null")
	}
	return salt(c.table.Name, column.Name, "null")
}

// bounded reports whether partitions bound the column.
func (c *composing) bounded(name string) bool {
	return slices.ContainsFunc(c.table.leaves, func(l *leaf) bool { _, ok := l.bounds[name]; return ok })
}
