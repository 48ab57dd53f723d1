package project

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

var (
	gooseName   = regexp.MustCompile(`^(\d+)_.*\.(sql|go)$`)
	gooseEnvsub = regexp.MustCompile(`(?mi)^--[ \t]*\+goose[ \t]+ENVSUB[ \t]+ON`)
)

// goose reads a migration with goose's annotations. A migration in Go is reported as unread.
func (r *reader) goose(name string) error {
	parts := gooseName.FindStringSubmatch(name)
	isGo := strings.HasSuffix(name, ".go")
	if strings.HasSuffix(name, "_test.go") || parts == nil && !isGo {
		return nil
	}
	text, err := r.text(name)
	if err != nil {
		return err
	}
	file := path.Join(r.dir, name)
	if isGo {
		if parts != nil || gooseInGo.MatchString(text) {
			r.unread(file, "a migration in Go: the databases are made without it; give --migrate-command to run it")
		}
		return nil
	}
	m := r.add(name, number(parts[1]), text)
	if gooseEnvsub.MatchString(text) {
		r.unread(file, "goose's environment variables are not replaced: give --migrate-command")
	}
	g := gooseFile{}
	if err := g.read(text); err != nil {
		r.Findings = append(r.Findings, report.Finding{
			Rule: rule.MigrationUnreadable.Name, Severity: report.Blocking, Place: report.Place{File: file, Line: g.line},
			Object: m.Version, Title: "goose cannot read the migration", Detail: err.Error(),
		})
		m.Up.Batches = nil
		return nil
	}
	m.Up = r.half(file, g.up, !g.bare, false)
	m.Down = r.half(file, g.down, !g.bare, false)
	return nil
}

// gooseFile is the content of a file with annotations.
type gooseFile struct {
	up, down []segment
	bare     bool // NO TRANSACTION

	half  *[]segment // where statements go: nil before Up
	block bool       // between StatementBegin and StatementEnd
	text  strings.Builder
	first int  // the line on which text begins
	sql   bool // text is more than comments
	line  int
}

// read splits a text as goose does: a statement ends with a semicolon at the end of a line, except between
// StatementBegin and StatementEnd.
func (g *gooseFile) read(text string) error {
	for line := range strings.Lines(text) {
		g.line++
		trimmed := strings.TrimSpace(line)
		comment := strings.HasPrefix(trimmed, "--")
		if comment && strings.Contains(line, "+goose") {
			if err := g.annotation(line); err != nil {
				return err
			}
			continue
		}
		if g.half == nil {
			if trimmed != "" && !comment {
				return errors.New("it has SQL before `-- +goose Up`")
			}
			continue
		}
		if trimmed == "" && g.text.Len() == 0 {
			continue
		}
		if g.text.Len() == 0 {
			g.first = g.line
		}
		g.text.WriteString(line)
		g.sql = g.sql || trimmed != "" && !comment
		if !g.block && g.sql && endsStatement(line) {
			g.end()
		}
	}
	switch {
	case g.half == nil:
		return errors.New("it has no line `-- +goose Up`")
	case g.block:
		return errors.New("`-- +goose StatementEnd` is missing")
	case g.sql:
		return errors.New("its last statement does not end with a semicolon")
	}
	return nil
}

func (g *gooseFile) annotation(line string) error {
	if strings.TrimLeft(line, " \t") != line {
		return errors.New("an annotation begins with a space")
	}
	_, name, _ := strings.Cut(line, "+goose")
	switch name = strings.ToUpper(strings.TrimSpace(name)); name {
	case "UP", "DOWN":
		if g.sql || g.block {
			return fmt.Errorf("the statement before `%s` is not ended", strings.TrimSpace(line))
		}
		if (name == "UP") != (g.half == nil) || g.half == &g.down {
			return fmt.Errorf("`%s` stands at the wrong place", strings.TrimSpace(line))
		}
		g.text.Reset()
		g.half = map[string]*[]segment{"UP": &g.up, "DOWN": &g.down}[name]
	case "STATEMENTBEGIN":
		if g.half == nil || g.block {
			return errors.New("`-- +goose StatementBegin` stands at the wrong place")
		}
		g.block = true
	case "STATEMENTEND":
		if !g.block {
			return errors.New("`-- +goose StatementEnd` stands at the wrong place")
		}
		g.block = false
		if g.sql {
			g.end()
		}
	case "NO TRANSACTION":
		g.bare = true
	case "ENVSUB ON", "ENVSUB OFF":
	default:
		return fmt.Errorf("`%s` is not an annotation of goose", strings.TrimSpace(line))
	}
	return nil
}

func (g *gooseFile) end() {
	*g.half = append(*g.half, segment{g.text.String(), g.first})
	g.text.Reset()
	g.sql = false
}

// endsStatement reports whether a line ends with a semicolon, apart from a comment.
func endsStatement(line string) bool {
	last := ""
	for _, word := range strings.Fields(line) {
		if strings.HasPrefix(word, "--") {
			break
		}
		last = word
	}
	return strings.HasSuffix(last, ";")
}
