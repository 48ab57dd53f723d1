package schema

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/hash"
)

// check looks for problems before anything changes. Without a FlowFabric ledger check creates one, so a FlowFabric
// server never recreates the renamed tables.
func (c *conversion) check(ctx context.Context) error {
	var missing []string
	err := c.conn.QueryRow(ctx, `
		SELECT coalesce(array_agg(t.name ORDER BY t.name), '{}')
		FROM unnest($1::text[]) AS t (name)
		WHERE NOT EXISTS (
			SELECT
			FROM pg_class AS k
			WHERE
				k.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $2)
				AND k.relname = t.name
				AND k.relkind IN ('r', 'p')
		)`,
		referenceTables, c.schema,
	).Scan(&missing)
	switch {
	case err != nil:
		return classify("look for the tables", err)
	case len(missing) > 0:
		return c.state.refuse(ErrForeign, "FlowFabric's "+strings.Join(missing, ", ")+" is missing")
	}
	if err := c.samplePartitions(ctx); err != nil {
		return err
	}
	statements := []string{makeLedger}
	if len(c.state.reference) == 0 {
		ledger, err := referenceLedgerSQL()
		if err != nil {
			return err
		}
		statements = append(statements, ledger)
	}
	return classifyNil("begin the adoption", c.once(ctx, stepCheck, statements...))
}

// samplePartitions compares the partitions of some rows with the configuration.
func (c *conversion) samplePartitions(ctx context.Context) error {
	for _, of := range []struct {
		what, table, column string
		partitions          uint16
	}{
		{"flow", "ff_flow_core", "flow_id", c.partitions.Flow},
		{"budget", "ff_budget_policy", "budget_id", c.partitions.Budget},
		{"quota", "ff_quota_policy", "quota_policy_id", c.partitions.Quota},
	} {
		rows, err := c.conn.Query(ctx, "SELECT partition_key, "+of.column+"::text FROM "+c.name(of.table)+" LIMIT 1000")
		if err != nil {
			return classify("sample "+of.table, err)
		}
		var keys []int16
		var hashes []uint16
		var texts []string
		var key int16
		var text string
		if _, err := pgx.ForEachRow(rows, []any{&key, &text}, func() error {
			if x, err := id.ParseFlowID(text); err == nil { // any kind of id does: the bytes are hashed
				keys, hashes, texts = append(keys, key), append(hashes, hash.CRC16(x[:])), append(texts, text)
			}
			return nil
		}); err != nil {
			return classify("sample "+of.table, err)
		}
		misplaced := func(n int) int { // the first such row, or -1
			for i, sum := range hashes {
				if int(keys[i]) != int(sum)%n {
					return i
				}
			}
			return -1
		}
		n := int(of.partitions)
		first := misplaced(n)
		if first < 0 {
			continue
		}
		detail := fmt.Sprintf("%s has rows outside their place in %d %s partitions, such as %s in %d instead of %d",
			of.table, n, of.what, texts[first], keys[first], int(hashes[first])%n)
		for n := 1; n <= math.MaxInt16; n++ {
			if misplaced(n) < 0 {
				detail += fmt.Sprintf(": %d would fit", n)
				break
			}
		}
		return c.state.refuse(ErrPartitions, detail)
	}
	return nil
}

// referenceLedgerSQL returns the statements of the baseline for FlowFabric's ledger.
func referenceLedgerSQL() (string, error) {
	script, err := readScript(Migration{Name: baselineLedger})
	if err != nil {
		return "", err
	}
	i := strings.Index(script.up.sql, "CREATE TABLE IF NOT EXISTS _sqlx_migrations")
	if i < 0 {
		return "", fmt.Errorf("schema: %s does not create FlowFabric's ledger", baselineLedger)
	}
	return script.up.sql[i:], nil
}

// renameTables renames FlowFabric's tables with their indexes and sequences. Partitions keep their names; only the
// parents are locked. See docs/internals/decisions.md#sharing-dropped.
func (c *conversion) renameTables(ctx context.Context) error {
	rows, err := c.conn.Query(ctx, `
		WITH class AS (
			SELECT oid, relname
			FROM pg_class
			WHERE
				relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $2)
				AND relname = ANY ($1::text[])
				AND relkind IN ('r', 'p')
		)
		SELECT 'TABLE', relname::text
		FROM class
		UNION ALL
		SELECT 'INDEX', i.relname::text
		FROM class
		JOIN pg_index ON indrelid = class.oid
		JOIN pg_class AS i ON i.oid = indexrelid
		UNION ALL
		SELECT 'SEQUENCE', s.relname::text
		FROM class
		JOIN pg_depend ON refobjid = class.oid AND refclassid = 'pg_class'::regclass AND deptype IN ('a', 'i')
		JOIN pg_class AS s ON s.oid = objid AND classid = 'pg_class'::regclass AND s.relkind = 'S'`,
		referenceTables, c.schema)
	if err != nil {
		return classify("read the tables", err)
	}
	var statements []string
	var kind, name string
	if _, err := pgx.ForEachRow(rows, []any{&kind, &name}, func() error {
		statements = append(statements, "ALTER "+kind+" "+c.name(name)+" RENAME TO "+pgx.Identifier{oldPrefix + name}.Sanitize())
		return nil
	}); err != nil {
		return classify("read the tables", err)
	}
	c.log.InfoContext(ctx, "setting aside", "tables", len(referenceTables), "schema", c.schema)
	return classifyNil("set the tables aside", c.once(ctx, stepRename, statements...))
}

// makeTables applies the migrations. FlowFabric's objects that stay in place are renamed meanwhile.
func (c *conversion) makeTables(ctx context.Context) ([]string, error) {
	var applied []string
	for _, m := range c.state.Migrations {
		if m.Applied {
			continue
		}
		script, err := readScript(m)
		if err != nil {
			return nil, err
		}
		away, back, err := c.standing(ctx, script.up.sql)
		if err != nil {
			return nil, err
		}
		c.log.DebugContext(ctx, "applying", "migration", m.Name, "schema", c.schema)
		err = c.retryLocked(ctx, func() error {
			if err := c.lockStands(ctx); err != nil {
				return err
			}
			return c.inTx(context.WithoutCancel(ctx), func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, away); err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, script.up.sql); err != nil {
					return script.up.locate(err)
				}
				_, err := tx.Exec(ctx, back+record(m.Version))
				return err
			})
		})
		if err != nil {
			return nil, classify("apply "+m.Name+".sql", err)
		}
		applied = append(applied, m.Name)
	}
	return applied, nil
}

// standing returns statements for the objects created by both FlowFabric and a migration: the ledger and the five
// trigger functions. away renames FlowFabric's; back puts FlowFabric's in place of the migration's.
func (c *conversion) standing(ctx context.Context, sql string) (away, back string, err error) {
	const kept = "ffx_kept_"
	if strings.Contains(sql, "CREATE TABLE IF NOT EXISTS "+referenceLedgerTable) {
		away = "ALTER TABLE " + referenceLedgerTable + " RENAME TO " + kept + "ledger;"
		back = "DROP TABLE " + referenceLedgerTable + "; ALTER TABLE " + kept + "ledger RENAME TO " + referenceLedgerTable + ";" +
			"ALTER INDEX IF EXISTS " + kept + "ledger_pkey RENAME TO " + referenceLedgerTable + "_pkey;"
		away += "ALTER INDEX IF EXISTS " + referenceLedgerTable + "_pkey RENAME TO " + kept + "ledger_pkey;"
	}
	rows, err := c.conn.Query(ctx, `
		SELECT proname::text
		FROM pg_proc
		WHERE
			pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
			AND proname ~ '^ff_notify_'
			AND pronargs = 0`,
		c.schema)
	if err != nil {
		return "", "", classify("read the functions", err)
	}
	functions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", "", classify("read the functions", err)
	}
	for _, function := range slices.Sorted(slices.Values(functions)) {
		if strings.Contains(sql, "CREATE FUNCTION "+function+"()") {
			away += "ALTER FUNCTION " + function + "() RENAME TO " + kept + function + ";"
			back += "DROP FUNCTION " + function + "(); ALTER FUNCTION " + kept + function + "() RENAME TO " + function + ";"
		}
	}
	return away, back, nil
}
