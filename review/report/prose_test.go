package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"

	"github.com/flowfabric/flowfabric-go/review/report"
)

// hostile are names that PostgreSQL, a header of a query or a message of the server may have.
var hostile = []string{
	"x\n\n<!--", "x\r\n\r\n<!--", "x<details>", "x` <details> `y", "x``<!--", "x\\` <details> \\`", "x\n\n```\n<!--", "x\n\n~~~\n",
	"@org/team", "`@org/team`", "x\n@org", "|<b>|", "\\<b>",
}

// named is a report with the name in every text, as rules write it: in a code span, and as it is.
func named(name string) *report.Report {
	r := sample()
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Title, f.Detail, f.Do = "No query uses "+name, "It is on `"+name+"`.\n- "+name, "Drop "+name+"."
		if f.Silenced != "" {
			f.Silenced = "no query uses " + name
		}
	}
	m := report.Measured{
		Locks: []report.Lock{{Relation: name, Mode: "ShareLock"}}, Rewrites: []string{name}, Scans: []string{name},
		Waiting: []report.Waiting{{Query: name, Operations: []string{name}}},
	}
	r.Findings[1].Measured = &m
	r.Statements = []report.Statement{{Place: report.Place{File: name, Line: 1}, SQL: "DROP TABLE " + name, Measured: m}}
	for _, list := range [][]report.Change{r.Catalog, r.API, r.Plans} {
		list[0].Object, list[0].After, list[0].Details = name, name, name
	}
	r.Base, r.Head, r.Dir, r.Declared, r.Migrations = name, name, name, name, []string{name}
	r.NotRead, r.NotSeeded, r.Skipped = []string{name}, []string{name + ": refused by " + name}, []string{"relation " + name + " does not exist"}
	return r
}

// raw returns the HTML that a code host takes from a report, and its text outside code.
func raw(t *testing.T, r *report.Report) (html, plain string) {
	t.Helper()
	var b bytes.Buffer
	if err := report.WriteMarkdown(&b, r, report.Blocking); err != nil {
		t.Fatal(err)
	}
	source := b.Bytes()
	var tags, words strings.Builder
	document := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	err := ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.CodeSpan, *ast.FencedCodeBlock, *ast.CodeBlock:
			return ast.WalkSkipChildren, nil
		case *ast.HTMLBlock:
			tags.Write(n.Lines().Value(source))
			if n.HasClosure() {
				tags.Write(n.ClosureLine.Value(source))
			}
		case *ast.RawHTML:
			tags.Write(n.Segments.Value(source))
		case *ast.Text:
			words.Write(n.Segment.Value(source))
			words.WriteString("\n")
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(tags.String(), "@<!-- -->", ""), words.String()
}

func TestNamesHideNothingOfTheComment(t *testing.T) {
	want, _ := raw(t, named("x"))
	if !strings.Contains(want, "Not looked at (1)") {
		t.Fatalf("the HTML of a report is %q", want)
	}
	for _, name := range hostile {
		html, plain := raw(t, named(name))
		if html = strings.ReplaceAll(html, "<!-- -->", ""); html != want {
			t.Errorf("%q changes the HTML of the report:\n%s", name, html)
		}
		if strings.Contains(plain, "@org") {
			t.Errorf("%q mentions an account:\n%s", name, plain)
		}
	}
}

func TestCodeShowsNamesOnOneLine(t *testing.T) {
	for name, want := range map[string]string{"a": "`a`", "a`b": "`` a`b ``", "a\n\nb": "`a b`", "a  b": "`a  b`"} {
		if got := report.Code(name); got != want {
			t.Errorf("%q is shown as %q", name, got)
		}
	}
}
