package trust

import (
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// migration returns a migration without the statements not to be run. Lines stay where they are.
func (d *decisions) migration(side *project.Side, m project.Migration, read []piece) project.Migration {
	if m.Tool != project.Dbmate {
		m.Up, m.Down = d.half(m.Up), d.half(m.Down)
		return m
	}
	if text := d.cleaned(m.Text, read); text != m.Text {
		return side.WithText(m, text)
	}
	return m
}

func (d *decisions) half(h project.Half) project.Half {
	clean := func(sql string) string { return d.cleaned(sql, pieces(sql)) }
	h.SQL = clean(h.SQL)
	batches, index := make([]project.Batch, 0, len(h.Batches)), make([]int, len(h.Batches))
	for i, b := range h.Batches {
		before := b.SQL
		b.SQL = clean(before)
		index[i] = len(batches)
		if b.SQL == before || len(pieces(b.SQL)) > 0 { // otherwise nothing is left
			batches = append(batches, b)
		}
	}
	h.Batches = batches
	kept := make([]project.Statement, 0, len(h.Statements))
	for _, s := range h.Statements {
		s.Batch = index[s.Batch]
		if s.SQL = clean(s.SQL); strings.TrimSpace(s.SQL) != "" {
			kept = append(kept, s)
		}
	}
	h.Statements = kept
	return h
}

// parts are the texts of a migration. dbmate's is one, which is executed as it is.
func parts(m project.Migration) []project.Batch {
	if m.Tool == project.Dbmate {
		return []project.Batch{{SQL: m.Text, Place: report.Place{File: m.File, Line: 1}}}
	}
	return slices.Concat(m.Up.Batches, m.Down.Batches)
}

// byFile returns the texts of a side's migrations by file.
func byFile(side *project.Side) map[string]string {
	texts := map[string]string{}
	for _, m := range side.Migrations {
		for _, b := range parts(m) {
			texts[b.Place.File] += b.SQL + "\x00"
		}
	}
	return texts
}
