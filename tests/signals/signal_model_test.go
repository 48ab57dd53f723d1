package signals

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A wanted condition is one that the model understands, with its counterpart.
type wanted struct {
	kind    string // one, all, any, signals, sources
	names   []string
	n       int
	members []wanted
}

func (w wanted) condition() engine.Condition {
	var members []engine.Condition
	for _, m := range w.members {
		members = append(members, m.condition())
	}
	switch w.kind {
	case "all":
		return engine.AllOf(members...)
	case "any":
		return engine.AnyOf(members...)
	case "signals":
		return engine.AtLeast(w.n, engine.DistinctSignals, w.names[0])
	case "sources":
		return engine.AtLeast(w.n, engine.DistinctSources, w.names[0])
	}
	return engine.Received(w.names[0])
}

func (w wanted) takes(name string) bool {
	return slices.Contains(w.names, name) || slices.ContainsFunc(w.members, func(m wanted) bool { return m.takes(name) })
}

// received is a signal of the model.
type received struct {
	id           id.SignalID
	name, source string
	used         bool
}

// satisfiedBy returns the signals that satisfy the condition, or false.
func (w wanted) satisfiedBy(signals []*received) (by []*received, ok bool) {
	if len(w.members) > 0 {
		for _, m := range w.members {
			members, met := m.satisfiedBy(signals)
			if !met && w.kind == "all" {
				return nil, false
			}
			if met {
				by, ok = append(by, members...), true
			}
		}
		return by, ok
	}
	distinct := make(map[string]bool)
	for i, s := range signals {
		if s.used || s.name != w.names[0] {
			continue
		}
		by = append(by, s)
		if w.kind == "sources" {
			distinct[s.source] = true
		} else {
			distinct[fmt.Sprint(i)] = true
		}
	}
	switch {
	case len(by) == 0 || len(distinct) < w.n:
		return nil, false
	case w.kind == "one":
		return by[:1], true
	}
	return by, true
}

var wantedConditions = rapid.Custom(func(t *rapid.T) wanted {
	return drawWanted(t, 2)
})

func drawWanted(t *rapid.T, depth int) wanted {
	kinds := []string{"one", "one", "signals", "sources"}
	if depth > 0 {
		kinds = append(kinds, "all", "any")
	}
	w := wanted{kind: rapid.SampledFrom(kinds).Draw(t, "kind"), n: 1}
	switch w.kind {
	case "all", "any":
		for range rapid.IntRange(1, 3).Draw(t, "members") {
			w.members = append(w.members, drawWanted(t, depth-1))
		}
	case "signals", "sources":
		w.n = rapid.IntRange(1, 2).Draw(t, "n")
		fallthrough
	default:
		w.names = []string{rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")}
	}
	return w
}

// Signals, waits, timeouts, resumes and cancels in any order have the effects of a model that keeps all signals in one
// list: each is used once, none is lost, and no wait ends twice.
func TestSignalsFollowTheModel(t *testing.T) {
	f := fixture.NewCloned(t)
	fixture.Check(t, func(rt *rapid.T) {
		l := f.Start(t).Lease
		defer func() { // leave the lane empty
			_ = f.CancelExecution(t.Context(), engine.CancelSpec{ID: l.Execution})
		}()
		phase := "running"
		var waits *wanted
		var signals []*received
		until := time.Time{}
		check := func(err error, what string) {
			if err != nil {
				rt.Fatalf("%s: %v", what, err)
			}
		}
		satisfy := func() bool {
			by, ok := waits.satisfiedBy(signals)
			for _, s := range by {
				s.used = true
			}
			return ok
		}
		send := func(s *received, want string) {
			signalled, err := f.Engine.Signal(t.Context(), engine.SignalSpec{Execution: l.Execution, Name: s.name, ID: s.id, SourceType: "user", Source: s.source})
			got := string(signalled.Effect)
			switch {
			case errors.Is(err, engine.ErrEnded):
				got = "ended"
			case err != nil:
				got = err.Error()
			case signalled.Duplicate:
				got = "duplicate"
			}
			if got != want {
				rt.Fatalf("signal %s of %s: %s, want %s", s.name, s.source, got, want)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"send": func(rt *rapid.T) {
				s := &received{
					id: id.NewSignalID(), name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "name"),
					source: rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "source"),
				}
				if phase == "ended" {
					send(s, "ended")
					return
				}
				signals = append(signals, s)
				switch {
				case phase != "suspended" || !waits.takes(s.name) || !f.Time().Before(until):
					send(s, "buffered")
				case satisfy():
					send(s, "satisfied")
					phase = "ready"
				default:
					send(s, "appended")
				}
			},
			"send again": func(rt *rapid.T) {
				if len(signals) == 0 {
					rt.Skip()
				}
				send(rapid.SampledFrom(signals).Draw(rt, "earlier"), "duplicate")
			},
			"suspend": func(rt *rapid.T) {
				if phase != "running" {
					rt.Skip()
				}
				w := wantedConditions.Draw(rt, "condition")
				waits = &w
				until = f.Time().Add(time.Hour)
				got, err := f.Engine.Suspend(t.Context(), engine.SuspendSpec{Lease: l, Condition: w.condition(), Timeout: time.Hour})
				check(err, "suspend")
				want := satisfy()
				if got.Satisfied != want {
					rt.Fatalf("satisfied at once: %v, want %v", got.Satisfied, want)
				}
				if !want {
					phase = "suspended"
				}
			},
			"claim": func(rt *rapid.T) {
				if phase != "ready" {
					rt.Skip()
				}
				l = f.ClaimOne(t).Lease
				phase = "running"
			},
			"resume": func(rt *rapid.T) {
				err := f.Engine.Resume(t.Context(), l.Execution, 0)
				if phase != "suspended" {
					if !errors.Is(err, engine.ErrNotSuspended) {
						rt.Fatalf("resume: %v", err)
					}
					return
				}
				check(err, "resume")
				phase = "ready"
			},
			"time out": func(rt *rapid.T) {
				f.Advance(time.Hour)
				if phase == "running" { // its lease has ended
					fixture.Run(t, f.Maintenance().ExpireLeases, 1)
					phase = "ready"
				}
				n, err := f.Maintenance().ExpireWaits(t.Context(), 100)
				check(err, "expire")
				if want := map[bool]int{true: 1}[phase == "suspended"]; n != want {
					rt.Fatalf("%d waits timed out, want %d", n, want)
				}
				if phase == "suspended" {
					phase = "ready"
				}
			},
			"cancel": func(rt *rapid.T) {
				if phase == "ended" || rapid.IntRange(0, 9).Draw(rt, "rarely") > 0 {
					rt.Skip()
				}
				check(f.CancelExecution(t.Context(), engine.CancelSpec{ID: l.Execution}), "cancel")
				phase = "ended"
			},
			"": func(rt *rapid.T) {
				stored := f.Stored(t, l.Execution)
				want := map[string]string{"running": "active", "ready": "runnable", "suspended": "suspended", "ended": "cancelled"}[phase]
				if got, _, _ := strings.Cut(stored.State, " "); got != want {
					rt.Fatalf("%s, want %s", stored.State, want)
				}
				if phase == "ended" {
					return
				}
				known, err := f.ReceivedSignals(t.Context(), l.Execution)
				check(err, "read")
				used := 0
				for _, s := range known {
					at := slices.IndexFunc(signals, func(r *received) bool { return r.id == s.ID })
					if at < 0 && !s.TimedOut(nil) && s.Key != "__timeout__" {
						rt.Fatalf("%+v was never sent", s)
					}
					if at >= 0 && signals[at].used != s.Matched {
						rt.Fatalf("signal %d: used %v, stored as %v", at, signals[at].used, s.Matched)
					}
					if s.Matched {
						used++
					}
				}
				for i, s := range signals {
					if s.used {
						used--
					}
					_ = i
				}
				if used != 0 {
					rt.Fatalf("%d used signals too many", used)
				}
			},
		})
	})
}
