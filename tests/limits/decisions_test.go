package limits

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/internal/gate"
)

// No limit is ever exceeded by executions that fit it, nothing is held by those that wait, and each waits for a limit or a
// budget that it has, which is full then.
func TestDecisionsKeepLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := gate.State{Limits: make(map[gate.ID]*gate.Limit), Exhausted: make(map[gate.ID]bool)}
		limits, budgets := []gate.ID{{1}, {2}, {3}}, []gate.ID{{11}, {12}}
		for _, l := range limits {
			if rapid.Float64().Draw(t, "busy") > 0.1 {
				s.Limits[l] = &gate.Limit{Concurrent: rapid.Int64Range(gate.None, 4).Draw(t, "concurrent"), Starts: rapid.Int64Range(gate.None, 4).Draw(t, "starts")}
			}
		}
		for _, b := range budgets {
			s.Exhausted[b] = rapid.Bool().Draw(t, "exhausted")
		}
		taken := make(map[gate.ID]int64)
		for range rapid.IntRange(1, 10).Draw(t, "executions") {
			var w gate.Waiting
			for _, l := range limits {
				if rapid.Bool().Draw(t, "uses") {
					w.Uses = append(w.Uses, gate.Use{Limit: l, Units: rapid.Int64Range(1, 3).Draw(t, "units")})
				}
			}
			for _, b := range budgets {
				if rapid.Bool().Draw(t, "within") {
					w.Budgets = append(w.Budgets, b)
				}
			}
			at := slices.Clone(w.Budgets)
			for _, u := range w.Uses {
				at = append(at, u.Limit)
			}
			if len(at) == 0 {
				continue
			}
			w.At = rapid.SampledFrom(at).Draw(t, "at")
			before := make(map[gate.ID]gate.Limit)
			for id, l := range s.Limits {
				before[id] = *l
			}
			d := s.Decide(w)
			switch d.Verb {
			case gate.Admit:
				for _, u := range w.Uses {
					l := before[u.Limit]
					if taken[u.Limit] += u.Units; l.NeedsCount(u.Units) {
						t.Fatalf("admitted to the full limit %+v", l)
					}
				}
			case gate.Move:
				if d.To == w.At || !slices.Contains(at, d.To) || d.Budget != slices.Contains(budgets, d.To) {
					t.Fatalf("moved to %v of %+v", d.To, w)
				}
			}
			for id, l := range s.Limits {
				if l.Held != taken[id] || l.Started != taken[id] {
					t.Fatalf("%v is %+v, want %d taken of %v", id, *l, taken[id], maps.Collect(maps.All(taken)))
				}
			}
		}
	})
}
