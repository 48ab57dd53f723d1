package retention

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/operator"
)

// size has the server's statistics of a table.
type size struct {
	Name    string
	Heap    int64
	Indexes int64
	Live    int64
	Dead    int64
	Vacuums int64
}

const mib = 1 << 20

// sizes prints the size of the database, and of each table of at least a MiB.
func (b *bench) sizes(ctx context.Context, p *probe, elapsed string) error {
	var database int64
	if err := b.pool.QueryRow(ctx, "select pg_database_size(current_database())").Scan(&database); err != nil {
		return err
	}
	rows, err := b.pool.Query(ctx, `
		select relname as name, pg_table_size(relid) as heap, pg_indexes_size(relid) as indexes,
			n_live_tup as live, n_dead_tup as dead, autovacuum_count as vacuums
		from pg_stat_user_tables
		where pg_total_relation_size(relid) > 1048576
		order by relname`)
	if err != nil {
		return err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByName[size])
	if err != nil {
		return err
	}
	status, err := operator.Retention(ctx, b.eng)
	if err != nil {
		return err
	}
	n, p50, p99 := p.read()
	b.printf("%s: database %d MiB; deleted %d, %d in the last minute, behind %v, waiting %d; claim p50 %.1f ms, p99 %.1f ms (%d claims)",
		elapsed, database/mib, status.Deleted, status.DeletedLately, status.Behind, status.Waiting, p50, p99, n)
	for _, t := range tables {
		b.printf("  %-22s %6d MiB, indexes %5d MiB, live %9d, dead %9d, vacuums %d", t.Name, t.Heap/mib, t.Indexes/mib, t.Live, t.Dead, t.Vacuums)
	}
	return nil
}
