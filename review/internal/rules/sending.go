package rules

import (
	parser "github.com/pganalyze/pg_query_go/v6"

	"github.com/flowfabric/flowfabric-go/review/internal/ddl"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

// Sending follows the statements of a way: which share a transaction, and whether a lock_timeout is set.
type Sending struct {
	half    project.Half
	begun   bool // by the migration itself
	batch   int
	session bool  // lock_timeout of the session
	local   *bool // the transaction's; nil: the session's
}

// Follow begins before the first statement of a way.
func Follow(h project.Half) *Sending { return &Sending{half: h} }

// Next takes the next statement. It reports whether a transaction ended before the statement, or ends with it.
func (s *Sending) Next(statement project.Statement, tree ddl.Statement) (ended bool) {
	// A text without a transaction around it is one.
	ended = !s.half.Transaction && !s.begun && statement.Batch != s.batch
	s.batch = statement.Batch
	if kind, is := tree.Control(); is && !s.half.Transaction {
		switch kind {
		case parser.TransactionStmtKind_TRANS_STMT_BEGIN, parser.TransactionStmtKind_TRANS_STMT_START:
			s.begun = true
		case parser.TransactionStmtKind_TRANS_STMT_COMMIT, parser.TransactionStmtKind_TRANS_STMT_ROLLBACK:
			s.begun, ended = false, true
		}
	}
	if ended {
		s.local = nil
	}
	if setting, is := tree.Setting(); is && setting.Name == "lock_timeout" {
		if setting.Local {
			s.local = &setting.On
		} else {
			s.local, s.session = nil, setting.On
		}
	}
	return ended
}

// Timeout reports whether a lock_timeout is set for the next statement of the same transaction.
func (s *Sending) Timeout() bool {
	if s.local != nil {
		return *s.local
	}
	return s.session
}

// TimeoutAdvice is the advice about a lock awaited without a limit. PostgreSQL ignores SET LOCAL in a statement sent
// alone, outside of a transaction.
func TimeoutAdvice(tool project.Tool, h project.Half) string {
	set := "`SET LOCAL lock_timeout = '2s';`"
	switch tool {
	case project.Goose, project.Tern, project.Flyway, project.Atlas, project.Plain:
		if !h.Transaction {
			set = "`SET lock_timeout = '2s';` (`SET LOCAL` has no effect outside of a transaction)"
		}
	}
	return "Begin the migration with " + set + " and let the deployment repeat it when it fails."
}
