package project

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	parser "github.com/pganalyze/pg_query_go/v6"

	"github.com/flowfabric/flowfabric-go/review/internal/pgquery"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// silencing matches a comment accepting a finding, allowing the beginning of every such comment.
var (
	silencing = regexp.MustCompile(`^review:\s*allow\s+([a-z0-9-]+)\s+until\s+(\d{4}-\d{2}-\d{2})\s*:\s*(\S.*)$`)
	allowing  = regexp.MustCompile(`^review:`)
)

// split is the parser's result for a text. Both sides of a review have most texts in common.
type split struct {
	statements []Statement
	err        error
}

var splits sync.Map // by text; lines count from 0

// Split returns the statements of sql, whose first line is at a place.
func Split(sql string, first report.Place) ([]Statement, error) {
	known, found := splits.Load(sql)
	if !found {
		statements, err := parse(sql)
		known, _ = splits.LoadOrStore(sql, split{statements, err})
	}
	result := known.(split)
	placed := slices.Clone(result.statements)
	for i, s := range placed {
		placed[i].Place = report.Place{File: first.File, Line: first.Line + s.Place.Line}
		placed[i].Silence = slices.Clone(s.Silence)
		for j := range placed[i].Silence {
			placed[i].Silence[j].Place = report.Place{File: first.File, Line: first.Line + s.Silence[j].Place.Line}
		}
	}
	return placed, result.err
}

func parse(sql string) ([]Statement, error) {
	tree, err := pgquery.Parse(sql)
	if err != nil {
		return nil, err
	}
	scanned, err := pgquery.Scan(sql)
	if err != nil {
		return nil, err
	}
	lines := newLineIndex(sql)
	tokens := scanned.Tokens
	var statements []Statement
	for _, raw := range tree.Stmts {
		// The parser counts comments and space before a statement as its own.
		end := int(raw.StmtLocation + raw.StmtLen)
		if raw.StmtLen == 0 {
			end = len(sql)
		}
		start, last := -1, -1
		var silence []Silence
		for len(tokens) > 0 && int(tokens[0].Start) < end {
			token := tokens[0]
			tokens = tokens[1:]
			text := sql[token.Start:token.End]
			switch {
			case isComment(token):
				if start < 0 {
					silence = append(silence, readSilence(text, lines.of(int(token.Start)))...)
				}
			case start < 0 && text == ";":
			default:
				if start < 0 {
					start = int(token.Start)
				}
				last = int(token.End)
			}
		}
		if start < 0 {
			continue
		}
		statements = append(statements, Statement{
			SQL:     strings.TrimRight(sql[start:last], "; \t\n"),
			Place:   report.Place{Line: lines.of(start)},
			Silence: silence,
		})
	}
	return statements, nil
}

func isComment(token *parser.ScanToken) bool {
	return token.Token == parser.Token_SQL_COMMENT || token.Token == parser.Token_C_COMMENT
}

func readSilence(comment string, line int) []Silence {
	text := strings.TrimSpace(strings.TrimSuffix(strings.TrimLeft(comment, "-/*"), "*/"))
	if !allowing.MatchString(text) {
		return nil
	}
	place := report.Place{Line: line}
	if found := silencing.FindStringSubmatch(text); found != nil {
		return []Silence{{Rule: found[1], Until: found[2], Reason: strings.TrimSpace(found[3]), Place: place}}
	}
	return []Silence{{Reason: text, Place: place}}
}

// lineIndex holds the offsets at which the lines of a text begin.
type lineIndex []int

func newLineIndex(text string) lineIndex {
	index := lineIndex{0}
	for i := range len(text) {
		if text[i] == '\n' {
			index = append(index, i+1)
		}
	}
	return index
}

// of returns the line of an offset, from 0.
func (l lineIndex) of(offset int) int {
	line, found := slices.BinarySearch(l, offset)
	if !found {
		line--
	}
	return line
}
