package trust

import (
	"slices"
	"strings"

	pgquery "github.com/wasilibs/go-pgquery"

	"github.com/flowfabric/flowfabric-go/review/internal/syntax"
)

// piece is a statement of a text with its judgement.
type piece struct {
	judgement
	start, end int
	sql        string
	kind       string // of the tree
}

// pieces returns the statements of a text. A text that the parser does not read is one piece, in which words are
// searched.
func pieces(sql string) []piece {
	tree, err := syntax.Parse(sql)
	list, scanned := tokens(sql)
	if err != nil || !scanned {
		p := piece{end: len(sql), sql: sql}
		p.search(sql, false)
		return []piece{p}
	}
	var found []piece
	for _, raw := range syntax.List(syntax.At(tree, "stmts")) {
		from, _ := syntax.At(raw, "stmt_location").(float64)
		length, _ := syntax.At(raw, "stmt_len").(float64)
		to := int(from + length)
		if length == 0 {
			to = len(sql)
		}
		p := piece{start: -1, judgement: judge(syntax.At(raw, "stmt"))}
		for len(list) > 0 && list[0].start < to {
			if list[0].start >= int(from) && list[0].word != ";" {
				if p.start < 0 {
					p.start = list[0].start
				}
				p.end = list[0].end
			}
			list = list[1:]
		}
		if p.start < 0 {
			continue
		}
		p.sql = sql[p.start:p.end]
		if node, is := syntax.At(raw, "stmt").(map[string]any); is {
			for kind := range node {
				p.kind = kind
			}
		}
		found = append(found, p)
	}
	return found
}

// cleaned returns the text with the given pieces made harmless. Lines stay where they are.
func (d *decisions) cleaned(sql string, list []piece) string {
	for _, p := range slices.Backward(list) {
		now := p.sql
		switch {
		case p.refused == "" && p.neutral:
			now = neutralize(now)
		case d.stays(p):
			now = withOwn(sql, p)
			if p.kind == "CreateSchemaStmt" && d.tool[schemaOf(now)] && !strings.Contains(strings.ToUpper(now), "IF NOT EXISTS") {
				at := strings.Index(strings.ToUpper(now), "SCHEMA") + len("SCHEMA")
				now = now[:at] + " IF NOT EXISTS" + now[at:]
			}
		default:
			bare := []byte(now)
			blank(bare, 0, len(bare))
			now = string(bare)
		}
		sql = sql[:p.start] + now + sql[p.end:]
	}
	return sql
}

// schemaOf returns the key of d.tool for a CREATE SCHEMA statement.
func schemaOf(statement string) string {
	tree, err := syntax.Parse(statement)
	if err != nil {
		return ""
	}
	for _, raw := range syntax.List(syntax.At(tree, "stmts")) {
		return "schema " + text(raw, "stmt", "CreateSchemaStmt", "schemaname")
	}
	return ""
}

// withOwn returns the statement with CURRENT_USER for the names of owners.
func withOwn(sql string, p piece) string {
	now := p.sql
	slices.Sort(p.mine)
	for _, at := range slices.Backward(p.mine) {
		scanned, err := pgquery.Scan(sql[at:p.end])
		if err != nil || len(scanned.Tokens) == 0 || at < p.start {
			continue
		}
		name := int(scanned.Tokens[0].End)
		replacement := "CURRENT_USER"
		if p.kind == "CreateSchemaStmt" && schemaOf(p.sql) == "schema " {
			// The role's name is also the schema's.
			now = strings.TrimRight(now[:strings.LastIndex(strings.ToUpper(now[:at-p.start]), "AUTHORIZATION")], " ") + " " + now[at-p.start:at-p.start+name] + " AUTHORIZATION CURRENT_USER" + now[at-p.start+name:]
			continue
		}
		now = now[:at-p.start] + replacement + now[at-p.start+name:]
	}
	return now
}
