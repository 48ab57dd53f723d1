package trust

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// Reading has the judgements about both sides of a review.
type Reading struct {
	base, head *project.Side
	texts      map[string][]piece // by text
	decided    *decisions         // by Clean
	// Roles are named in statements, Extensions created by statements.
	Roles, Extensions []string
}

// Read examines the statements of both sides: migrations, queries and dumps.
func Read(base, head *project.Side) *Reading {
	r := &Reading{base: base, head: head, texts: map[string][]piece{}}
	roles, extensions := map[string]bool{}, map[string]bool{}
	for _, side := range []*project.Side{base, head} {
		for _, sql := range textsOf(side) {
			if _, known := r.texts[sql]; known {
				continue
			}
			r.texts[sql] = pieces(sql)
			for _, p := range r.texts[sql] {
				for _, name := range p.roles {
					roles[name] = true
				}
				for _, e := range p.created {
					extensions[e.name] = true
				}
			}
		}
	}
	r.Roles, r.Extensions = slices.Sorted(maps.Keys(roles)), slices.Sorted(maps.Keys(extensions))
	return r
}

func textsOf(side *project.Side) []string {
	var texts []string
	for _, m := range side.Migrations {
		for _, b := range parts(m) {
			texts = append(texts, b.SQL)
		}
	}
	for _, q := range side.Queries {
		texts = append(texts, q.SQL)
	}
	if dump := dumpOf(side); dump != "" {
		texts = append(texts, dump)
	}
	return texts
}

// copied matches the rows of a table in a dump.
var copied = regexp.MustCompile(`(?ims)^COPY [^;]* FROM STDIN[^;\n]*;$.*?^\\\.$`)

// psqlCommand matches the commands for psql in a dump.
var psqlCommand = regexp.MustCompile(`(?m)^\\.*$`)

func dumpOf(side *project.Side) string {
	if side.Dump == "" {
		return ""
	}
	raw, err := os.ReadFile(filepath.Join(side.Dir, side.Dump))
	if err != nil {
		return "" // the part loading it reports the error
	}
	text := copied.ReplaceAllStringFunc(string(raw), func(rows string) string { return strings.Repeat("\n", strings.Count(rows, "\n")) })
	return psqlCommand.ReplaceAllString(text, "")
}

// decisions complete the judgements by facts about the server.
type decisions struct {
	ways map[string]database.Way
	tool map[string]bool // extensions created by the tool, and "schema NAME" for their schemas
}

// stays reports whether a statement is run.
func (d *decisions) stays(p piece) bool {
	return p.refused == "" && (p.notRun == "" || p.neutral) && !slices.ContainsFunc(p.altered, func(name string) bool { return d.tool[name] }) &&
		!slices.ContainsFunc(p.created, func(e extension) bool { return d.ways[e.name] != database.ByProject })
}

// Installs returns the extensions the tool's session has to create, in the order of base's statements and then head's.
// The first statement about one decides.
func (r *Reading) Installs(ways map[string]database.Way) []database.Extension {
	var list []database.Extension
	for _, side := range []*project.Side{r.base, r.head} {
		for _, sql := range textsOf(side) {
			for _, p := range r.texts[sql] {
				for _, e := range p.created {
					known := slices.ContainsFunc(list, func(known database.Extension) bool { return known.Name == e.name })
					if ways[e.name] == database.ByTool && !known {
						list = append(list, database.Extension{Name: e.name, Schema: e.schema, Version: e.version})
					}
				}
			}
		}
	}
	return list
}

// Clean returns both sides without the statements not to be run, and the findings about head's. In migrations unchanged
// since base they are notes.
func (r *Reading) Clean(ways map[string]database.Way) (base, head *project.Side, findings []report.Finding, err error) {
	d := &decisions{ways: ways, tool: map[string]bool{}}
	for _, e := range r.Installs(ways) {
		d.tool[e.Name] = true
		if e.Schema != "" {
			d.tool["schema "+e.Schema] = true
		}
	}
	r.decided = d
	if base, err = r.side(d, r.base); err != nil {
		return nil, nil, nil, err
	}
	if head, err = r.side(d, r.head); err != nil {
		return nil, nil, nil, err
	}
	before, now := byFile(r.base), byFile(r.head)
	for _, m := range r.head.Migrations {
		for _, b := range parts(m) {
			for _, p := range r.texts[b.SQL] {
				place := b.Place
				place.Line += strings.Count(b.SQL[:p.start], "\n")
				findings = append(findings, d.findings(p, place, before[place.File] == now[place.File])...)
			}
		}
	}
	for _, q := range r.head.Queries {
		before, known := r.base.Query(q.Name)
		for _, p := range r.texts[q.SQL] {
			findings = append(findings, d.findings(p, q.Place, known && before.SQL == q.SQL)...)
		}
	}
	if dump := dumpOf(r.head); dump != "" {
		same := dump == dumpOf(r.base)
		for _, p := range r.texts[dump] {
			if p.refused != "" { // dumps are full of statements about roles
				place := report.Place{File: r.head.Dump, Line: 1 + strings.Count(dump[:p.start], "\n")}
				findings = append(findings, d.findings(p, place, same)...)
			}
		}
	}
	return base, head, findings, nil
}

func (r *Reading) side(d *decisions, from *project.Side) (*project.Side, error) {
	side := *from
	side.Migrations, side.Queries = nil, nil
	for _, m := range from.Migrations {
		side.Migrations = append(side.Migrations, d.migration(from, m, r.texts[m.Text]))
	}
	for _, q := range from.Queries {
		if !slices.ContainsFunc(r.texts[q.SQL], func(p piece) bool { return !d.stays(p) }) {
			side.Queries = append(side.Queries, q)
		}
	}
	if dump := dumpOf(from); dump != "" {
		side.DumpText = d.cleaned(dump, r.texts[dump])
	}
	return &side, nil
}

func (d *decisions) findings(p piece, place report.Place, old bool) []report.Finding {
	f := report.Finding{
		Rule: rule.StatementRefused.Name, Severity: report.Blocking, Place: place, Object: brief(p.sql),
		Title:  "The review does not run the statement",
		Detail: "The statement " + p.refused + ". It was left out, so what follows from it is not part of the report.",
		Do:     "Leave it to the administrator of the server. If it is right, accept this finding at the statement, and review its effects yourself.",
	}
	for _, e := range p.created {
		if d.ways[e.name] == database.Failed {
			f.Detail = fmt.Sprintf("The review makes the extension %s itself, but the server does not create it with the schema and the version of the first statement about it. The statement was left out.", e.name)
			f.Do = "Correct the schema or the version, or use a server that has it."
			return []report.Finding{noted(f, old)}
		}
		if d.ways[e.name] == database.Refused {
			f.Detail = fmt.Sprintf("The extension %s needs a superuser, and is not one of those that the review creates. The statement was left out.", e.name)
			return []report.Finding{noted(f, old)}
		}
	}
	if p.refused != "" {
		return []report.Finding{noted(f, old)}
	}
	if old {
		return nil
	}
	f.Rule, f.Severity, f.Do = rule.StatementNotRun.Name, report.Note, ""
	switch {
	case p.input:
		f.Severity = report.Risk
		f.Detail = "The statement reads rows from the program that sends it, and a review sends none. It was left out, so the rows are missing."
		f.Do = "Use INSERT, or review the effects of the rows yourself."
	case p.notRun != "":
		f.Detail = "The statement " + p.notRun + ", which is outside the database. It was left out. The roles that it names exist in the review without any right."
	case p.kind != "CommentStmt" && slices.ContainsFunc(p.altered, func(name string) bool { return d.tool[name] }):
		f.Severity = report.Risk
		f.Detail = "The review itself made the extension, which needs a superuser. The statement changes or drops it, and was left out, so what follows from it is not part of the report."
		f.Do = "Review the effects of the statement yourself."
	default:
		return nil
	}
	return []report.Finding{f}
}

func noted(f report.Finding, old bool) report.Finding {
	if old {
		f.Severity = report.Note
	}
	return f
}

// brief is the beginning of a statement.
func brief(sql string) string {
	words := strings.Fields(sql)
	short := strings.Join(words[:min(len(words), 4)], " ")
	if runes := []rune(short); len(runes) > 60 {
		short = string(runes[:60])
	}
	return short
}
