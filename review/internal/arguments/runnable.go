package arguments

import (
	parser "github.com/pganalyze/pg_query_go/v6"

	"github.com/flowfabric/flowfabric-go/review/internal/pgquery"
	"github.com/flowfabric/flowfabric-go/review/internal/syntax"
)

// Columns returns the columns beside the parameters of a statement, by the parameters' numbers from 1, and the
// relations it names. Both are empty for a text the parser does not read.
func Columns(sql string) (columns map[int]string, relations []string) {
	tree, err := syntax.Parse(sql)
	if err != nil {
		return nil, nil
	}
	return besides(tree), syntax.Relations(tree)
}

// Runnable reports whether a statement can be tried in a transaction of the review's session, and be undone. Refused
// are those that end the transaction, talk with the client, change the session's prepared statements, or run outside
// transactions. A text the parser does not read is left to the server.
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
