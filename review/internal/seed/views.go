package seed

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// refresh refreshes the materialized views with data, and returns their names. Views are refreshed in the order of
// creation: a view may read earlier ones. A view the server refuses keeps its rows.
func (f *filling) refresh(ctx context.Context) ([]string, error) {
	rows, err := f.conn.Query(ctx, `
		SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname)
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE c.relkind = 'm' AND c.relispopulated AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\_%'
		ORDER BY c.oid`)
	if err != nil {
		return nil, fmt.Errorf("list materialized views: %w", err)
	}
	views, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list materialized views: %w", err)
	}
	for _, view := range views {
		if _, err := f.conn.Exec(ctx, "REFRESH MATERIALIZED VIEW "+view); err != nil && !isServerError(err) {
			return nil, fmt.Errorf("refresh materialized views: %w", err)
		}
	}
	return views, nil
}
