package transactions

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// flowHolds are the locks that an operation on a flow waits for, by kind.
var flowHolds = map[string]func(*testing.T, *fixture.Fixture, pgx.Tx, engine.Lease){
	"its flow": func(t *testing.T, _ *fixture.Fixture, tx pgx.Tx, l engine.Lease) {
		fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1))", fixture.OperationFlow(l))
	},
	"the row of its flow": func(t *testing.T, _ *fixture.Fixture, tx pgx.Tx, l engine.Lease) {
		flow := fixture.OperationFlow(l)
		fixture.ExecIn(t, tx, "SELECT FROM ff_flow_core WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", fixture.PartitionOf(flow), flow)
	},
	"its execution": func(t *testing.T, _ *fixture.Fixture, tx pgx.Tx, l engine.Lease) {
		fixture.LockExecution(t, tx, l.Execution)
	},
	"its attempt": func(t *testing.T, _ *fixture.Fixture, tx pgx.Tx, l engine.Lease) {
		fixture.LockAttempt(t, tx, l.Execution, 0)
	},
	"its group": func(t *testing.T, _ *fixture.Fixture, tx pgx.Tx, l engine.Lease) {
		flow := fixture.OperationFlow(l)
		fixture.ExecIn(t, tx, "SELECT FROM ff_edge_group WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", fixture.PartitionOf(flow), flow)
	},
	"the request": func(t *testing.T, _ *fixture.Fixture, tx pgx.Tx, l engine.Lease) {
		flow := fixture.OperationFlow(l)
		fixture.ExecIn(t, tx, "SELECT FROM ff_cancel_backlog WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", fixture.PartitionOf(flow), flow)
	},
}

// flowWaits are the holds that each of them waits for.
var flowWaits = map[string][]string{
	"grow a flow":                      {"its flow", "the row of its flow", "its execution"},
	"add a member":                     {"its flow", "the row of its flow", "its execution"},
	"stage an edge":                    {"its flow", "the row of its flow", "its execution"},
	"stage and apply an edge":          {"its flow", "the row of its flow", "its execution"},
	"apply an edge":                    {"its flow", "the row of its flow", "its execution", "its group"},
	"set the policy of a group":        {"its flow", "the row of its flow", "its execution"},
	"cancel a flow":                    {"its flow", "the row of its flow", "its execution", "its attempt", "its group"},
	"cancel what waits in a flow":      {"its flow", "the row of its flow", "its execution"},
	"close a flow":                     {"its flow", "the row of its flow"},
	"request that a flow is cancelled": {"its flow", "the row of its flow", "its execution", "its attempt", "its group"},
	"request it with grace":            {"its flow", "the row of its flow", "its execution", "its attempt"},
	"acknowledge a cancel":             {"the request"},
	"tag a flow":                       {"the row of its flow"},
	"tag a flow twice":                 {"the row of its flow"},
	"replay a member":                  {"its flow", "the row of its flow", "its execution", "its attempt", "its group"},
}
