package seed

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// open turns off triggers, rules, and row level security that also applies to the owner, since all may refuse, change
// or hide rows. The returned function turns everything on again. The whole is one transaction, so a failure leaves
// nothing.
func (f *filling) open(ctx context.Context, tx pgx.Tx) (restore func() error, err error) {
	var bypasses bool
	if err := tx.QueryRow(ctx, `SELECT current_setting('session_replication_role') = 'replica',
		(SELECT r.rolsuper OR r.rolbypassrls FROM pg_roles AS r WHERE r.rolname = current_user)`).Scan(&f.unchecked, &bypasses); err != nil {
		return nil, err
	}
	for _, t := range f.tables {
		if t.Forced && !bypasses {
			if err := f.turn(ctx, tx, "ALTER TABLE "+t.SQL+" NO FORCE ROW LEVEL SECURITY", "ALTER TABLE "+t.SQL+" FORCE ROW LEVEL SECURITY"); err != nil {
				return nil, err
			}
		}
	}
	acting, err := f.acting(ctx, tx)
	if err != nil {
		return nil, err
	}
	for _, a := range acting {
		thing := a.Kind + " " + pgx.Identifier{a.Name}.Sanitize()
		on := map[string]string{"O": "ENABLE ", "R": "ENABLE REPLICA ", "A": "ENABLE ALWAYS "}[a.State]
		if err := f.turn(ctx, tx, "ALTER TABLE ONLY "+a.Table+" DISABLE "+thing, "ALTER TABLE ONLY "+a.Table+" "+on+thing); err != nil {
			return nil, err
		}
	}
	return func() error {
		if len(f.restore) > 0 {
			if _, err := tx.Exec(ctx, "SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
				return err
			}
		}
		for _, sql := range slices.Backward(f.restore) {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	}, nil
}

// actor is a trigger or a rule, with pg_trigger.tgenabled.
type actor struct {
	Table, Kind, Name, State string
}

// acting returns the triggers and rules that act in this session.
func (f *filling) acting(ctx context.Context, tx pgx.Tx) ([]*actor, error) {
	states := "'O', 'R', 'A'"
	if f.unchecked {
		states = "'R', 'A'"
	}
	where := strings.Replace(ordinary, " AND NOT c.relispartition", "", 1)
	found, err := rowsOf[actor](ctx, tx, `
		SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS "table", x.kind, x.name, x.state
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		CROSS JOIN LATERAL (
			SELECT 'TRIGGER' AS kind, t.tgname::text AS name, t.tgenabled::text AS state
			FROM pg_trigger AS t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal
			UNION ALL
			SELECT 'RULE', r.rulename::text, r.ev_enabled::text
			FROM pg_rewrite AS r WHERE r.ev_class = c.oid AND r.ev_type IN ('2', '3', '4')
		) AS x
		WHERE x.state IN (`+states+`) AND `+where+`
		ORDER BY 1, 2, 3`)
	if err != nil {
		return nil, fmt.Errorf("list triggers: %w", err)
	}
	return found, nil
}

// turn runs a statement, and remembers its opposite if the server took it.
func (f *filling) turn(ctx context.Context, tx pgx.Tx, off, on string) error {
	done, err := try(ctx, tx, off)
	if done {
		f.restore = append(f.restore, on)
	}
	return err
}

// close fills the references of a cycle, and removes rows whose references lead nowhere, since the server did not check
// them.
func (f *filling) close(ctx context.Context, tx pgx.Tx, done map[uint32]*Filled) error {
	for _, ring := range f.rings {
		refusal, err := inside(ctx, tx, func(sub pgx.Tx) error { return f.closeRing(ctx, sub, ring) })
		if err != nil {
			return err
		}
		if refusal != "" || f.filled[ring.reference.To] == 0 {
			if refusal == "" {
				refusal = fmt.Sprintf("it refers to %s, which is empty", f.nameOf(ring.reference.To))
			}
			kept, err := inside(ctx, tx, func(sub pgx.Tx) error {
				_, err := sub.Exec(ctx, "DELETE FROM "+ring.table.SQL)
				return err
			})
			if err != nil {
				return err
			}
			if kept != "" { // rows of other tables refer to them
				done[ring.table.OID].Reason = refusal + ", so its rows refer to rows that are not there"
				continue
			}
			f.filled[ring.table.OID] = 0
			done[ring.table.OID].Rows, done[ring.table.OID].Reason = 0, refusal
		}
	}
	return f.sweep(ctx, tx, done)
}

// ring is a reference filled with made up keys, since its table is filled later.
type ring struct {
	table     *table
	reference reference
}

func (f *filling) closeRing(ctx context.Context, tx pgx.Tx, r ring) error {
	if f.filled[r.reference.To] == 0 {
		return nil
	}
	c := &composing{filling: f, table: r.table}
	keys, err := c.copyKeys(ctx, tx, r.reference, "ring", nil)
	if err != nil {
		return err
	}
	var sets []string
	to := quotedNames(r.reference.ToNames)
	for i, name := range quotedNames(r.reference.Columns) {
		sets = append(sets, fmt.Sprintf("%s = k.%s", name, to[i]))
	}
	_, err = tx.Exec(ctx, fmt.Sprintf(`
		UPDATE %s AS t SET %s
		FROM (SELECT ctid AS at, tableoid AS of, row_number() OVER (ORDER BY tableoid, ctid) AS n FROM %s) AS x, %s AS k
		WHERE t.ctid = x.at AND t.tableoid = x.of AND k.n = 1 + (x.n - 1) %% %d`,
		r.table.SQL, strings.Join(sets, ", "), r.table.SQL, keys.name, keys.rows))
	return err
}

// sweep removes rows whose references lead nowhere. Then others may lead nowhere.
func (f *filling) sweep(ctx context.Context, tx pgx.Tx, done map[uint32]*Filled) error {
	if !f.unchecked {
		return nil
	}
	for again := true; again; {
		again = false
		for _, t := range f.tables {
			for _, r := range t.references {
				if r.soft || done[t.OID].Rows == 0 {
					continue
				}
				n, err := f.sweepOne(ctx, tx, t, r)
				if err != nil {
					return fmt.Errorf("check the references of %s: %w", t.Name, err)
				}
				if n == 0 {
					continue
				}
				again = true
				f.filled[t.OID] -= n
				done[t.OID].Rows = f.filled[t.OID]
				if done[t.OID].Rows == 0 {
					done[t.OID].Reason = fmt.Sprintf("no rows of %s fit its reference %s", f.nameOf(r.To), r.Name)
				}
			}
		}
	}
	return nil
}

func (f *filling) sweepOne(ctx context.Context, tx pgx.Tx, t *table, r reference) (int64, error) {
	var held, same []string
	to := quotedNames(r.ToNames)
	for i, name := range quotedNames(r.Columns) {
		held = append(held, "t."+name+" IS NOT NULL")
		same = append(same, fmt.Sprintf("o.%s = t.%s", to[i], name))
	}
	tag, err := tx.Exec(ctx, fmt.Sprintf("DELETE FROM %s AS t WHERE %s AND NOT EXISTS (SELECT FROM %s AS o WHERE %s)",
		t.SQL, strings.Join(held, " AND "), f.sqlOf(r.To), strings.Join(same, " AND ")))
	return tag.RowsAffected(), err
}
