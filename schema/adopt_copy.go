package schema

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// sumAtOnce is the number of partitions per statement. Each needs locks on the partition and the indexes.
const sumAtOnce = 32

// original is a table made by FlowFabric.
type original struct {
	table   string   // the name in FlowFabric
	columns string   // the columns of both tables, quoted
	parts   []string // the partitions, or the table itself
}

// originals returns the tables to copy, in order.
func (c *conversion) originals(ctx context.Context) ([]original, error) {
	rows, err := c.conn.Query(ctx, `
		SELECT
			t.name,
			(
				SELECT string_agg(quote_ident(o.attname), ', ' ORDER BY o.attnum)
				FROM pg_attribute AS o
				JOIN pg_attribute AS n ON n.attname = o.attname AND n.attrelid = made.oid
				WHERE o.attrelid = old.oid AND o.attnum > 0 AND NOT o.attisdropped AND NOT n.attisdropped
			),
			CASE
				WHEN old.relkind = 'r' THEN ARRAY[old.relname::text]
				ELSE coalesce((
					SELECT array_agg(p.relname::text ORDER BY length(p.relname), p.relname)
					FROM pg_partition_tree(old.oid) AS tree
					JOIN pg_class AS p ON p.oid = tree.relid
					WHERE tree.isleaf
				), '{}')
			END
		FROM unnest($1::text[]) WITH ORDINALITY AS t (name, ord)
		JOIN pg_namespace AS s ON s.nspname = $2
		JOIN pg_class AS old ON old.relnamespace = s.oid AND old.relname = 'old_' || t.name
		JOIN pg_class AS made ON made.relnamespace = s.oid AND made.relname = t.name
		ORDER BY t.ord`,
		referenceTables, c.schema)
	if err != nil {
		return nil, classify("read the old tables", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (original, error) {
		var o original
		err := row.Scan(&o.table, &o.columns, &o.parts)
		return o, err
	})
	if err != nil {
		return nil, classify("read the old tables", err)
	}
	if len(found) != len(referenceTables) {
		return nil, c.state.refuse(ErrForeign, fmt.Sprintf("only %d of the %d tables that were set aside exist", len(found), len(referenceTables)))
	}
	return found, nil
}

// copyTables copies the rows, one partition per transaction, and advances the sequences past the copied ids. See
// docs/internals/decisions.md#one-layout.
func (c *conversion) copyTables(ctx context.Context) error {
	originals, err := c.originals(ctx)
	if err != nil {
		return err
	}
	for _, o := range originals {
		missing := slices.DeleteFunc(slices.Clone(o.parts), func(part string) bool { return c.state.steps[stepCopy+part] })
		for _, part := range missing {
			c.log.DebugContext(ctx, "copying", "part", part, "schema", c.schema)
			if err := c.copyPart(ctx, o, part); err != nil {
				return classify("copy "+part, err)
			}
		}
		if len(missing) > 0 {
			c.log.InfoContext(ctx, "copied", "table", o.table, "rows", c.count(o.table).Copied, "schema", c.schema)
		}
	}
	return classifyNil("move the sequences", c.inTx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, moveSequences)
		return err
	}))
}

// documentColumns repeat parts of the document, at most a kilobyte of each.
const (
	documentColumns = ", ffx_namespace, ffx_instance_tag"

	documentValues = `,
		CASE
			WHEN octet_length(e.raw_fields ->> 'namespace') > 1024 THEN ffx_first_kilobyte(e.raw_fields ->> 'namespace')
			ELSE e.raw_fields ->> 'namespace'
		END,
		CASE
			WHEN octet_length(e.raw_fields -> 'tags' ->> 'cairn.instance_id') > 1024
				THEN ffx_first_kilobyte(e.raw_fields -> 'tags' ->> 'cairn.instance_id')
			ELSE e.raw_fields -> 'tags' ->> 'cairn.instance_id'
		END`
)

// settledColumns are the library's columns for AdoptExecutions to write. Ended executions get the columns with the copy
// unless more than the public state has to be rewritten. Most of an old database is ended executions; updating each row
// afterwards would take as long as all the rest.
const (
	settledColumns = ", ffx_retry_count, ffx_attempt_count, ffx_lease_epoch, ffx_execution_deadline_ms"

	settledValues = `,
		CASE WHEN ` + settled + ` THEN coalesce(least(ffx_read_number(e.raw_fields, 'retry_count'), 2147483647), 0) END::integer,
		CASE WHEN ` + settled + ` THEN coalesce(least(ffx_read_number(e.raw_fields, 'total_attempt_count'), 2147483647), 0) END::integer,
		CASE WHEN ` + settled + ` THEN 0 END,
		CASE WHEN ` + settled + ` THEN - abs(coalesce(e.deadline_at_ms, 0)) END`

	settled = `(
		e.lifecycle_phase IN ('terminal', 'cancelled')
		AND e.ownership_state <> 'leased'
		AND e.lifecycle_phase <> 'cancelled'
		AND e.public_state <> 'cancelled'
		AND e.priority BETWEEN 0 AND 9000
		AND e.required_capabilities = '{}'
		AND NOT e.raw_fields ?| ARRAY['budget_ids', 'quota_policy_id']
		AND (
			e.policy IS NULL
			OR NOT e.policy ? 'routing_requirements' AND coalesce(e.policy -> 'budget_ids', '[]') = '[]'
		)
	)`
)

// numberColumns number the frames of a stream. All frames of a stream are in one partition.
const (
	numberColumns = ", ffx_number, ffx_durable"

	numberValues = `,
		row_number() OVER (PARTITION BY e.partition_key, e.execution_id, e.attempt_index ORDER BY e.ts_ms, e.seq),
		count(*) FILTER (WHERE e.mode = 'durable') OVER (PARTITION BY e.partition_key, e.execution_id, e.attempt_index ORDER BY e.ts_ms, e.seq)`
)

// seeded lists the tables filled by a migration. FlowFabric's rows replace the migration's.
var seeded = []string{"ff_partition_config", "ff_migration_annotation"}

// copyPart copies a partition, or a table without partitions. It sends no notifications, since no reader can exist.
func (c *conversion) copyPart(ctx context.Context, o original, part string) error {
	return c.retryLocked(ctx, func() error {
		if err := c.lockStands(ctx); err != nil {
			return err
		}
		var copied int64
		err := c.inTx(ctx, func(tx pgx.Tx) error {
			settings := "SET LOCAL synchronous_commit = off; SET LOCAL ffx.defer_notify = 'on';"
			if slices.Contains(seeded, o.table) {
				settings += "DELETE FROM " + o.table + ";"
			}
			if _, err := tx.Exec(ctx, settings+record(stepCopy+part)); err != nil {
				return err
			}
			columns, values := o.columns, o.columns
			switch o.table {
			case "ff_exec_core":
				columns, values = columns+documentColumns+settledColumns, values+documentValues+settledValues
			case "ff_stream_frame":
				columns, values = columns+numberColumns, values+numberValues
			}
			tag, err := tx.Exec(ctx, "INSERT INTO "+o.table+" ("+columns+") OVERRIDING SYSTEM VALUE SELECT "+values+" FROM "+
				pgx.Identifier{part}.Sanitize()+" AS e")
			copied = tag.RowsAffected()
			return err
		})
		if err == nil {
			c.count(o.table).Copied += copied
		}
		return err
	})
}

// moveSequences makes each sequence continue where FlowFabric's stopped. A sequence never moves back, so repeating is
// safe.
const moveSequences = `
DO $move$
DECLARE
    sequence text;
    old_last bigint;
    old_called boolean;
    new_next bigint;
BEGIN
    FOREACH sequence IN ARRAY ARRAY[
        'ff_completion_event_event_id_seq', 'ff_lease_event_event_id_seq', 'ff_signal_event_event_id_seq',
        'ff_operator_event_event_id_seq'
    ] LOOP
        EXECUTE format('SELECT last_value, is_called FROM old_%s', sequence) INTO old_last, old_called;
        EXECUTE format('SELECT last_value + CASE WHEN is_called THEN 1 ELSE 0 END FROM %s', sequence) INTO new_next;
        IF new_next < old_last OR old_called AND new_next = old_last THEN
            PERFORM setval(sequence::regclass, old_last, old_called);
        END IF;
    END LOOP;
END;
$move$`

// verifyTables compares each table with the original.
func (c *conversion) verifyTables(ctx context.Context) error {
	originals, err := c.originals(ctx)
	if err != nil {
		return err
	}
	for _, o := range originals {
		if c.state.steps[stepVerify+o.table] {
			continue
		}
		wasRows, wasSum, err := c.sum(ctx, o.columns, o.parts)
		if err != nil {
			return classify("read "+oldPrefix+o.table, err)
		}
		isRows, isSum, err := c.sum(ctx, o.columns, []string{o.table})
		if err != nil {
			return classify("read "+o.table, err)
		}
		switch {
		case wasRows != isRows:
			return c.state.refuse(ErrDifferent, fmt.Sprintf("%s has %d rows, and %s%s has %d", o.table, isRows, oldPrefix, o.table, wasRows))
		case wasSum.Cmp(isSum) != 0:
			return c.state.refuse(ErrDifferent, fmt.Sprintf("the rows of %s differ from those of %s%s", o.table, oldPrefix, o.table))
		}
		if err := c.once(ctx, stepVerify+o.table); err != nil {
			return classify("record the verification of "+o.table, err)
		}
		c.log.InfoContext(ctx, "verified", "table", o.table, "rows", isRows, "schema", c.schema)
	}
	return nil
}

// sum returns the number of rows in tables, and the sum of a hash of each row.
func (c *conversion) sum(ctx context.Context, columns string, tables []string) (rows int64, sum *big.Int, err error) {
	sum = new(big.Int)
	for some := range slices.Chunk(tables, sumAtOnce) {
		parts := make([]string, len(some))
		for i, table := range some {
			parts[i] = "SELECT count(*) AS n, sum(hashtextextended(ROW(" + columns + ")::text, 0)) AS h FROM " + pgx.Identifier{table}.Sanitize()
		}
		var n int64
		var h string
		err := c.inTx(ctx, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, "SELECT sum(n)::bigint, coalesce(sum(h), 0)::text FROM ("+strings.Join(parts, " UNION ALL ")+") AS parts").Scan(&n, &h)
		})
		if err != nil {
			return 0, nil, err
		}
		part, ok := new(big.Int).SetString(h, 10)
		if !ok {
			return 0, nil, fmt.Errorf("%q is not a sum", h)
		}
		rows, sum = rows+n, sum.Add(sum, part)
	}
	return rows, sum, nil
}
