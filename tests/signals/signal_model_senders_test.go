package signals

import (
	"errors"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
)

// effectOf names the effect of a signal, or the reason of its refusal.
func effectOf(signalled engine.Signalled, err error) string {
	switch {
	case errors.Is(err, fferr.ErrEnded):
		return "ended"
	case errors.Is(err, fferr.ErrInvalidToken):
		return "invalid token"
	case errors.Is(err, fferr.ErrNotFound):
		return "not found"
	case errors.Is(err, fferr.ErrWaitpointClosed):
		return "closed"
	case err != nil:
		return err.Error()
	case signalled.Duplicate:
		return "duplicate"
	}
	return string(signalled.Effect)
}

// draw draws a signal of one of the senders.
func (m *model) draw(rt *rapid.T) *received {
	return &received{
		id: id.NewSignalID(), number: len(m.signals) + 1, at: m.f.Time(),
		name:   rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "name"),
		source: rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "source"),
		key:    rapid.SampledFrom([]string{"", "", "k1", "k2"}).Draw(rt, "key"),
	}
}

func (m *model) spec(s *received) engine.SignalSpec {
	return engine.SignalSpec{Execution: m.x, Name: s.name, ID: s.id, SourceType: "user", Source: s.source, IdempotencyKey: s.key}
}

func (m *model) signal(rt *rapid.T) {
	s := m.draw(rt)
	want := m.accept(s, nil)
	got := effectOf(m.f.Engine.Signal(m.t.Context(), m.spec(s)))
	m.note("%s sends signal %d, %s, key %q: %s", s.source, s.number, s.name, s.key, got)
	if got != want {
		rt.Fatalf("signal %d, %s: %s, want %s", s.number, s.name, got, want)
	}
}

// accept is the model of a signal, by its name or at a waitpoint whose token is right. It returns its effect.
func (m *model) accept(s *received, at *point) string {
	for _, earlier := range m.signals {
		same := earlier.name == s.name
		if at != nil {
			same = earlier.point == at
		}
		if same && !earlier.forgotten && s.key != "" && earlier.key == s.key && m.f.Time().Before(earlier.at.Add(engine.DefaultDedup)) {
			return "duplicate"
		}
	}
	inTime := m.phase == "suspended" && m.f.Time().Before(m.until)
	switch {
	case m.ended():
		return "ended"
	case at != nil && at.closed:
		return "not found"
	case at != nil && (at.bound && !inTime || !at.bound && !m.f.Time().Before(at.ExpiresAt)):
		return "closed"
	}
	m.signals = append(m.signals, s)
	takes := inTime && m.waits.takes(s.name)
	s.point = at
	if at == nil && takes {
		for _, p := range m.points {
			if p.bound && string(p.Key) == s.name {
				s.point = p
			}
		}
	}
	switch {
	case !takes:
		s.kept = true
		return "buffered"
	case m.satisfy():
		m.resumed++
		m.over("ready")
		return "satisfied"
	}
	return "appended"
}

// signalAgain repeats a signal by its id: that is a duplicate, unless a replay has dropped it.
func (m *model) signalAgain(rt *rapid.T) {
	if len(m.signals) == 0 {
		rt.Skip()
	}
	s := rapid.SampledFrom(m.signals).Draw(rt, "earlier")
	want := "duplicate"
	if s.forgotten {
		again := &received{id: s.id, number: s.number, at: m.f.Time(), name: s.name, source: s.source, key: s.key}
		if want = m.accept(again, nil); want != "duplicate" && want != "ended" {
			m.signals = slices.DeleteFunc(m.signals, func(one *received) bool { return one == s })
		}
	}
	got := effectOf(m.f.Engine.Signal(m.t.Context(), m.spec(s)))
	m.note("%s repeats signal %d: %s", s.source, s.number, got)
	if got != want {
		rt.Fatalf("the repetition of signal %d: %s, want %s", s.number, got, want)
	}
}

// verifies reports whether a key is active, or in its grace.
func (m *model) verifies(kid string) bool {
	return kid == m.kid || m.f.Time().Before(m.retired[kid])
}

func (m *model) signalByToken(rt *rapid.T) {
	if len(m.points) == 0 {
		rt.Skip()
	}
	p := rapid.SampledFrom(m.points).Draw(rt, "waitpoint")
	s := m.draw(rt)
	s.name = string(p.Key)
	spec := engine.WaitpointSignal{SignalSpec: m.spec(s), Waitpoint: p.ID, Token: p.Token}
	want := "invalid token"
	if m.verifies(p.kid) {
		want = m.accept(s, p)
	}
	got := effectOf(m.f.Engine.SignalWaitpoint(m.t.Context(), spec))
	m.note("%s sends signal %d to waitpoint %d (%s), key %q: %s", s.source, s.number, p.number, p.Key, s.key, got)
	if got != want {
		rt.Fatalf("signal %d to waitpoint %d: %s, want %s", s.number, p.number, got, want)
	}
}

func (m *model) openWaitpoint(rt *rapid.T) {
	if m.phase != "running" || len(m.points) == 8 {
		rt.Skip()
	}
	key := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key")
	w, err := m.f.CreateWaitpoint(m.t.Context(), engine.WaitpointSpec{Lease: m.lease, Key: id.WaitpointKey(key), TTL: 90 * time.Minute})
	m.must(rt, err, "open a waitpoint")
	var open *point
	for _, p := range m.points {
		if string(p.Key) == key && !p.closed && m.f.Time().Before(p.ExpiresAt) {
			open = p
		}
	}
	if w.Created != (open == nil) || open != nil && (w.ID != open.ID || w.Token != open.Token) {
		rt.Fatalf("%+v, want %+v", w, open)
	}
	if open == nil {
		open = &point{Waitpoint: w, kid: m.kid, number: len(m.points) + 1}
		m.points = append(m.points, open)
	}
	m.note("its worker opens waitpoint %d (%s), key %s", open.number, key, open.kid)
}

// closeWaitpoint closes one, open or not, with the signals kept there.
func (m *model) closeWaitpoint(rt *rapid.T) {
	if m.phase != "running" || len(m.points) == 0 {
		rt.Skip()
	}
	p := rapid.SampledFrom(m.points).Draw(rt, "waitpoint")
	m.must(rt, m.f.CloseWaitpoint(m.t.Context(), m.lease, p.ID), "close a waitpoint")
	if !p.closed {
		for _, s := range m.signals {
			if s.kept && s.point == p {
				s.kept, s.gone = false, true
			}
		}
	}
	p.closed = true
	m.note("its worker closes waitpoint %d", p.number)
}

// expireWaitpoints runs the job. Signals that came in time stay, but without their waitpoint.
func (m *model) expireWaitpoints(rt *rapid.T) {
	_, err := upkeep.Of(m.f.Engine).ExpireWaitpoints(m.t.Context(), 100)
	m.must(rt, err, "expire waitpoints")
	for _, p := range m.points {
		if !p.bound && !m.f.Time().Before(p.ExpiresAt) {
			p.closed = true
		}
	}
	m.note("waitpoints expire")
}

// rotateTo lets another key sign. The tokens of all keys are valid as long as their keys verify.
func (m *model) rotateTo(rt *rapid.T, kid string, grace time.Duration) {
	_, err := operator.RotateKey(m.t.Context(), m.f.Engine, kid, wire.NewSecret(), grace)
	m.must(rt, err, "rotate")
	if m.kid != "" {
		m.retired[m.kid] = m.f.Time().Add(grace)
	}
	m.kid = kid
	m.note("an operator rotates to %s, with a grace of %v", kid, grace)
	for _, p := range m.points {
		err := m.f.Engine.VerifyWaitpoint(m.t.Context(), m.x, p.ID, p.Token)
		if want := m.verifies(p.kid); errors.Is(err, fferr.ErrInvalidToken) == want || want && err != nil {
			rt.Fatalf("the token of waitpoint %d, of %s: %v, want valid %v", p.number, p.kid, err, want)
		}
	}
}
