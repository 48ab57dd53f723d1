package arguments

import (
	parser "github.com/pganalyze/pg_query_go/v6"
	pgquery "github.com/wasilibs/go-pgquery"
)

// Runnable reports whether a statement can be tried in a transaction of the review's session, and be undone. Refused
// are those that end the transaction, talk with the client, change the session's prepared statements, or run outside
// transactions. A text that the parser does not read is left to the server.
func Runnable(sql string) bool {
	tree, err := pgquery.Parse(sql)
	if err != nil {
		return true
	}
	if len(tree.Stmts) != 1 {
		return false
	}
	switch tree.Stmts[0].Stmt.GetNode().(type) {
	case *parser.Node_TransactionStmt, *parser.Node_DiscardStmt, *parser.Node_DeallocateStmt, *parser.Node_PrepareStmt,
		*parser.Node_ExecuteStmt, *parser.Node_CopyStmt, *parser.Node_VacuumStmt, *parser.Node_ClusterStmt,
		*parser.Node_CreatedbStmt, *parser.Node_DropdbStmt, *parser.Node_AlterSystemStmt, *parser.Node_CreateTableSpaceStmt,
		*parser.Node_DropTableSpaceStmt, *parser.Node_CheckPointStmt, *parser.Node_LoadStmt:
		return false
	}
	return true
}
