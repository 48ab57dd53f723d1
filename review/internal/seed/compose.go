package seed

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// tries is the greatest number of rows made for each one kept.
const tries = 20

// composing writes the statement that fills one table.
type composing struct {
	*filling
	table *table
	rows  int64
	way   way

	keys     map[int]string // the tables of keys, by reference
	counts   map[int]int64
	mine     bool // a reference leads to the table itself
	unknown  string
	inserted []*column
}

// drawn returns the reference that fills a column, and its position in it.
func (c *composing) drawn(name string) (ref, position int, ok bool) {
	for i, r := range c.table.references {
		if p := slices.Index(r.Columns, name); p >= 0 && (c.keys[i] != "" || !r.soft) {
			return i, p, true
		}
	}
	return 0, 0, false
}

// draw makes the tables that references draw their keys from. A refusal says why the table stays empty.
func (c *composing) draw(ctx context.Context, tx pgx.Tx) (refusal string, err error) {
	c.keys, c.counts = make(map[int]string), make(map[int]int64)
	for i, r := range c.table.references {
		if r.To == c.table.OID {
			c.mine = c.mine || !r.soft
			continue
		}
		if c.filled[r.To] == 0 {
			if !r.soft && c.table.required(r) {
				return fmt.Sprintf("it refers to %s, which is empty", c.nameOf(r.To)), nil
			}
			continue
		}
		if c.keys[i], c.counts[i], err = c.copyKeys(ctx, tx, r, ""); err != nil {
			return "", err
		}
	}
	return "", nil
}

// insert inserts the rows. If a table refers to itself it inserts a fifth of them first, which the others refer to.
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
			if c.keys[i], c.counts[i], err = c.copyKeys(ctx, tx, r, "first"); err != nil {
				return 0, err
			}
		}
	}
	more, err := c.rounds(ctx, tx, &from, c.rows-rows)
	return rows + more, err
}

// rounds inserts n rows, numbered from from, in several rounds, because rows that conflict with others are left out.
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

func (f *filling) nameOf(oid uint32) string {
	for _, t := range f.tables {
		if t.OID == oid {
			return t.Name
		}
	}
	return "?"
}

// copyKeys numbers the keys that a reference may hold, once for all references to them.
func (c *composing) copyKeys(ctx context.Context, tx pgx.Tx, r reference, which string) (string, int64, error) {
	names := quotedNames(r.ToNames)
	id := fmt.Sprint(r.To, names, which)
	if known, ok := c.copies[id]; ok {
		return known.name, known.rows, nil
	}
	name := fmt.Sprintf("pg_temp.seed_keys_%d", len(c.copies)+1)
	list := strings.Join(names, ", ")
	tag, err := tx.Exec(ctx, fmt.Sprintf(
		`CREATE TEMP TABLE %s AS SELECT row_number() OVER (ORDER BY tableoid, ctid) AS n, %s FROM %s WHERE (%s) IS NOT NULL`,
		strings.TrimPrefix(name, "pg_temp."), list, c.nameOf(r.To), list))
	if err != nil {
		return "", 0, err
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf(`CREATE INDEX ON %s (n); ANALYZE %s`, name, name)); err != nil {
		return "", 0, err
	}
	c.copies[id] = keyCopy{name, tag.RowsAffected()}
	return name, tag.RowsAffected(), nil
}

// keyCopy is a table of numbered keys.
type keyCopy struct {
	name string
	rows int64
}

func quotedNames(names []string) []string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = pgx.Identifier{name}.Sanitize()
	}
	return quoted
}

// insertion returns
//
//	INSERT INTO t (columns) SELECT columns
//	FROM (columns that are generated FROM (columns FROM (references, kind FROM numbers)))
//	WHERE the checks hold LIMIT n ON CONFLICT DO NOTHING
//
// so that the server judges a check, over columns of the names that it uses.
func (c *composing) insertion(from, n int64) string {
	made := c.made(from, n)
	var names []string
	for _, column := range c.inserted {
		names = append(names, column.Name)
	}
	if len(names) == 0 {
		return fmt.Sprintf("INSERT INTO %s (%s) SELECT DEFAULT", c.table.Name, "")
	}
	list := strings.Join(quotedNames(names), ", ")
	return fmt.Sprintf("INSERT INTO %s (%s)\nSELECT %s\nFROM %s\nWHERE %s\nLIMIT %d\nON CONFLICT DO NOTHING",
		c.table.Name, list, list, made, c.allHold(), n)
}

// allHold returns the condition that the checks hold, as far as they concern generated columns.
func (c *composing) allHold() string {
	conditions := []string{"true"}
	for _, check := range c.judged() {
		conditions = append(conditions, "(("+check.Text+") IS NOT FALSE)")
	}
	return strings.Join(conditions, " AND ")
}

// judged returns the checks of this way.
func (c *composing) judged() []check {
	var checks []check
	for _, check := range c.table.checks {
		if !check.later || c.way.later {
			checks = append(checks, check)
		}
	}
	for _, column := range c.inserted {
		for _, text := range column.DomainChecks {
			// In a domain's check the value is called VALUE: here it is a column of this name.
			checks = append(checks, check{Name: "of type " + column.Type,
				Text: fmt.Sprintf("SELECT (%s) FROM (SELECT made.%s AS value) AS checked", text, pgx.Identifier{column.Name}.Sanitize())})
		}
	}
	return checks
}

// made returns the rows before they are judged.
func (c *composing) made(from, n int64) string {
	spec := c.spec.Tables[c.table.Name]
	drawn := []string{"i"}
	if len(spec.Kinds) > 0 {
		var numbers []string
		var weights []float64
		for k, kind := range spec.Kinds {
			numbers, weights = append(numbers, strconv.Itoa(k)), append(weights, kind.Share)
		}
		drawn = append(drawn, oneOf(numbers, weights, "integer", salt(c.table.Name, "kind"))+" AS kind")
	}
	for i, r := range c.table.references {
		if c.keys[i] != "" {
			position := skewed(strconv.FormatInt(c.counts[i], 10), salt(c.table.Name, r.Name))
			if r.once || c.single(r) {
				position = fmt.Sprintf("(i - 1) %% %d", c.counts[i])
			}
			drawn = append(drawn, fmt.Sprintf("(SELECT p FROM %s AS p WHERE p.n = 1 + %s) AS r%d", c.keys[i], position, i))
		}
	}
	c.inserted = nil
	var columns, generated []string
	for _, column := range c.table.columns {
		name := pgx.Identifier{column.Name}.Sanitize()
		if column.Generated != "" {
			generated = append(generated, fmt.Sprintf("(%s) AS %s", column.Generated, name))
			continue
		}
		expression := c.expression(column)
		if expression == "" {
			continue
		}
		c.inserted = append(c.inserted, column)
		columns = append(columns, fmt.Sprintf("%s AS %s", expression, name))
	}
	// Columns that the server fills by itself, for the checks that name them.
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
	numbers := fmt.Sprintf("(SELECT generate_series(%d, %d)::bigint AS i)", from, from-1+n*tries)
	made := fmt.Sprintf("(SELECT %s FROM (SELECT %s FROM %s AS numbered OFFSET 0) AS drawn OFFSET 0)",
		strings.Join(columns, ", "), strings.Join(drawn, ", "), numbers)
	if len(generated) > 0 {
		made = fmt.Sprintf("(SELECT plain.*, %s FROM %s AS plain OFFSET 0)", strings.Join(generated, ", "), made)
	}
	return made + " AS made"
}

// single reports whether only the reference makes the rows of a unique key differ, so that each row refers to another
// one until all are used.
func (c *composing) single(r reference) bool {
	return slices.ContainsFunc(c.table.keys, func(k key) bool {
		refers := func(name string) bool { return slices.Contains(r.Columns, name) }
		differs := func(name string) bool { return !refers(name) && c.injective(c.table.column(name)) }
		return !k.Expression && slices.ContainsFunc(k.Columns, refers) && !slices.ContainsFunc(k.Columns, differs)
	})
}

// expression returns the value of a column, as an expression over i, kind and the references; "" leaves it to the
// server.
func (c *composing) expression(column *column) string {
	if column.Identity || column.Volatile {
		if _, _, ok := c.drawn(column.Name); !ok {
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
	return fmt.Sprintf("CASE WHEN %s < %g THEN NULL ELSE %s END", chance(salt(c.table.Name, column.Name, "null")), share, value)
}

func (c *composing) general(column *column) string {
	said := c.spec.Tables[c.table.Name].Columns[column.Name]
	seed := salt(c.table.Name, column.Name)
	m := maker{now: c.opts.Now, rows: c.rows}
	if value := m.said(column, said, seed); value != "" {
		return c.withNulls(column, said.Nulls, 0, value)
	}
	nulls := 0.1
	if i, p, ok := c.drawn(column.Name); ok {
		r := c.table.references[i]
		if c.keys[i] != "" {
			return c.withNulls(column, said.Nulls, nulls, fmt.Sprintf("(r%d).%s", i, pgx.Identifier{r.ToNames[p]}.Sanitize()))
		}
		if !column.NotNull {
			return "NULL::" + column.Base
		}
		// The first rows of a table that refers to itself refer to themselves.
		if to := c.table.column(r.ToNames[p]); to != nil && to != column {
			return c.general(to)
		}
	}
	if c.way.bare && (!column.NotNull || column.Default != "") {
		return ""
	}
	w := wish{unique: c.injective(column), distinct: int64(said.Distinct), hints: c.hints(column)}
	w.only, w.often = c.pools(column, w.hints)
	if w.unique {
		nulls = 0
	}
	value := m.value(column, w, seed)
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

// constantDefault reports whether the default is a literal, as far as its text shows.
func constantDefault(text string) bool { return !strings.Contains(text, "(") }

// injective reports whether the column makes a unique key unique. It is the last column of the key that no reference,
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
	case column.Base == "uuid":
		return 4
	case column.Base == "boolean" || column.Kind == "e" || column.Base == `"char"`:
		return 0
	case column.Base == "smallint":
		return 1
	case isText(column.Base) || column.Base == "bytea":
		return 3
	}
	return 2
}

// hints returns the facts about a column in the table's checks.
func (c *composing) hints(column *column) *hints {
	var texts []string
	for _, check := range c.table.checks {
		if !check.later || c.way.later {
			texts = append(texts, "SELECT FROM x WHERE "+check.Text)
		}
	}
	all := new(hints)
	if found := c.parsed(texts)[column.Name]; found != nil {
		all = found
	}
	if len(column.DomainChecks) > 0 {
		texts = nil
		for _, text := range column.DomainChecks {
			texts = append(texts, "SELECT FROM x WHERE "+text)
		}
		if found := c.parsed(texts)["value"]; found != nil {
			found.add(all)
			all = found
		}
	}
	return all
}

// pools returns the literals that a check allows, and those that occur elsewhere.
func (c *composing) pools(column *column, h *hints) (only, often []string) {
	if !isText(column.Base) && !isNumber(column.Base) {
		return nil, nil
	}
	only = distinct(h.literals)
	if !isText(column.Base) {
		only = slices.DeleteFunc(only, func(text string) bool { _, err := strconv.ParseFloat(text, 64); return err != nil })
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

// refusals returns the checks that no row satisfies.
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
