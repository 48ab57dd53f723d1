package fair

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// entry is an execution as the model knows it.
type entry struct {
	id       id.ExecutionID
	share    engine.FairShare // zero for work without a tenant
	priority int
	place    time.Time
	started  bool
	pause    time.Duration // of its retries
}

// given is a place that an execution of a tenant got.
type given struct {
	to    *entry
	place time.Time
}

// waits reports whether the execution waits there.
func (g given) waits() bool { return !g.to.started && g.to.place.Equal(g.place) }

// model is a lane with tenants. Its entries are in the order of their creation.
type model struct {
	entries []*entry
	given   []given
}

// put gives an execution a place.
func (m *model) put(e *entry, place time.Time) {
	e.place, e.started = place, false
	m.given = append(m.given, given{e, place})
}

// next returns the place of a tenant's next execution: behind its own last one, but not before the first of all tenants'
// that waits, or the present if none does.
func (m *model) next(share engine.FairShare, priority int, now time.Time) time.Time {
	head := now
	if waiting := m.waiting(func(e *entry) bool { return !e.share.IsZero() && e.priority == priority }); len(waiting) > 0 {
		head = waiting[0].place.Truncate(time.Millisecond) // the queue knows no more
	}
	var last *given
	for i := range m.given {
		if g := &m.given[i]; g.to.share == share && g.to.priority == priority && (last == nil || g.place.After(last.place)) {
			last = g
		}
	}
	if last == nil {
		return head
	}
	if !last.waits() && last.place.Truncate(time.Millisecond).After(head) {
		// The lane was empty since.
		m.given = slices.DeleteFunc(m.given, func(g given) bool {
			return g.to.share == share && g.to.priority == priority && !g.waits() && g.place.Truncate(time.Millisecond).After(head)
		})
		return head
	}
	if own := last.place.Add(time.Millisecond / time.Duration(share.Weight)); own.After(head) {
		return own
	}
	return head
}

// waiting returns entries in the order of claims.
func (m *model) waiting(is func(*entry) bool) []*entry {
	var waiting []*entry
	for _, e := range m.entries {
		if !e.started && is(e) {
			waiting = append(waiting, e)
		}
	}
	slices.SortFunc(waiting, func(a, b *entry) int {
		x, y := a.id.UUID(), b.id.UUID()
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.place.UnixMilli(), b.place.UnixMilli()), bytes.Compare(x[:], y[:]))
	})
	return waiting
}

// Executions start in the order of a model in memory, whatever tenants create and however claims and retries come between. No
// claim is short while something waits. (L12)
func TestFairLanesAgreeWithAModel(t *testing.T) {
	f := fixture.NewCloned(t)
	runs := 0
	fixture.Check(t, func(r *rapid.T) {
		runs++
		l, m := newLane(f, fmt.Sprint("-", runs)), &model{}
		var running []engine.Claimed
		for range rapid.IntRange(3, 20).Draw(r, "steps") {
			l.Advance(rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, 20 * time.Millisecond}).Draw(r, "advance"))
			switch rapid.IntRange(0, 3).Draw(r, "what") {
			case 0, 1:
				create(t, r, l, m)
				continue
			case 2:
				if len(running) > 0 {
					at := rapid.IntRange(0, len(running)-1).Draw(r, "fails")
					retry(t, l, m, running[at])
					running = slices.Delete(running, at, at+1)
				}
				continue
			}
			n := rapid.IntRange(1, 12).Draw(r, "claim")
			waiting := m.waiting(func(*entry) bool { return true })
			want := waiting[:min(n, len(waiting))]
			claimed := l.take(t, n)
			if !slices.EqualFunc(claimed, want, func(c engine.Claimed, e *entry) bool { return c.ID == e.id }) {
				r.Fatalf("claimed %v, want %+v", l.order(claimed), want)
			}
			for _, e := range want {
				e.started = true
			}
			running = append(running, claimed...)
		}
	})
}

// retry fails an execution. Every second one is retried after a pause.
func retry(t *testing.T, l *lane, m *model, c engine.Claimed) {
	e := m.entries[slices.IndexFunc(m.entries, func(e *entry) bool { return e.id == c.ID })]
	l.fail(t, e.pause, c)
	if e.share.IsZero() {
		e.started = false
		return
	}
	m.put(e, m.next(e.share, e.priority, l.Time()))
}

// create creates a batch for one to three tenants and without one.
func create(t *testing.T, r *rapid.T, l *lane, m *model) {
	var specs []engine.ExecutionSpec
	var added []*entry
	pause := rapid.SampledFrom([]time.Duration{0, 5 * time.Millisecond}).Draw(r, "pause")
	for range rapid.IntRange(1, 3).Draw(r, "parts") {
		tenant := rapid.IntRange(0, 3).Draw(r, "tenant")
		var share engine.FairShare
		if tenant > 0 {
			share = named(tenant, []int{1, 2, 7}[tenant-1])
		}
		for range rapid.IntRange(1, 10).Draw(r, "n") {
			e := &entry{share: share, priority: rapid.SampledFrom([]int{0, 0, 0, 3}).Draw(r, "priority"), place: l.Time(), pause: pause}
			spec := engine.ExecutionSpec{Lane: l.name, Kind: "test", Fair: share, Priority: e.priority}
			retried(e.pause)(&spec)
			specs = append(specs, spec)
			added = append(added, e)
		}
	}
	before := &model{slices.Clone(m.entries), slices.Clone(m.given)}
	for _, e := range added {
		if !e.share.IsZero() {
			m.put(e, nextOf(before, m, e, l.Time()))
		}
		m.entries = append(m.entries, e)
	}
	outcomes, err := l.CreateExecutions(t.Context(), specs)
	if err != nil {
		r.Fatal(err)
	}
	for i, o := range outcomes {
		if o.Err != nil {
			r.Fatal(o.Err)
		}
		added[i].id = o.Value.ID
		l.tenantOf[o.Value.ID] = added[i].share.Tenant
	}
}

// nextOf is [model.next] for one of a batch: what waited before the batch is the head, all before it is the tenant's last.
func nextOf(before, with *model, e *entry, now time.Time) time.Time {
	for i := len(with.entries) - 1; i >= len(before.entries); i-- {
		if other := with.entries[i]; other.share == e.share && other.priority == e.priority {
			return other.place.Add(time.Millisecond / time.Duration(e.share.Weight))
		}
	}
	next := before.next(e.share, e.priority, now)
	with.next(e.share, e.priority, now) // forgets the same places
	return next
}
