package schema_test

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/schema"
)

// M26: the reference seeds partition counts that it does not use. They are written in its form and never read.
func TestPartitionCountsAreTheReferences_M26(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.CloneURL(t)
	conn := connect(t, databaseURL)
	got := scalar[string](t, conn, `
		SELECT concat_ws(' ', singleton_lock, num_flow_partitions, num_budget_partitions, num_quota_partitions, ff_version)
		FROM ff_partition_config`)
	if want := "t 256 256 256 0.7.0"; got != want {
		t.Errorf("ff_partition_config is %q, want %q", got, want)
	}
	exec(t, conn, "UPDATE ff_partition_config SET num_budget_partitions = 1")
	if err := schema.Check(t.Context(), conn, schema.Options{}); err != nil {
		t.Errorf("the counts were looked at: %v", err)
	}
}

// M27: the annotations of the reference end at 20 in a database of version 22.
func TestAnnotationsDecideNothing_M27(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.CloneURL(t)
	conn := connect(t, databaseURL)
	got := scalar[string](t, conn, `
		SELECT string_agg(version || ':' || name || ':' || backward_compatible, ' ' ORDER BY version)
		FROM ff_migration_annotation
		WHERE applied_at_ms > 1700000000000`)
	const want = "1:0001_initial:false 2:0002_budget:true 3:0003_dispatch_outbox:true 4:0004_suspend_signal:true " +
		"5:0005_timeout_scanners:true 6:0006_lease_event_outbox:true 7:0007_signal_event_outbox:true " +
		"8:0008_lease_event_instance_tag:true 9:0009_signal_event_instance_tag:true 10:0010_operator_event_outbox:true " +
		"11:0011_waitpoint_pending_extensions:true 12:0012_quota_policy:true 13:0013_budget_policy_extensions:true " +
		"14:0014_cancel_backlog:true 16:0016_started_at_ms:true 17:0017_claim_grant_table:true 19:0019_flow_summary:true " +
		"20:0020_budget_usage_by_exec:true"
	if got != want {
		t.Errorf("annotations\n%s\nwant\n%s", got, want)
	}
	exec(t, conn, "DELETE FROM ff_migration_annotation")
	if err := schema.Check(t.Context(), conn, schema.Options{}); err != nil {
		t.Errorf("the annotations were looked at: %v", err)
	}
}

// M33: unused objects of the reference exist all the same; a FlowFabric server and its later migrations expect them.
func TestUnusedObjectsOfTheReferenceAreKept_M33(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.CloneURL(t)
	conn := connect(t, databaseURL)
	for _, query := range []string{
		"SELECT partition_key, flow_id, downstream_eid, target_exec_id, reason, enqueued_at_ms FROM ff_cancel_dispatch_outbox",
		"SELECT satisfied_set FROM ff_suspension_current",
		"SELECT usage FROM ff_attempt",
		"SELECT condition FROM ff_waitpoint_pending",
		"SELECT policy_version FROM ff_edge",
		"SELECT requester, grace_until_ms FROM ff_cancel_backlog",
	} {
		exec(t, conn, query)
	}
	if n := scalar[int](t, conn, "SELECT count(*) FROM pg_proc WHERE proname LIKE 'ff\\_notify\\_%' AND pronamespace = current_schema()::regnamespace"); n != 5 {
		t.Errorf("%d notify functions of the reference, want 5", n)
	}
}

// A FlowFabric 0.15 server starts on this ledger: 21 rows, no 15, its own checksums.
func TestMigrateWritesFlowFabricsLedger(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.CloneURL(t)
	conn := connect(t, databaseURL)
	got := scalar[string](t, conn, `
		SELECT concat_ws(' ', count(*), min(version), max(version), bool_and(success), sum(execution_time), min(length(checksum)))
		FROM _sqlx_migrations
		WHERE version <> 15`)
	if want := "21 1 22 t 0 48"; got != want {
		t.Errorf("ledger %q, want %q", got, want)
	}
	state, err := schema.Status(t.Context(), databaseURL, schema.Options{})
	if err != nil || len(state.Warnings) != 0 {
		t.Errorf("warnings %q, %v: the checksums in the migration and in the check differ", state.Warnings, err)
	}
}
