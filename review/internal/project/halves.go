package project

import (
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// Batch is a text the tool sends at once. PostgreSQL runs several statements in a batch as one transaction.
type Batch struct {
	SQL   string
	Place report.Place // of its first line
}

// segment is a part of a file, from a line on.
type segment struct {
	sql  string
	line int
}

// half makes a way up or down of segments, which the tool sends one after the other. If the tool sends each statement
// alone, the only segment is split.
func (s *Side) half(file string, segments []segment, transaction, oneByOne bool) Half {
	h := Half{Transaction: transaction}
	for i, part := range segments {
		place := report.Place{File: file, Line: part.line}
		statements := s.readStatements(place, part.sql)
		for j := range statements {
			statements[j].Batch = i
		}
		h.SQL += part.sql
		h.Statements = append(h.Statements, statements...)
		h.Batches = append(h.Batches, Batch{part.sql, place})
	}
	if oneByOne {
		h.separate()
	}
	return h
}

// separate makes each statement a batch of its own, outside of a transaction. A text the parser does not split stays
// one batch.
func (h *Half) separate() {
	h.Transaction = false
	if len(h.Statements) == 0 {
		return
	}
	h.Batches = h.Batches[:0:0]
	for i, statement := range h.Statements {
		h.Statements[i].Batch = i
		h.Batches = append(h.Batches, Batch{statement.SQL, statement.Place})
	}
}

// In returns the statements of a batch.
func (h Half) In(batch int) []Statement {
	var in []Statement
	for _, s := range h.Statements {
		if s.Batch == batch {
			in = append(in, s)
		}
	}
	return in
}

// Alone reports whether the tool sends the statement with no other, outside of a transaction.
func (h Half) Alone(s Statement) bool { return !h.Transaction && len(h.In(s.Batch)) == 1 }

// Separate reports whether the statements are sent one by one, so each is a transaction of its own.
func (h Half) Separate() bool {
	return !h.Transaction && len(h.Statements) > 0 && len(h.Batches) == len(h.Statements)
}

// readComments reads the declarations in the comments of a file.
func (m *Migration) readComments(text string) {
	if found := usableFrom.FindStringSubmatch(text); found != nil {
		m.Usable = found[1]
	}
	if found := irreversible.FindStringSubmatch(text); found != nil {
		m.Irreversible = strings.TrimSpace(found[1])
	}
}

// readStatements splits a text into statements, or reports the parser's refusal.
func (s *Side) readStatements(place report.Place, sql string) []Statement {
	statements, err := Split(sql, place)
	if err != nil {
		s.Findings = append(s.Findings, report.Finding{
			Rule: rule.MigrationUnreadable.Name, Severity: report.Blocking, Place: place,
			Title: "The parser cannot read the migration", Detail: err.Error(),
			Do: "Correct the statement. One that a newer PostgreSQL than the parser's knows cannot be reviewed.",
		})
	}
	return statements
}
