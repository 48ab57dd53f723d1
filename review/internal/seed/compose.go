package seed

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// tries is the greatest number of rows made for each one kept.
const tries = 20

// composing writes the statement to fill one table.
type composing struct {
	*filling
	table *table
	rows  int64
	way   way

	keys     map[int]keyCopy // by reference
	pending  map[int]bool    // references to tables filled later
	mine     bool            // a reference leads to the table itself
	unknown  string
	inserted []*column
}

// drawn returns the reference to fill a column, and the column's position in the reference.
func (c *composing) drawn(name string) (ref, position int, ok bool) {
	for _, known := range []bool{true, false} {
		for i, r := range c.table.references {
			if p := slices.Index(r.Columns, name); p >= 0 && (c.keys[i].name != "" || !known && !r.soft) {
				return i, p, true
			}
		}
	}
	return 0, 0, false
}

// insert inserts the rows. If a table refers to itself, insert begins with a fifth of the rows, for the others to refer
// to.
func (c *composing) insert(ctx context.Context, tx pgx.Tx) (rows int64, err error) {
	first := c.rows
	if c.mine {
		first = max(1, c.rows/5)
	}
	from := int64(1)
	rows, err = c.rounds(ctx, tx, &from, first)
	if err != nil || first == c.rows || rows == 0 {
		return rows, err
	}
	for i, r := range c.table.references {
		if r.To == c.table.OID && !r.soft {
			if err := c.numberSelf(ctx, tx, r); err != nil {
				return 0, err
			}
			if c.keys[i], err = c.copyKeys(ctx, tx, r, "first", c.shared(i)); err != nil {
				return 0, err
			}
		}
	}
	more, err := c.rounds(ctx, tx, &from, c.rows-rows)
	return rows + more, err
}

// rounds inserts n rows, numbered from from, in several rounds, because conflicting rows are left out.
func (c *composing) rounds(ctx context.Context, tx pgx.Tx, from *int64, n int64) (rows int64, err error) {
	for range 3 {
		statement := c.insertion(*from, n-rows)
		if c.unknown != "" {
			return 0, &pgconn.PgError{Message: c.unknown}
		}
		tag, err := tx.Exec(ctx, statement)
		if err != nil {
			return 0, err
		}
		*from += (n - rows) * tries
		rows += tag.RowsAffected()
		if tag.RowsAffected() == 0 || n-rows <= n/1000 {
			break
		}
	}
	return rows, nil
}

// numberSelf makes rows refer to themselves, if the server has numbered them meanwhile.
func (c *composing) numberSelf(ctx context.Context, tx pgx.Tx, r reference) error {
	if !c.selfNumbered(r) {
		return nil
	}
	var sets []string
	to := quotedNames(r.ToNames)
	for i, name := range quotedNames(r.Columns) {
		if name != to[i] {
			sets = append(sets, name+" = "+to[i])
		}
	}
	_, err := tx.Exec(ctx, fmt.Sprintf("UPDATE %s SET %s", c.table.SQL, strings.Join(sets, ", ")))
	return err
}

// insertion returns
//
//	INSERT INTO t (columns) SELECT columns
//	FROM (generated columns FROM (columns FROM (references, kind FROM numbers)))
//	WHERE the checks hold LIMIT n ON CONFLICT DO NOTHING
//
// so the server evaluates a check, over columns of the names it uses.
func (c *composing) insertion(from, n int64) string {
	made := c.made(from, n)
	var names []string
	for _, column := range c.inserted {
		names = append(names, column.Name)
	}
	if len(names) == 0 {
		return c.numbered(from, n)
	}
	list, where := strings.Join(quotedNames(names), ", "), c.allHold()
	ending := "\nON CONFLICT DO NOTHING"
	if c.plain() {
		made, ending = c.unlike(made, where), ""
		where = "fresh"
	}
	return fmt.Sprintf("INSERT INTO %s (%s)\nOVERRIDING SYSTEM VALUE\nSELECT %s\nFROM %s\nWHERE %s\nLIMIT %d%s",
		c.table.SQL, list, list, made, where, n, ending)
}

// numbered returns the statement to insert rows if the server fills all columns.
func (c *composing) numbered(from, n int64) string {
	for _, column := range c.table.columns {
		name, numbers := pgx.Identifier{column.Name}.Sanitize(), fmt.Sprintf("generate_series(%d, %d) AS i", from, from-1+n)
		switch {
		case column.Identity:
			return fmt.Sprintf("INSERT INTO %s (%s) OVERRIDING USER VALUE SELECT i FROM %s", c.table.SQL, name, numbers)
		case column.Volatile:
			return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s", c.table.SQL, name, column.Default, numbers)
		}
	}
	return fmt.Sprintf("INSERT INTO %s DEFAULT VALUES", c.table.SQL)
}

// plain reports whether ON CONFLICT cannot be used: for keys checked later, and for tables with rules.
func (c *composing) plain() bool {
	return c.table.Rules || slices.ContainsFunc(c.table.keys, func(k key) bool { return k.Deferred })
}

// unlike returns the rows that satisfy the condition, with a column fresh for the first row of each key.
func (c *composing) unlike(made, where string) string {
	fresh := []string{"true"}
	for _, k := range c.table.keys {
		if k.Expression || len(k.Columns) == 0 || slices.ContainsFunc(k.Columns, func(name string) bool { return c.byServer(name) }) {
			continue
		}
		names := quotedNames(k.Columns)
		var same []string
		for _, name := range names {
			same = append(same, fmt.Sprintf("t.%s = made.%s", name, name))
		}
		fresh = append(fresh, fmt.Sprintf("row_number() OVER (PARTITION BY %s) = 1 AND NOT EXISTS (SELECT FROM %s AS t WHERE %s)",
			strings.Join(names, ", "), c.table.SQL, strings.Join(same, " AND ")))
	}
	return fmt.Sprintf("(SELECT made.*, %s AS fresh FROM %s WHERE %s) AS made", strings.Join(fresh, " AND "), made, where)
}

// byServer reports whether the server fills the column.
func (c *composing) byServer(name string) bool {
	column := c.table.column(name)
	return column == nil || column.Generated == "" && !slices.Contains(c.inserted, column)
}

// allHold returns the condition the checks hold, as far as they concern generated columns.
func (c *composing) allHold() string {
	conditions := []string{"true"}
	for _, check := range c.judged() {
		conditions = append(conditions, "(("+check.Text+") IS NOT FALSE)")
	}
	return strings.Join(conditions, " AND ")
}

// judged returns the checks tested in this way.
func (c *composing) judged() []check {
	var checks []check
	for _, check := range c.table.checks {
		if !check.later || c.way.later {
			checks = append(checks, check)
		}
	}
	for _, column := range c.inserted {
		if column.NotNull {
			checks = append(checks, check{Name: "NOT NULL of " + column.Name, Text: "made." + pgx.Identifier{column.Name}.Sanitize() + " IS NOT NULL"})
		}
		for _, text := range column.DomainChecks {
			// In a domain's check the value is called VALUE: here a column has this name.
			checks = append(checks, check{Name: "of type " + column.Type,
				Text: fmt.Sprintf("SELECT (%s) FROM (SELECT made.%s AS value) AS checked", text, pgx.Identifier{column.Name}.Sanitize())})
		}
	}
	return checks
}
