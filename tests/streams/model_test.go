package streams

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// streamModel is the output of one execution, in memory.
type streamModel struct {
	t         *testing.T
	f         *fixture.Fixture
	x         id.ExecutionID
	leases    []engine.Lease // the last one is live unless the execution has ended
	attempts  [][]stream.Entry
	over      bool // the execution has ended
	written   int
	positions []savedPosition
}

// savedPosition is a place at which a tail stopped: behind the first frames of an attempt, or behind its end.
type savedPosition struct {
	at              stream.Position
	attempt, frames int
	closed          bool
}

func TestStreamsFollowTheModel(t *testing.T) {
	shared := fixture.New(t)
	fixture.Check(t, func(r *rapid.T) {
		m := &streamModel{t: t, f: fixture.On(t, shared.Pool, shared.Url), attempts: make([][]stream.Entry, 1)}
		m.positions = []savedPosition{{}}
		m.x = m.f.Create(t)
		m.f.RetryAtOnce(t, m.x)
		m.claim()
		r.Repeat(map[string]func(*rapid.T){
			"append":       m.append,
			"append again": m.append, // most often
			"append stale": m.appendStale,
			"move clock":   m.moveClock,
			"begin again":  m.beginAgain,
			"end":          m.end,
			"read":         m.read,
			"tail":         m.tail,
		})
		m.checkAll(r)
	})
}

func (m *streamModel) claim() { m.leases = append(m.leases, m.f.ClaimOne(m.t).Lease) }

func (m *streamModel) lease() engine.Lease { return m.leases[len(m.leases)-1] }

// frames draws frames that all differ.
func (m *streamModel) frames(r *rapid.T) []stream.FrameSpec {
	frames := make([]stream.FrameSpec, rapid.IntRange(1, 5).Draw(r, "frames"))
	for i := range frames {
		m.written++
		mode := rapid.SampledFrom([]stream.Mode{"", stream.Durable, stream.Summary, stream.BestEffort}).Draw(r, "mode")
		frames[i] = stream.FrameSpec{Payload: fmt.Appendf(nil, `{"n":%d}`, m.written), Mode: mode}
	}
	return frames
}

// append appends with the live lease, in one of the ways, and records what was committed.
func (m *streamModel) append(r *rapid.T) {
	if m.over {
		r.Skip()
	}
	l, frames := m.lease(), m.frames(r)
	var appended stream.Appended
	var err error
	switch way := rapid.SampledFrom([]string{"pool", "batch", "commit", "rollback"}).Draw(r, "way"); way {
	case "pool":
		appended, err = stream.Append(m.t.Context(), m.f.Engine, l, frames)
	case "batch":
		var outcomes []fferr.Outcome[stream.Appended]
		if outcomes, err = stream.AppendEach(m.t.Context(), m.f.Engine, []stream.Batch{{Lease: l, Frames: frames}}); err == nil {
			appended, err = outcomes[0].Value, outcomes[0].Err
		}
	default:
		tx := m.f.BeginTx(m.t)
		appended, err = stream.Append(m.t.Context(), m.f.WithTx(tx), l, frames)
		m.f.End(m.t, tx, way == "commit")
		if way == "rollback" {
			frames = nil
		}
	}
	if err != nil {
		r.Fatal(err)
	}
	streams := &m.attempts[l.Attempt]
	for i, f := range frames {
		mode := f.Mode
		if mode == "" {
			mode = stream.Durable
		}
		frame := stream.Entry{
			Execution: m.x, Attempt: l.Attempt, ID: appended.First, Epoch: l.Epoch, Number: int64(len(*streams) + 1), Mode: mode, Payload: f.Payload,
		}
		frame.ID.Seq += int32(i)
		if n := len(*streams); n > 0 && frame.ID.Compare((*streams)[n-1].ID) <= 0 {
			r.Fatalf("id %s after %s", frame.ID, (*streams)[n-1].ID)
		}
		*streams = append(*streams, frame)
	}
	if n := int64(len(*streams)); len(frames) > 0 && (appended.Frames != n || appended.Last != (*streams)[n-1].ID) {
		r.Fatalf("%+v after %d frames", appended, n)
	}
}

func (m *streamModel) appendStale(r *rapid.T) {
	if len(m.leases) == 1 && !m.over {
		r.Skip()
	}
	stale := m.leases
	if !m.over {
		stale = stale[:len(stale)-1]
	}
	_, err := stream.Append(m.t.Context(), m.f.Engine, rapid.SampledFrom(stale).Draw(r, "lease"), m.frames(r))
	if _, ok := errors.AsType[*fferr.LeaseError](err); !ok {
		r.Fatalf("got %v", err)
	}
}

func (m *streamModel) moveClock(r *rapid.T) {
	m.f.Advance(time.Duration(rapid.IntRange(-3, 3).Draw(r, "ms")) * time.Millisecond)
}

// beginAgain ends the attempt with a retry, or gives the lease back; then the handler runs again.
func (m *streamModel) beginAgain(r *rapid.T) {
	if m.over {
		r.Skip()
	}
	if rapid.Bool().Draw(r, "same attempt") {
		outcomes, err := m.f.ReleaseLeases(m.t.Context(), []engine.Lease{m.lease()})
		if err := errors.Join(append(outcomes, err)...); err != nil {
			r.Fatal(err)
		}
	} else {
		if len(m.attempts) == 4 {
			r.Skip()
		}
		m.f.Fail(m.t, m.lease(), engine.Failure{Message: "once more"})
		m.attempts = append(m.attempts, nil)
		m.f.Advance(time.Millisecond)
	}
	m.claim()
	if got := m.lease().Attempt; got != len(m.attempts)-1 {
		r.Fatalf("claimed attempt %d of %d", got, len(m.attempts))
	}
}

func (m *streamModel) end(r *rapid.T) {
	if m.over || rapid.IntRange(0, 9).Draw(r, "really") > 0 {
		r.Skip()
	}
	if err := m.f.CompleteExecution(m.t.Context(), m.lease(), nil); err != nil {
		r.Fatal(err)
	}
	m.over = true
}

// read reads a range of an attempt, whose bounds are those of frames or beside them.
func (m *streamModel) read(r *rapid.T) {
	attempt := rapid.IntRange(0, len(m.attempts)-1).Draw(r, "attempt")
	all := m.attempts[attempt]
	if len(all) == 0 {
		r.Skip()
	}
	bound := func(name string) wire.FramePosition {
		at := rapid.SampledFrom(all).Draw(r, name).ID
		at.Seq = max(0, at.Seq+int32(rapid.IntRange(-1, 1).Draw(r, name+" beside")))
		return at
	}
	from, to := bound("from"), bound("to")
	limit, skip := rapid.IntRange(1, 10).Draw(r, "limit"), rapid.Bool().Draw(r, "skip best effort")
	page, err := stream.Read(m.t.Context(), m.f.Engine, m.x, stream.Range{
		Attempt: attempt, From: wire.FrameCursor(from.String()), To: wire.FrameCursor(to.String()), Limit: limit, SkipBestEffort: skip,
	})
	if err != nil || page.Closed != nil {
		r.Fatal(page.Closed, err)
	}
	var want []stream.Entry
	for _, f := range all {
		if f.ID.Compare(from) >= 0 && f.ID.Compare(to) <= 0 && len(want) < limit && !(skip && f.Mode == stream.BestEffort) {
			want = append(want, f)
		}
	}
	m.compare(r, page.Frames, want)
}

func (m *streamModel) compare(r *rapid.T, got, want []stream.Entry) {
	if len(got) != len(want) {
		r.Fatalf("%d frames, want %d", len(got), len(want))
	}
	for i := range got {
		same(r, &got[i], &want[i])
	}
}

func same(r *rapid.T, got, want *stream.Entry) {
	if got.Execution != want.Execution || got.Attempt != want.Attempt || got.ID != want.ID || got.Epoch != want.Epoch ||
		got.Number != want.Number || got.Mode != want.Mode || string(got.Payload) != string(want.Payload) || got.Trimmed != 0 {
		r.Fatalf("frame %+v, want %+v", got, want)
	}
}

// tail goes on at a saved position, up to the last frame or end there is, or stops on the way; there it saves its position,
// by its text.
func (m *streamModel) tail(r *rapid.T) {
	from := rapid.SampledFrom(m.positions).Draw(r, "from")
	skip := rapid.Bool().Draw(r, "skip best effort")
	ahead := m.ahead(from, skip)
	if len(ahead) == 0 {
		r.Skip()
	}
	stop, n := rapid.IntRange(1, len(ahead)).Draw(r, "stop"), 0
	for got, err := range stream.Tail(m.t.Context(), m.f.Engine, m.x, stream.TailOptions{After: from.at, SkipBestEffort: skip}) {
		if err != nil {
			r.Fatal(err)
		}
		want := ahead[n]
		switch {
		case got.Attempt != want.attempt || (got.Closed != nil) != want.closed:
			r.Fatalf("%+v, want attempt %d, closed: %t", got, want.attempt, want.closed)
		case want.closed && got.Closed.Last != (m.over && want.attempt == len(m.attempts)-1):
			r.Fatalf("closed %+v", got.Closed)
		case !want.closed:
			same(r, &got, &m.attempts[want.attempt][want.frames-1])
		}
		if n++; n == stop {
			position, err := stream.ParsePosition(got.Position().String())
			if err != nil || position != got.Position() {
				r.Fatal(position, err)
			}
			want.at = position
			m.positions = append(m.positions, want)
			return
		}
	}
	r.Fatalf("the tail ended after %d of %d values", n, stop)
}

// ahead returns the places that a tail reaches from a position.
func (m *streamModel) ahead(from savedPosition, skipBestEffort bool) []savedPosition {
	var places []savedPosition
	for attempt := from.attempt; attempt < len(m.attempts); attempt++ {
		first := 0
		if attempt == from.attempt {
			if from.closed {
				continue
			}
			first = from.frames
		}
		for i := first; i < len(m.attempts[attempt]); i++ {
			if !(skipBestEffort && m.attempts[attempt][i].Mode == stream.BestEffort) {
				places = append(places, savedPosition{attempt: attempt, frames: i + 1})
			}
		}
		if m.over || attempt < len(m.attempts)-1 {
			places = append(places, savedPosition{attempt: attempt, frames: len(m.attempts[attempt]), closed: true})
		}
	}
	return places
}

// checkAll reads every stream to its end.
func (m *streamModel) checkAll(r *rapid.T) {
	for attempt, want := range m.attempts {
		page, err := stream.Read(m.t.Context(), m.f.Engine, m.x, stream.Range{Attempt: attempt, Limit: stream.MaxPage})
		if err != nil {
			r.Fatal(err)
		}
		m.compare(r, page.Frames, want)
		if closed := m.over || attempt < len(m.attempts)-1; (page.Closed != nil) != closed {
			r.Fatalf("attempt %d: closed %+v", attempt, page.Closed)
		}
	}
}
