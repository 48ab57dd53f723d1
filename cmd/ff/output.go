package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

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

// escapeControls escapes the characters of a text that a terminal could interpret, but no line breaks and tabs.
func escapeControls(text []byte) []byte {
	return escapeRunes(text, func(r rune) string {
		if !unicode.IsControl(r) || r == '\n' || r == '\t' {
			return ""
		}
		return strings.Trim(strconv.QuoteRune(r), "'")
	})
}

// escapeInJSON escapes the characters of a JSON text that a terminal could interpret. The JSON stays equivalent.
func escapeInJSON(text []byte) []byte {
	return escapeRunes(text, func(r rune) string {
		if r < 0x7f || !unicode.IsControl(r) {
			return "" // JSON has no others
		}
		return fmt.Sprintf("\\u%04x", r)
	})
}

// escapeRunes replaces the characters of a text for which escape returns something.
func escapeRunes(text []byte, escape func(rune) string) []byte {
	escaped := make([]byte, 0, len(text))
	for _, r := range string(text) {
		if e := escape(r); e != "" {
			escaped = append(escaped, e...)
		} else {
			escaped = utf8.AppendRune(escaped, r)
		}
	}
	return escaped
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
