package rules

import (
	parser "github.com/pganalyze/pg_query_go/v6"

	"github.com/flowfabric/flowfabric-go/review/internal/ddl"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// leftOpen finds a transaction begun but not ended by a migration, unless the tool's own transaction is around.
func leftOpen(m project.Migration, steps []step) []report.Finding {
	var open *step
	for _, s := range steps {
		switch kind, is := s.Control(); {
		case !is:
		case kind == parser.TransactionStmtKind_TRANS_STMT_BEGIN, kind == parser.TransactionStmtKind_TRANS_STMT_START:
			open = &s
		case kind == parser.TransactionStmtKind_TRANS_STMT_COMMIT, kind == parser.TransactionStmtKind_TRANS_STMT_ROLLBACK,
			kind == parser.TransactionStmtKind_TRANS_STMT_PREPARE:
			open = nil
		}
	}
	if open == nil || m.Up.Transaction {
		return nil
	}
	return []report.Finding{{
		Rule: rule.TransactionLeftOpen.Name, Severity: report.Blocking, Place: open.Place, Object: ddl.Brief(open.SQL),
		Title:  "The migration ends with its transaction open",
		Detail: "The connection is closed without a commit: the database keeps nothing of it, or only the record that it ran.",
		Do:     rule.TransactionLeftOpen.Advice,
	}}
}
