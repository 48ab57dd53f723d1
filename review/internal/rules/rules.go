package rules

import (
	"cmp"
	"slices"

	"github.com/flowfabric/flowfabric-go/review/internal/ddl"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// Check returns findings about the new migrations of head, and about changes to base's, ordered by place. target is the
// branch to merge into, as it is now: base itself, or a later commit if base is the commit where head began. Nil: base.
//
// Check skips a statement refused by the parser; the project's reader reports it.
func Check(base, head, target *project.Side) []report.Finding {
	if target == nil {
		target = base
	}
	found := released(base, head)
	found = append(found, versions(base, head, target)...)
	added := project.New(base, head)
	made := map[string]bool{}
	for _, m := range added {
		steps := parsed(m.Up)
		for _, s := range steps {
			for _, name := range s.Creates() {
				made[name] = true
			}
		}
		found = append(found, transactions(m, steps)...)
		found = append(found, leftOpen(m, steps)...)
		found = append(found, enums(m, steps)...)
		found = append(found, drops(steps)...)
		found = append(found, guesses(head, m, steps, made)...)
		down := parsed(m.Down)
		back := project.Migration{Tool: m.Tool, File: m.File, Up: m.Down}
		found = append(found, transactions(back, down)...)
		found = append(found, leftOpen(back, down)...)
	}
	slices.SortStableFunc(found, func(a, b report.Finding) int {
		return cmp.Or(a.Place.Compare(b.Place), cmp.Compare(a.Rule, b.Rule))
	})
	return found
}

// step is a statement of a migration as text and tree.
type step struct {
	project.Statement
	tree
}

type tree = ddl.Statement

func parsed(h project.Half) []step {
	var steps []step
	for _, s := range h.Statements {
		tree, err := ddl.Parse(s.SQL)
		if err != nil {
			continue
		}
		steps = append(steps, step{s, tree})
	}
	return steps
}
