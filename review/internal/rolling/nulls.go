package rolling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/review/internal/arguments"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

const (
	notNull = "23502" // not_null_violation
	check23 = "23514" // check_violation
)

// nulls finds columns for which programs of before may send NULL, and which refuse it after the change. Only a query
// with a parameter beside a column of a table that got stricter is tried, once for each such parameter.
func (c *check) nulls(ctx context.Context) error {
	strict, err := c.stricter(ctx)
	if err != nil || len(strict) == 0 {
		return err
	}
	refused := map[string][]string{} // queries by column
	for _, q := range c.Base.Queries {
		usual := c.before.ran[q.SQL]
		if usual == nil || usual.unprepared || len(usual.literals) == 0 || len(usual.literals) != len(usual.parameters) {
			continue
		}
		columns, tables := arguments.Columns(q.SQL)
		if !slices.ContainsFunc(tables, func(table string) bool { return strict[table] }) {
			continue
		}
		for number, column := range columns {
			if number > len(usual.literals) || usual.literals[number-1] == "NULL" {
				continue
			}
			sent := &outcome{literals: slices.Clone(usual.literals)}
			sent.literals[number-1] = "NULL"
			refuses, err := c.refusesNull(ctx, q.SQL, sent)
			if err != nil {
				return fmt.Errorf("%s with NULL for %s: %w", q.Name, column, err)
			}
			if refuses != "" && !slices.Contains(refused[refuses+"."+column], q.Name) {
				refused[refuses+"."+column] = append(refused[refuses+"."+column], q.Name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		slices.Sort(refused[name])
		c.result.Findings = append(c.result.Findings, report.Finding{
			Rule: rule.RollingNullSent.Name, Severity: report.Risk, Place: c.place(), Object: name,
			Title:  fmt.Sprintf("Programs of before may send NULL for %s, which refuses it from now on", name),
			Detail: fmt.Sprintf("With NULL, `%s` is taken by the schema before and refused by the schema after.", strings.Join(refused[name], "`, `")),
			Do:     rule.RollingNullSent.Advice,
		})
	}
	return nil
}

// refusesNull returns the table that refuses the arguments only after the change, or "".
func (c *check) refusesNull(ctx context.Context, sql string, sent *outcome) (table string, err error) {
	here, err := c.before.run(ctx, sql, sent)
	if err != nil || here.failure != nil && !slices.Contains(unrelated, here.failure.Code) {
		return "", err
	}
	there, err := c.after.run(ctx, sql, sent)
	if err != nil || there.failure == nil || there.failure.Code != notNull && there.failure.Code != check23 {
		return "", err
	}
	if usual := c.after.ran[sql]; usual != nil && usual.failure != nil && usual.failure.Code == there.failure.Code {
		return "", nil // with or without NULL
	}
	return there.failure.TableName, nil
}

// stricter returns the tables with a NOT NULL column, or a check, only after the change.
func (c *check) stricter(ctx context.Context) (map[string]bool, error) {
	const sql = `
		SELECT t.relname::text, 'column ' || a.attname FROM pg_attribute AS a JOIN pg_class AS t ON t.oid = a.attrelid
		WHERE a.attnum > 0 AND a.attnotnull AND NOT a.attisdropped AND t.relkind IN ('r', 'p')
		UNION ALL
		SELECT t.relname::text, 'check ' || k.conname FROM pg_constraint AS k JOIN pg_class AS t ON t.oid = k.conrelid WHERE k.contype = 'c'`
	read := func(d *trial) (map[[2]string]bool, error) {
		rows, err := d.conn.Query(ctx, sql)
		if err != nil {
			return nil, err
		}
		known := map[[2]string]bool{}
		var table, what string
		_, err = pgx.ForEachRow(rows, []any{&table, &what}, func() error {
			known[[2]string{table, what}] = true
			return nil
		})
		return known, err
	}
	was, err := read(c.before)
	if err != nil {
		return nil, err
	}
	is, err := read(c.after)
	if err != nil {
		return nil, err
	}
	tables := map[string]bool{}
	for key := range is {
		if !was[key] {
			tables[key[0]] = true
		}
	}
	return tables, nil
}
