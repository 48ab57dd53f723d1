package trust

import (
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// migration returns a migration without the statements that a review does not run. Lines stay where they are.
func (d *decisions) migration(side *project.Side, m project.Migration, read []piece) project.Migration {
	text := d.cleaned(m.Text, read)
	switch {
	case m.Tool == project.Dbmate && text != m.Text:
		return side.WithText(m, text)
	case m.Tool != project.Dbmate:
		m.Up, m.Down = d.half(m.Up), d.half(m.Down)
	}
	return m
}

func (d *decisions) half(h project.Half) project.Half {
	clean := func(sql string) string { return d.cleaned(sql, pieces(sql)) }
	h.SQL = clean(h.SQL)
	h.Batches = slices.Clone(h.Batches)
	for i := range h.Batches {
		h.Batches[i].SQL = clean(h.Batches[i].SQL)
	}
	kept := make([]project.Statement, 0, len(h.Statements))
	for _, s := range h.Statements {
		if s.SQL = clean(s.SQL); strings.TrimSpace(s.SQL) != "" {
			kept = append(kept, s)
		}
	}
	h.Statements = kept
	return h
}

// ownDowns are the parts of a way down that stands in a file of its own.
func ownDowns(m project.Migration) []project.Batch {
	return slices.DeleteFunc(slices.Clone(m.Down.Batches), func(b project.Batch) bool { return b.Place.File == m.File })
}

// downs returns the findings about them.
func (r *Reading) downs(d *decisions, m project.Migration, old bool) []report.Finding {
	var found []report.Finding
	for _, b := range ownDowns(m) {
		for _, p := range r.texts[b.SQL] {
			place := b.Place
			place.Line += strings.Count(b.SQL[:p.start], "\n")
			found = append(found, d.findings(p, place, old)...)
		}
	}
	return found
}
