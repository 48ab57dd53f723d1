package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"golang.org/x/term"
)

func (a *app) writeJSON(value any) error {
	encoder := json.NewEncoder(a.stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// newTable returns a table without lines, readable for people and awk.
func newTable(header table.Row) table.Writer {
	style := table.StyleLight
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Options = table.OptionsNoBordersAndSeparators
	t := table.NewWriter()
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	if header != nil {
		t.AppendHeader(header)
	}
	return t
}

// fact is a name and a value. A fact without a value is not shown.
type fact struct{ name, value string }

func renderFacts(facts []fact) string {
	t := newTable(nil)
	for _, f := range facts {
		if f.value != "" {
			t.AppendRow(table.Row{f.name, printable(f.value)})
		}
	}
	return t.Render() + "\n"
}

// printable returns text of unknown origin, quoted if a terminal could interpret a part of it.
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// timestamp renders an instant, or "" for the zero one.
func timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// isTerminal reports whether an input or output is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
