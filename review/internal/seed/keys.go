package seed

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// draw makes the source tables of references' keys. A refusal says why the table stays empty.
func (c *composing) draw(ctx context.Context, tx pgx.Tx) (refusal string, err error) {
	c.keys, c.pending = make(map[int]keyCopy), make(map[int]bool)
	for i, r := range c.table.references {
		if r.To == c.table.OID {
			c.mine = c.mine || !r.soft
			if !r.soft && c.selfNumbered(r) {
				if err := c.deferred(ctx, tx, r); err != nil {
					return "", err
				}
			}
			continue
		}
		if c.filled[r.To] == 0 {
			switch {
			case r.soft || !c.table.required(r):
			case c.processed[r.To]:
				return fmt.Sprintf("it refers to %s, which is empty", c.nameOf(r.To)), nil
			default:
				c.pending[i] = true
				if err := c.deferred(ctx, tx, r); err != nil {
					return "", err
				}
			}
			continue
		}
		if c.keys[i], err = c.copyKeys(ctx, tx, r, "", c.shared(i)); err != nil {
			return "", err
		}
	}
	return "", nil
}

// deferred makes the server check a reference, if at all, at the end of the transaction.
func (c *composing) deferred(ctx context.Context, tx pgx.Tx, r reference) error {
	if c.unchecked {
		return nil
	}
	name := pgx.Identifier{r.Name}.Sanitize()
	if !r.Deferrable && !c.postponed[c.table.SQL+"."+r.Name] {
		done, err := try(ctx, tx, fmt.Sprintf("ALTER TABLE %s ALTER CONSTRAINT %s DEFERRABLE", c.table.SQL, name))
		if err != nil || !done {
			return err
		}
		c.postponed[c.table.SQL+"."+r.Name] = true
		c.restore = append(c.restore, fmt.Sprintf("ALTER TABLE %s ALTER CONSTRAINT %s NOT DEFERRABLE", c.table.SQL, name))
	}
	_, err := try(ctx, tx, "SET CONSTRAINTS ALL DEFERRED")
	return err
}

// selfNumbered reports whether the rows of a table must refer to rows of the same table numbered by the server.
func (c *composing) selfNumbered(r reference) bool {
	return c.table.required(r) && slices.ContainsFunc(r.ToNames, func(name string) bool {
		to := c.table.column(name)
		return to != nil && (to.Identity || to.Volatile)
	})
}

// shares is a column two references fill: both rows have the same value.
type shares struct {
	position int // in the later reference
	earlier  int // the earlier reference, and the column's position there
	at       int
}

// shared returns the columns a reference shares with earlier ones. Only foreign keys have to agree.
func (c *composing) shared(i int) []shares {
	var all []shares
	r := c.table.references[i]
	for position, name := range r.Columns {
		for j, earlier := range c.table.references[:i] {
			at := slices.Index(earlier.Columns, name)
			if at >= 0 && c.keys[j].name != "" && !r.soft && !earlier.soft {
				all = append(all, shares{position, j, at})
				break
			}
		}
	}
	return all
}

// keyCopy is a table of numbered keys. If the reference shares columns with others, keys are numbered for each shared
// value.
type keyCopy struct {
	name   string
	rows   int64
	shared []shares
}

// copyKeys numbers the keys a reference may hold, once for all references with the same target.
func (c *composing) copyKeys(ctx context.Context, tx pgx.Tx, r reference, which string, shared []shares) (keyCopy, error) {
	names := quotedNames(r.ToNames)
	var groups []string
	for _, s := range shared {
		groups = append(groups, names[s.position])
	}
	id := fmt.Sprint(r.To, names, which, groups)
	if known, ok := c.copies[id]; ok {
		known.shared = shared
		return known, nil
	}
	name := fmt.Sprintf("pg_temp.seed_keys_%d", len(c.copies)+1)
	list, by := strings.Join(names, ", "), ""
	if len(groups) > 0 {
		by = "PARTITION BY " + strings.Join(groups, ", ") + " "
	}
	tag, err := tx.Exec(ctx, fmt.Sprintf(
		`CREATE TEMP TABLE %s AS SELECT row_number() OVER (%sORDER BY tableoid, ctid) AS n, %s FROM %s WHERE (%s) IS NOT NULL`,
		strings.TrimPrefix(name, "pg_temp."), by, list, c.sqlOf(r.To), list))
	if err != nil {
		return keyCopy{}, err
	}
	index := strings.Join(append(groups, "n"), ", ")
	if _, err := tx.Exec(ctx, fmt.Sprintf(`CREATE INDEX ON %s (%s); ANALYZE %s`, name, index, name)); err != nil {
		return keyCopy{}, err
	}
	made := keyCopy{name: name, rows: tag.RowsAffected()}
	c.copies[id] = made
	made.shared = shared
	return made, nil
}

// key returns the expression of the key in reference i.
func (c *composing) key(i int) string {
	r, keys := c.table.references[i], c.keys[i]
	if len(keys.shared) == 0 {
		return fmt.Sprintf("(SELECT p FROM %s AS p WHERE p.n = 1 + %s) AS r%d", keys.name, c.position(i), i)
	}
	same := func(alias string) string {
		var all []string
		for _, s := range keys.shared {
			earlier := c.table.references[s.earlier]
			all = append(all, fmt.Sprintf("%s.%s = (r%d).%s", alias, quotedNames(r.ToNames)[s.position], s.earlier, quotedNames(earlier.ToNames)[s.at]))
		}
		return strings.Join(all, " AND ")
	}
	most := fmt.Sprintf("(SELECT max(q.n) FROM %s AS q WHERE %s)", keys.name, same("q"))
	return fmt.Sprintf("(SELECT p FROM %s AS p WHERE %s AND p.n = 1 + %s) AS r%d",
		keys.name, same("p"), skewed(most, salt(c.table.Name, r.Name)), i)
}

// position returns the number of the key in reference i, from 0. A reference that alone makes rows differ goes through
// all keys, and a pair of references through all pairs.
func (c *composing) position(i int) string {
	r := c.table.references[i]
	count := strconv.FormatInt(c.keys[i].rows, 10)
	if r.once {
		return fmt.Sprintf("(i - 1) %% %s", count)
	}
	if !c.single(r) {
		if s := c.table.statistic(r.Columns[0]); s != nil && len(r.Columns) == 1 {
			distinct := min(max(1, s.distinct(c.rows, c.table.scale)), c.keys[i].rows)
			return s.number(strconv.FormatInt(distinct, 10), salt(c.table.Name, r.Name))
		}
		return skewed(count, salt(c.table.Name, r.Name))
	}
	for j, earlier := range c.table.references[:i] {
		if c.keys[j].rows > 0 && len(c.keys[j].shared) == 0 && c.single(earlier) && c.together(r, earlier) {
			first := c.keys[j].rows
			return fmt.Sprintf("((i - 1) %% %d + (i - 1) / %d) %% %s", first, first, count)
		}
	}
	return fmt.Sprintf("(i - 1) %% %s", count)
}

// together reports whether a key has columns of both references.
func (c *composing) together(a, b reference) bool {
	in := func(r reference, k key) bool {
		return slices.ContainsFunc(k.Columns, func(name string) bool { return slices.Contains(r.Columns, name) })
	}
	return slices.ContainsFunc(c.table.keys, func(k key) bool { return in(a, k) && in(b, k) })
}

func (f *filling) tableOf(oid uint32) *table {
	i := slices.IndexFunc(f.tables, func(t *table) bool { return t.OID == oid })
	return f.tables[i]
}

func (f *filling) nameOf(oid uint32) string { return f.tableOf(oid).Name }

func (f *filling) sqlOf(oid uint32) string { return f.tableOf(oid).SQL }

func quotedNames(names []string) []string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = pgx.Identifier{name}.Sanitize()
	}
	return quoted
}
