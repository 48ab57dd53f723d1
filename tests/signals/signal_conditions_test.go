package signals

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
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

func (w wanted) String() string {
	switch {
	case len(w.members) > 0:
		var members []string
		for _, m := range w.members {
			members = append(members, m.String())
		}
		return w.kind + "(" + strings.Join(members, ", ") + ")"
	case w.kind == "one":
		return w.names[0]
	}
	return fmt.Sprintf("%d %s of %s", w.n, w.kind, w.names[0])
}

// received is a signal that the execution has accepted.
type received struct {
	id           id.SignalID
	number       int
	key          string // its idempotency key
	name, source string
	at           time.Time
	point        *point // where it arrived by a token, or beside others; nil: at another place
	kept         bool   // it is still kept there, for a later wait
	used         bool   // by a wait
	past         bool   // by one before the latest: it is no longer listed
	gone         bool   // with its waitpoint, which its holder closed, or with an end
	forgotten    bool   // its id and its key too, by a replay
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
		if s.used || s.gone || s.name != w.names[0] {
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
