package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	parser "github.com/pganalyze/pg_query_go/v6"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// enums checks changes of enumerations invisible in a database: the names used by programs, and the rules of
// transactions.
func enums(m project.Migration, steps []step) []report.Finding {
	var found []report.Finding
	added := map[string]bool{} // values
	made := map[string]bool{}  // types, whose values PostgreSQL 17 lets be used at once; an older server refuses by itself
	batch, begun := 0, false
	for _, s := range steps {
		// A text without a transaction around it is one as well, up to a COMMIT of its own. After BEGIN the transaction
		// continues in the following texts. COMMIT AND CHAIN begins the next.
		kind, is := s.Control()
		ends := is && slices.Contains(transactionEnds, kind)
		if !m.Up.Transaction && (ends || s.Batch != batch && !begun) {
			clear(added)
			clear(made)
		}
		begins := is && slices.Contains(transactionBegins, kind) || ends && s.Node.GetTransactionStmt().GetChain()
		batch, begun = s.Batch, begins || begun && !ends
		for _, value := range slices.Sorted(maps.Keys(added)) {
			if mentions(s, value) {
				found = append(found, report.Finding{
					Rule: rule.EnumValueUsedAtOnce.Name, Severity: report.Blocking, Place: s.Place, Object: value,
					Title:  fmt.Sprintf("The value %s is used by the transaction that adds it", report.Code(value)),
					Detail: "PostgreSQL refuses that: \"unsafe use of new value\".",
					Do:     "Use it in a migration of its own, after the one that adds it.",
				})
			}
		}
		if created := s.Node.GetCreateEnumStmt(); created != nil {
			made[typeName(created.TypeName)] = true
		}
		e := s.Node.GetAlterEnumStmt()
		switch {
		case e.GetOldVal() != "":
			found = append(found, report.Finding{
				Rule: rule.EnumValueRenamed.Name, Severity: report.Blocking, Place: s.Place, Object: e.OldVal,
				Title:  fmt.Sprintf("The value %s gets another name", report.Code(e.OldVal)),
				Detail: fmt.Sprintf("Programs of before send `%s`, which is refused from now on, and do not know `%s`.", e.OldVal, e.NewVal),
				Do:     "Add the new value, move the programs and then the rows to it, and leave the old one unused.",
			})
		case e.GetNewVal() != "" && !made[typeName(e.TypeName)]:
			added[e.NewVal] = true
		}
	}
	return found
}

var (
	transactionBegins = []parser.TransactionStmtKind{parser.TransactionStmtKind_TRANS_STMT_BEGIN, parser.TransactionStmtKind_TRANS_STMT_START}
	transactionEnds   = []parser.TransactionStmtKind{parser.TransactionStmtKind_TRANS_STMT_COMMIT, parser.TransactionStmtKind_TRANS_STMT_ROLLBACK}
)

// typeName returns the name of a type without its schema: statements name the same type with and without the schema.
func typeName(parts []*parser.Node) string {
	if len(parts) == 0 {
		return ""
	}
	return parts[len(parts)-1].GetString_().GetSval()
}

func mentions(s step, value string) bool {
	for _, word := range words(s.SQL) {
		if strings.Trim(word, "'") == value && strings.HasPrefix(word, "'") {
			return s.Node.GetAlterEnumStmt() == nil
		}
	}
	return false
}
