package trust

import (
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/syntax"
)

// piece is a statement of a text with its result.
type piece struct {
	judgement
	start, end int
	sql        string
	kind       string // of the tree
}

// pieces returns the statements of a text. If the parser does not read the text, it is one piece, searched by words.
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
		now, harmless := p.sql, d.stays(p)
		switch {
		case harmless && p.neutral:
			now, harmless = neutralize(now)
		case harmless:
			now = d.edited(p)
		}
		if !harmless {
			bare := []byte(p.sql)
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

// edit replaces a part of a statement.
type edit struct {
	from, to int
	text     string
}

// edited returns the statement with CURRENT_USER for the names of owners, and IF NOT EXISTS for a schema made by the
// tool.
func (d *decisions) edited(p piece) string {
	list, scanned := tokens(p.sql)
	if !scanned {
		return p.sql
	}
	var edits []edit
	if schema := schemaOf(p.sql); p.kind == "CreateSchemaStmt" && d.tool[schema] && len(list) > 2 && list[2].word != "if" {
		edits = append(edits, edit{list[1].end, list[1].end, " IF NOT EXISTS"})
	}
	for i, t := range list {
		if !slices.Contains(p.mine, p.start+t.start) {
			continue
		}
		if p.kind == "CreateSchemaStmt" && i > 0 && schemaOf(p.sql) == "schema " {
			// The role's name is also the schema's.
			from := list[i-1].start
			lines := strings.Repeat("\n", strings.Count(p.sql[from:t.start], "\n"))
			edits = append(edits, edit{from, t.end, lines + p.sql[t.start:t.end] + " AUTHORIZATION CURRENT_USER"})
			continue
		}
		edits = append(edits, edit{t.start, t.end, "CURRENT_USER"})
	}
	now := p.sql
	for _, e := range slices.Backward(edits) {
		now = now[:e.from] + e.text + now[e.to:]
	}
	return now
}
