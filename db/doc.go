// Package db is the SQL of the library as Go: a function for every statement of queries/, and a struct for every table
// and view of the schema. All but this file is generated: the files in sql/ are the files of queries/ with included
// passages written out, for sqlc to compile.
//
// # Use package engine instead
//
// Package engine calls the statements, and programs should use package engine. A transition is several statements in
// one transaction, with one order of locks and errors with a next step. A single statement can break the order.
//
// Two parts are useful beside the engine: the models, to read tables and views into, and the reading statements (Get…,
// Read…, List…). The comment of each statement has its users, its locks in their order, and the meaning of no row.
//
// # Calling a statement
//
// The connection is a parameter of every call, so one [Queries] serves a pool, a connection, a transaction and a
// savepoint: each is a [DBTX]. It holds no state, and [New] costs nothing. Names of tables are not qualified: the
// search_path of the connection chooses the schema. Times are milliseconds since the Unix epoch. The parameter NowMs is nil in programs, which means the database's clock.
//
// A statement for one row returns, if there is none, [github.com/jackc/pgx/v5.ErrNoRows].
//
//	q, flow := db.New(), db.GetFlowParams{PartitionKey: partition, FlowID: flowID}
//	before, err := q.GetFlow(ctx, pool, flow) // on its own
//	after, err := q.GetFlow(ctx, tx, flow)    // in a transaction, with its writes
//
// The views ffx_execution, ffx_attempt and ffx_flow have the data of the engine's reads in plain columns.
// [FfxExecution], [FfxAttempt] and [FfxFlow] are their rows. pgx scans into a model by name:
//
//	rows, err := pool.Query(ctx, `
//		SELECT id, kind, state, outcome, failure_reason, ended_at
//		FROM ffx_execution
//		WHERE (partition_key, execution_id) > ($1, $2)
//		ORDER BY partition_key, execution_id
//		LIMIT 100`, x.Partition(), x.UUID())
//	if err != nil {
//		return err
//	}
//	page, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[db.FfxExecution])
//
// # Compatibility
//
// The columns of the views keep their names, types and meanings, and new ones come after the last one. So name the
// columns in a query, as the example does. Tables with the prefix ff_ are shared with FlowFabric 0.15 and stay as
// they are. Nothing else is promised: statements, and tables with the prefix ffx_, may change in every version.
package db
