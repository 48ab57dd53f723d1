package rules

import (
	"fmt"
	"strings"

	parser "github.com/pganalyze/pg_query_go/v6"

	"github.com/flowfabric/flowfabric-go/review/internal/ddl"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// transactions finds statements wrongly inside a transaction, and wrongly outside.
func transactions(m project.Migration, steps []step) []report.Finding {
	var found []report.Finding
	for _, s := range steps {
		if s.Outside() {
			switch {
			case m.Up.Transaction:
				found = append(found, report.Finding{
					Rule: rule.OutsideTransaction.Name, Severity: report.Blocking, Place: s.Place, Object: ddl.Brief(s.SQL),
					Title:  "PostgreSQL refuses the statement inside a transaction",
					Detail: "The migration is one transaction, so it fails on every database.",
					Do:     "Put the statement " + m.Tool.Alone() + ".",
				})
			case !m.Up.Alone(s.Statement):
				found = append(found, report.Finding{
					Rule: rule.ConcurrentlyNotAlone.Name, Severity: report.Blocking, Place: s.Place, Object: ddl.Brief(s.SQL),
					Title:  "The statement does not stand alone in its migration",
					Detail: m.Tool.Name() + " sends the statements of a migration as one text, and PostgreSQL runs that as one transaction, in which it refuses this statement.",
					Do:     m.Tool.Apart(),
				})
			}
			if index := s.Node.GetIndexStmt(); index.GetIfNotExists() {
				found = append(found, report.Finding{
					Rule: rule.ConcurrentlyIfNotExists.Name, Severity: report.Advice, Place: s.Place, Object: index.Idxname,
					Title:  "IF NOT EXISTS takes a broken index for a good one",
					Detail: "A build that fails leaves an invalid index, which no query uses and every write maintains. The second try finds its name and does nothing.",
					Do:     "Leave out `IF NOT EXISTS`, or begin with `DROP INDEX CONCURRENTLY IF EXISTS` in a migration before.",
				})
			}
		}
		if kind, is := s.Control(); is && m.Up.Transaction {
			switch kind {
			case parser.TransactionStmtKind_TRANS_STMT_SAVEPOINT, parser.TransactionStmtKind_TRANS_STMT_RELEASE, parser.TransactionStmtKind_TRANS_STMT_ROLLBACK_TO:
				continue
			}
			found = append(found, report.Finding{
				Rule: rule.TransactionEndedEarly.Name, Severity: report.Risk, Place: s.Place, Object: ddl.Brief(s.SQL),
				Title:  "The statement interferes with the migration's transaction",
				Detail: m.Tool.Name() + " has begun one. A failure after this statement leaves a database with half of the migration and no record of it.",
				Do:     "Take it out, or " + m.Tool.WithoutTransaction() + ".",
			})
		}
	}
	return found
}

// drops finds statements dropping objects without naming them.
func drops(steps []step) []report.Finding {
	var found []report.Finding
	for _, s := range steps {
		if dropped := s.Node.GetDropdbStmt(); dropped != nil {
			found = append(found, report.Finding{
				Rule: rule.DatabaseDropped.Name, Severity: report.Blocking, Place: s.Place, Object: dropped.Dbname,
				Title: fmt.Sprintf("The migration drops the database `%s`", dropped.Dbname), Do: rule.DatabaseDropped.Advice,
			})
		}
		cascades := s.Node.GetDropStmt().GetBehavior() == parser.DropBehavior_DROP_CASCADE ||
			s.Node.GetTruncateStmt().GetBehavior() == parser.DropBehavior_DROP_CASCADE
		for _, c := range s.Node.GetAlterTableStmt().GetCmds() {
			cascades = cascades || c.GetAlterTableCmd().GetBehavior() == parser.DropBehavior_DROP_CASCADE
		}
		if cascades {
			found = append(found, report.Finding{
				Rule: rule.DropCascade.Name, Severity: report.Risk, Place: s.Place, Object: strings.Join(s.Names(), ", "),
				Title:  "CASCADE removes objects that are not named",
				Detail: "The dependent objects differ from database to database: views, keys and triggers of others are dropped too.",
				Do:     "Name the dropped objects, dependants first, without `CASCADE`.",
			})
		}
	}
	return found
}
