package docs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// A document is a parsed Markdown file. Its path counts from the root.
type document struct {
	path   string
	source []byte
	root   ast.Node
}

// passage is something in a document that a test judges.
type passage struct {
	text string
	line int
}

// codeBlock is a fenced block.
type codeBlock struct {
	passage
	language string
}

// documents returns every Markdown file of the project.
func documents(t *testing.T) []document {
	t.Helper()
	var paths []string
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	if len(paths) < 5 {
		t.Fatalf("%d documents", len(paths))
	}
	all := make([]document, len(paths))
	for i, path := range paths {
		all[i] = readDocument(t, strings.TrimPrefix(filepath.ToSlash(path), root+"/"))
	}
	return all
}

func readDocument(t *testing.T, path string) document {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM))
	return document{path: path, source: source, root: markdown.Parser().Parse(text.NewReader(source))}
}

// each calls visit for every node.
func (d document) each(visit func(ast.Node)) {
	_ = ast.Walk(d.root, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			visit(node)
		}
		return ast.WalkContinue, nil
	})
}

func (d document) at(offset int, text string) passage {
	return passage{text: text, line: 1 + bytes.Count(d.source[:offset], []byte("\n"))}
}

// offset is where a node's text begins.
func (d document) offset(node ast.Node) int {
	for n := node; n != nil; n = n.FirstChild() {
		if t, ok := n.(*ast.Text); ok {
			return t.Segment.Start
		}
		if n.Type() == ast.TypeBlock && n.Lines().Len() > 0 {
			return n.Lines().At(0).Start
		}
	}
	return 0
}

// plain is a node's text without marks.
func (d document) plain(node ast.Node) string {
	var out strings.Builder
	for n := node.FirstChild(); n != nil; n = n.NextSibling() {
		if t, ok := n.(*ast.Text); ok {
			out.Write(t.Segment.Value(d.source))
			if t.SoftLineBreak() {
				out.WriteByte(' ')
			}
			continue
		}
		out.WriteString(d.plain(n))
	}
	return out.String()
}

// code returns the text in backticks within a line.
func (d document) code() []passage {
	var spans []passage
	d.each(func(node ast.Node) {
		if span, ok := node.(*ast.CodeSpan); ok {
			spans = append(spans, d.at(d.offset(span), d.plain(span)))
		}
	})
	return spans
}

// blocks returns the fenced blocks.
func (d document) blocks() []codeBlock {
	var blocks []codeBlock
	d.each(func(node ast.Node) {
		fenced, ok := node.(*ast.FencedCodeBlock)
		if !ok || fenced.Lines().Len() == 0 {
			return
		}
		first, last := fenced.Lines().At(0), fenced.Lines().At(fenced.Lines().Len()-1)
		blocks = append(blocks, codeBlock{
			passage: d.at(first.Start, string(d.source[first.Start:last.Stop])), language: string(fenced.Language(d.source)),
		})
	})
	return blocks
}

// links returns where the document points to.
func (d document) links() []passage {
	var links []passage
	d.each(func(node ast.Node) {
		if link, ok := node.(*ast.Link); ok {
			links = append(links, d.at(d.offset(link), string(link.Destination)))
		}
	})
	return links
}

// pictures returns the files that the document shows, and the alternative text of each.
func (d document) pictures() map[string]string {
	pictures := make(map[string]string)
	d.each(func(node ast.Node) {
		if image, ok := node.(*ast.Image); ok {
			pictures[string(image.Destination)] = d.plain(image)
		}
	})
	return pictures
}

// anchors returns the possible link targets in the document, in GitHub's form.
func (d document) anchors() map[string]bool {
	anchors := make(map[string]bool)
	d.each(func(node ast.Node) {
		heading, ok := node.(*ast.Heading)
		if !ok {
			return
		}
		anchors[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, d.plain(heading))] = true
	})
	return anchors
}

// table returns the rows, without the head, of the tables whose first columns are called so.
func (d document) table(head ...string) (rows [][]string) {
	d.each(func(node ast.Node) {
		table, ok := node.(*extast.Table)
		if !ok {
			return
		}
		var cells [][]string
		for row := table.FirstChild(); row != nil; row = row.NextSibling() {
			var line []string
			for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
				line = append(line, strings.TrimSpace(d.plain(cell)))
			}
			cells = append(cells, line)
		}
		for i, name := range head {
			if i >= len(cells[0]) || cells[0][i] != name {
				return
			}
		}
		rows = append(rows, cells[1:]...)
	})
	return rows
}
