package schema

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Migration files have dbmate's form: comments, the line "-- migrate:up" followed by the statements to apply, and the
// line "-- migrate:down" followed by the statements to revert. Each half is sent unchanged, in one transaction.

const (
	upLine   = "-- migrate:up"
	downLine = "-- migrate:down"
)

// script is the content of a migration's file.
type script struct{ up, down block }

// block is one half of a script: the text after the directive.
type block struct {
	sql  string
	line int // line of the file where sql begins
}

var directive = regexp.MustCompile(`(?m)^--\s*migrate:(up|down)\b(.*)\n?`)

func readScript(m Migration) (script, error) {
	content, err := fs.ReadFile(migrations, "migrations/"+m.Name+".sql")
	if err != nil {
		return script{}, fmt.Errorf("schema: read migration: %w", err)
	}
	s, err := parseScript(string(content))
	if err != nil {
		return script{}, fmt.Errorf("schema: migration %s: %w", m.Name, err)
	}
	return s, nil
}

// parseScript parses a migration. It refuses features of dbmate unused by the migrations here: options, such as
// transaction:false, and more than one pair of directives.
func parseScript(content string) (script, error) {
	found := directive.FindAllStringSubmatchIndex(content, -1)
	if len(found) != 2 || content[found[0][2]:found[0][3]] != "up" || content[found[1][2]:found[1][3]] != "down" {
		return script{}, fmt.Errorf("it needs one line %q and below it one line %q", upLine, downLine)
	}
	up, down := found[0], found[1]
	for _, d := range found {
		if options := strings.TrimSpace(content[d[4]:d[5]]); options != "" {
			return script{}, fmt.Errorf("the options %q are not supported", options)
		}
	}
	for line := range strings.Lines(content[:up[0]]) {
		if text := strings.TrimSpace(line); text != "" && !strings.HasPrefix(text, "--") {
			return script{}, fmt.Errorf("there is a statement above the line %q", upLine)
		}
	}
	half := func(from, to int) block {
		return block{sql: content[from:to], line: 1 + strings.Count(content[:from], "\n")}
	}
	return script{up: half(up[1], down[0]), down: half(down[1], len(content))}, nil
}

// locate adds the file's line number to an error of a statement in b, if the server reports the position.
func (b block) locate(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	text := []rune(b.sql)
	if !ok || pgErr.Position < 1 || int(pgErr.Position) > len(text) {
		return err
	}
	before := string(text[:pgErr.Position-1])
	return fmt.Errorf("line %d: %w", b.line+strings.Count(before, "\n"), err)
}

// Statements on the ledger. The statements contain the values, for use in scripts too.

// makeLedger creates the table as dbmate does.
const makeLedger = "CREATE TABLE IF NOT EXISTS " + ledgerTable + " (version varchar PRIMARY KEY)"

const dropLedger = "DROP TABLE " + ledgerTable

func record(row string) string {
	return "INSERT INTO " + ledgerTable + " (version) VALUES (" + literal(row) + ")"
}

func unrecord(row string) string {
	return "DELETE FROM " + ledgerTable + " WHERE version = " + literal(row)
}

// literal quotes text, which contains no backslash.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
