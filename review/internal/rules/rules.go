package rules

import (
	"cmp"
	"slices"

	"github.com/flowfabric/flowfabric-go/review/internal/ddl"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// Check returns what is to be said of the migrations of head that base does not have, and of what became of those that
// it has, ordered by place. target is the branch that the change goes to, as it stands now: base itself, or where base
// is the commit that head began at, what came after. Nil: base.
//
// A statement that the parser does not take is passed over; the project's reader reports it.
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
		found = append(found, enums(m, steps)...)
		found = append(found, drops(steps)...)
		found = append(found, guesses(head, m, steps, made)...)
		down := parsed(m.Down)
		found = append(found, transactions(project.Migration{File: m.File, Up: m.Down}, down)...)
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
