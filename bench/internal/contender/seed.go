package contender

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
)

// SeedFinished makes n finished executions with their attempts and events.
func (o *ours) SeedFinished(ctx context.Context, n int) error {
	probe, err := o.Probe(ctx, 1)
	if err == nil {
		err = probe.Claim(ctx, 1)
	}
	if err == nil {
		err = probe.Complete(ctx)
	}
	if err != nil {
		return err
	}
	same := map[string]string{"partition_key": "copy % 256", "execution_id": "md5('f' || copy)::uuid"}
	for table, own := range map[string]map[string]string{
		"ff_exec_core":        {"created_at_ms": "created_at_ms - copy", "terminal_at_ms": "terminal_at_ms - copy"},
		"ff_attempt":          {},
		"ff_completion_event": {"event_id": ""},
	} {
		for column, value := range same {
			own[column] = value
		}
		if err := multiply(ctx, o.pool, table, n, own); err != nil {
			return fmt.Errorf("seed %s: %w", table, err)
		}
	}
	return nil
}

// SeedQueue makes n claimable executions: in turn on each of lanes other lanes, or on the default lane if lanes is 0, and
// of each of kinds kinds, or of the usual kind if kinds is 0.
func (o *ours) SeedQueue(ctx context.Context, n, lanes, kinds int) error {
	if err := o.Insert(ctx, []Job{{}}); err != nil {
		return err
	}
	instead := map[string]string{
		"partition_key": "copy % 256", "execution_id": "md5('q' || copy)::uuid", "created_at_ms": "created_at_ms + copy / 100",
	}
	if lanes > 0 {
		instead["lane_id"] = fmt.Sprintf("'lane-' || copy %% %d", lanes)
	}
	if kinds > 0 {
		instead["raw_fields"] = fmt.Sprintf(`jsonb_set(raw_fields, '{execution_kind}', to_jsonb('noop-' || copy %% %d))`, kinds)
	}
	return multiply(ctx, o.pool, "ff_exec_core", n, instead)
}

// SeedKeys makes one execution for each of n keys of a limit of one.
func (o *ours) SeedKeys(ctx context.Context, n int) error {
	kind := Kind{Name: "keyed", Limits: []engine.Limit[Args]{engine.Concurrency[Args](1).Per("key", func(a Args) string { return fmt.Sprint(a.Num) })}}
	keyed := (&Worker{ours: o}).As("", kind)
	for num := 0; num < n; {
		jobs := make([]Job, min(engine.MaxBatch, n-num))
		for i := range jobs {
			jobs[i].Num, num = num, num+1
		}
		if err := keyed.Insert(ctx, jobs); err != nil {
			return err
		}
	}
	return nil
}

// Vacuum turns autovacuum of the tables with the most changes on or off.
func (o *ours) Vacuum(ctx context.Context, on bool) error {
	var statements []string
	for _, table := range []string{"ff_exec_core", "ffx_ready", "ff_attempt", "ffx_lease_timer", "ff_lease_event", "ff_completion_event"} {
		statements = append(statements, fmt.Sprintf("alter table %s set (autovacuum_enabled = %t)", table, on))
	}
	_, err := o.pool.Exec(ctx, strings.Join(statements, ";"), pgx.QueryExecModeSimpleProtocol)
	return err
}

// Sessions opens n idle sessions, and returns a function that closes them.
func (o *ours) Sessions(ctx context.Context, n int) (func() error, error) {
	var open []*pgx.Conn
	closeAll := func() error {
		for _, conn := range open {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
		return nil
	}
	for range n {
		conn, err := pgx.ConnectConfig(ctx, o.pool.Config().ConnConfig)
		if err != nil {
			return closeAll, err
		}
		open = append(open, conn)
	}
	return closeAll, nil
}
