package operator

import (
	"context"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// DatabaseStatus is the state of the server as far as it slows the queue down.
type DatabaseStatus struct {
	Tables    []TableStatus // with the most dead rows first, at most 20
	Snapshots []OldSnapshot // the oldest first, at most five
}

// TableStatus has the counters of a table. They are estimates of the server.
type TableStatus struct {
	Name       string
	Live, Dead int64     // rows
	Vacuumed   time.Time // zero: never
}

// OldSnapshot is a transaction whose snapshot keeps vacuum from removing dead rows.
type OldSnapshot struct {
	PID         int
	Application string
	User        string
	State       string // as "idle in transaction"
	Age         time.Duration
}

// Database returns dead rows and old snapshots. Claims become slow if a snapshot stays open for hours: end its transaction.
// Without the rights of pg_read_all_stats only snapshots of the program's own role are seen.
//
// Two statements in one round trip; takes no locks.
func Database(ctx context.Context, eng *engine.Engine) (status DatabaseStatus, err error) {
	c := core.Of(eng)
	var tables []db.ListTableStatisticsRow
	var snapshots []db.ListOldSnapshotsRow
	err = c.Read(ctx,
		func(conn db.DBTX) (err error) {
			tables, err = c.Q.ListTableStatistics(ctx, conn)
			return err
		},
		func(conn db.DBTX) (err error) {
			snapshots, err = c.Q.ListOldSnapshots(ctx, conn)
			return err
		},
	)
	if err != nil {
		return status, core.Wrap("read the state of the database", err)
	}
	for _, row := range tables {
		table := TableStatus{Name: row.TableName, Live: row.Live, Dead: row.Dead}
		if row.LastVacuumMs > 0 {
			table.Vacuumed = time.UnixMilli(row.LastVacuumMs)
		}
		status.Tables = append(status.Tables, table)
	}
	for _, row := range snapshots {
		status.Snapshots = append(status.Snapshots, OldSnapshot{
			PID: int(row.Pid), Application: row.ApplicationName, User: row.UserName, State: row.SessionState,
			Age: time.Duration(row.AgeMs) * time.Millisecond,
		})
	}
	return status, nil
}
