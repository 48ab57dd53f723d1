package observe

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/review/internal/ddl"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// trigger is a trigger of a table, with its function.
type trigger struct {
	oid, table              uint32
	name, function          string
	body                    string // a sum of the function's text
	inserts, updates, erase bool
}

// readTriggers returns the existing triggers, by OID.
func readTriggers(ctx context.Context, conn *pgx.Conn) (map[uint32]trigger, error) {
	rows, err := conn.Query(ctx, `
		SELECT t.oid, t.tgrelid, t.tgname::text, p.proname::text, md5(p.prosrc), t.tgtype & 4 > 0, t.tgtype & 16 > 0, t.tgtype & 8 > 0
		FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
		WHERE NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')`)
	if err != nil {
		return nil, err
	}
	all := map[uint32]trigger{}
	var t trigger
	_, err = pgx.ForEachRow(rows, []any{&t.oid, &t.table, &t.name, &t.function, &t.body, &t.inserts, &t.updates, &t.erase}, func() error {
		all[t.oid] = t
		return nil
	})
	return all, err
}

// newTriggers writes to the tables with new or changed triggers: two transactions, two rows. If one waits for the other
// while the trigger is on, and not while off, the trigger is the cause.
func (o *observation) newTriggers(ctx context.Context, before map[uint32]trigger) error {
	after, err := readTriggers(ctx, o.watch)
	if err != nil {
		return err
	}
	var added []trigger
	for _, oid := range slices.Sorted(maps.Keys(after)) {
		t := after[oid]
		if was, known := before[oid]; (!known || was.body != t.body || was.function != t.function) && o.old[t.table].kind == 'r' {
			added = append(added, t)
		}
	}
	if len(added) == 0 {
		return nil
	}
	pair := [2]*pgx.Conn{}
	for i := range pair {
		if pair[i], err = o.session(ctx); err != nil {
			return err
		}
	}
	for _, t := range added {
		if err := o.newTrigger(ctx, pair, t); err != nil {
			return fmt.Errorf("trigger %s: %w", t.name, err)
		}
	}
	return nil
}

func (o *observation) newTrigger(ctx context.Context, pair [2]*pgx.Conn, t trigger) error {
	table := o.old[t.table].name
	rows, err := o.someRows(ctx, table)
	if err != nil || len(rows) < 2 {
		return err
	}
	writes, err := o.writesOf(ctx, t, table)
	if err != nil {
		return err
	}
	place := o.placeOf(t)
	for _, w := range writes {
		on, tried, err := collisions(ctx, pair, w, rows)
		if err != nil {
			return err
		}
		if tried == 0 {
			o.result.Skipped = append(o.result.Skipped, fmt.Sprintf("%s: whether writers of `%s` wait by the trigger `%s` is not known: no row could be tried with %s",
				at(place), table, t.name, w.verb))
			continue
		}
		if on == 0 {
			continue
		}
		name := pgx.Identifier{t.name}.Sanitize()
		if err := exec(ctx, o.main, fmt.Sprintf("ALTER TABLE %s DISABLE TRIGGER %s", table, name)); err != nil {
			return err
		}
		off, _, err := collisions(ctx, pair, w, rows)
		if err != nil {
			return err
		}
		if err := exec(ctx, o.main, fmt.Sprintf("ALTER TABLE %s ENABLE TRIGGER %s", table, name)); err != nil {
			return err
		}
		if off >= on {
			continue
		}
		f := report.Finding{
			Rule: rule.TriggerWaits.Name, Severity: report.Blocking, Place: place, Object: t.name,
			Title:  fmt.Sprintf("Writers of different rows of `%s` wait for each other, by the trigger `%s`", table, t.name),
			Detail: fmt.Sprintf("Of two transactions that %s different rows, the second waited until the first ended, whichever rows were tried. `%s` locks something that they share.", w.verb, t.function),
			Do:     "Let the trigger only add rows, and sum them up later; or do it in the programs, in few places and last in their transactions.",
		}
		if on < tried {
			f.Severity = report.Risk
			f.Title = fmt.Sprintf("Writers of some rows of `%s` wait for each other, by the trigger `%s`", table, t.name)
			f.Detail = fmt.Sprintf("Of two transactions that %s different rows, the second waited until the first ended, for some pairs of rows. `%s` locks something that these share.", w.verb, t.function)
		}
		o.find(f)
	}
	return nil
}

// placeOf returns the last statement to create the trigger, or else its function.
func (o *observation) placeOf(t trigger) report.Place {
	var byName, byFunction, last report.Place
	for _, m := range o.Migrations {
		for _, s := range m.Up.Statements {
			last = s.Place
			tree, err := ddl.Parse(s.SQL)
			if err != nil {
				continue
			}
			if tree.Node.GetCreateTrigStmt().GetTrigname() == t.name {
				byName = s.Place
			}
			if names := tree.Node.GetCreateFunctionStmt().GetFuncname(); len(names) > 0 && names[len(names)-1].GetString_().GetSval() == t.function {
				byFunction = s.Place
			}
		}
	}
	for _, p := range []report.Place{byName, byFunction} {
		if p != (report.Place{}) {
			return p
		}
	}
	return last
}

// someRows returns the first three, the middle and the last row in physical order.
func (o *observation) someRows(ctx context.Context, table string) ([]string, error) {
	rows, err := o.watch.Query(ctx, fmt.Sprintf(`
		SELECT c::text FROM (SELECT ctid AS c, row_number() OVER (ORDER BY ctid) AS i, count(*) OVER () AS n FROM ONLY %s) AS numbered
		WHERE i IN (1, 2, 3, n / 2, n) ORDER BY i`, table))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// write is a way to write to a row: "%[1]s" is the place, "%[2]d" the number of the writer.
type write struct{ verb, sql string }

// writesOf returns statements for which the trigger fires, as far as WHEN allows.
func (o *observation) writesOf(ctx context.Context, t trigger, table string) ([]write, error) {
	rows, err := o.watch.Query(ctx, `
		SELECT quote_ident(a.attname), coalesce(y.typcategory::text, ''), y.typname::text, EXISTS (
			SELECT 1 FROM pg_index AS i WHERE i.indrelid = a.attrelid AND i.indisunique AND a.attnum = ANY (i.indkey))
		FROM pg_attribute AS a JOIN pg_type AS y ON y.oid = a.atttypid
		WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum`, t.table)
	if err != nil {
		return nil, err
	}
	var name, category, kind string
	var unique bool
	var names, values, sets []string
	if _, err := pgx.ForEachRow(rows, []any{&name, &category, &kind, &unique}, func() error {
		value := name
		switch {
		case !unique:
		case category == "N":
			value = fmt.Sprintf("(SELECT max(m.%s) + %%[2]d FROM %s AS m)", name, table)
		case kind == "uuid":
			value = "gen_random_uuid()"
		case category == "S":
			value = "left(md5(random()::text), 12)"
		}
		names, values, sets = append(names, name), append(values, value), append(sets, name+" = "+name)
		return nil
	}); err != nil {
		return nil, err
	}
	var all []write
	if t.inserts {
		all = append(all, write{"insert", fmt.Sprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM ONLY %s WHERE ctid = '%%[1]s'",
			table, strings.Join(names, ", "), strings.Join(values, ", "), table)})
	}
	if t.updates {
		all = append(all, write{"update", fmt.Sprintf("UPDATE ONLY %s SET %s WHERE ctid = '%%[1]s'", table, strings.Join(sets, ", "))})
	}
	if t.erase {
		all = append(all, write{"delete", fmt.Sprintf("DELETE FROM ONLY %s WHERE ctid = '%%[1]s'", table)})
	}
	return all, nil
}

// collisions writes to the first row and, before the commit, to each of the others in turn. It returns how many writes
// waited, and how many could be tried.
func collisions(ctx context.Context, pair [2]*pgx.Conn, w write, rows []string) (waited, tried int, err error) {
	for _, row := range rows[1:] {
		var results [2]error
		for i, at := range []string{rows[0], row} {
			if err := exec(ctx, pair[i], "BEGIN; SET LOCAL lock_timeout = '100ms'"); err != nil {
				return 0, 0, err
			}
			sql := w.sql
			sql = strings.ReplaceAll(strings.ReplaceAll(sql, "%[1]s", at), "%[2]d", fmt.Sprint(i+1))
			results[i] = exec(ctx, pair[i], sql)
		}
		for i := range pair {
			if results[i] != nil && !isServers(results[i]) {
				return 0, 0, results[i]
			}
			if err := exec(ctx, pair[i], "ROLLBACK"); err != nil {
				return 0, 0, err
			}
		}
		switch {
		case results[0] != nil:
		case code(results[1]) == lockTimeout:
			waited++
			tried++
		case results[1] == nil:
			tried++
		}
	}
	return waited, tried, nil
}
