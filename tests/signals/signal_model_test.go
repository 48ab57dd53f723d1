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
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// point is a waitpoint whose token was handed out.
type point struct {
	engine.Waitpoint
	number int
	kid    string
	bound  bool // the execution waits there
	closed bool
}

// model is an execution and its actors: two workers, one perhaps with an expired lease, two senders, the bearers of
// tokens, an operator, and the jobs. It keeps all signals in one list.
type model struct {
	t *testing.T
	f *fixture.Fixture

	x         id.ExecutionID
	lease     engine.Lease
	former    []engine.Lease
	phase     string // running, suspended, delayed, ready, cancelled, completed
	waits     wanted
	wait      id.SuspensionID // the latest
	by        engine.Lease    // of the worker that began it
	atOnce    bool            // it was satisfied when it began
	until     time.Time
	resumed   int // waits that have ended without a delay
	replays   int
	signals   []*received
	points    []*point
	kid       string
	retired   map[string]time.Time // kids, with the ends of their graces
	histories []string
}

// Suspensions, signals, timeouts, cancels, resumes, replays and rotations by several actors in any order have the effects of
// the model: each accepted signal is used at most once, none is lost while the execution lives, no wait ends twice, and a
// token is valid exactly while its key is.
func TestSignalsFollowTheModel(t *testing.T) {
	f := fixture.NewCloned(t)
	keys := 0
	fixture.Check(t, func(rt *rapid.T) {
		m := &model{t: t, f: f, phase: "ready", retired: make(map[string]time.Time)}
		m.x = f.Create(t)
		defer func() { // leave the lane empty
			_ = f.CancelExecution(t.Context(), engine.CancelSpec{ID: m.x})
			if rt.Failed() {
				rt.Logf("history of %s:\n%s", m.x, strings.Join(m.histories, "\n"))
			}
		}()
		keys++
		m.rotateTo(rt, fmt.Sprintf("model%d", keys), 0)
		actions := map[string]func(*rapid.T){
			"": m.check, "claim": m.claim, "suspend": m.suspend, "suspend again": m.suspendAgain, "former worker": m.formerWorker,
			"signal": m.signal, "signal, once more": m.signal, "signal again": m.signalAgain, "signal by a token": m.signalByToken,
			"resume": m.resume, "promote": m.promote, "time out": m.timeOut, "expire waitpoints": m.expireWaitpoints,
			"open a waitpoint": m.openWaitpoint, "close a waitpoint": m.closeWaitpoint, "cancel": m.cancel, "complete": m.complete,
			"replay": m.replay,
			"rotate": func(rt *rapid.T) {
				keys++
				grace := rapid.SampledFrom([]time.Duration{0, time.Minute, 100 * time.Hour}).Draw(rt, "grace")
				m.rotateTo(rt, fmt.Sprintf("model%d", keys), grace)
			},
		}
		for name, act := range actions {
			if name != "" {
				actions[name] = func(rt *rapid.T) {
					f.Advance(time.Millisecond) // so that signals arrive one after the other
					act(rt)
				}
			}
		}
		rt.Repeat(actions)
	})
}

// note writes a line of the history.
func (m *model) note(format string, args ...any) {
	m.histories = append(m.histories, fmt.Sprintf("%v: ", m.f.Time().Sub(fixture.Start))+fmt.Sprintf(format, args...)+", then "+m.phase)
}

func (m *model) must(rt *rapid.T, err error, what string) {
	if err != nil {
		rt.Fatalf("%s: %v", what, err)
	}
}

func (m *model) ended() bool { return m.phase == "cancelled" || m.phase == "completed" }

// satisfy uses the signals that satisfy the wait, or returns false.
func (m *model) satisfy() bool {
	by, ok := m.waits.satisfiedBy(m.signals)
	for _, s := range by {
		s.used = true
	}
	return ok
}

// over ends the wait: the waitpoints that it had are closed.
func (m *model) over(phase string) {
	m.phase = phase
	for _, p := range m.points {
		if p.bound {
			p.bound, p.closed = false, true
		}
	}
}

func (m *model) claim(rt *rapid.T) {
	if m.phase != "ready" {
		rt.Skip()
	}
	if m.lease.Execution != (id.ExecutionID{}) {
		m.former = append(m.former, m.lease)
	}
	m.lease, m.phase = m.f.ClaimOne(m.t).Lease, "running"
	m.note("a worker claims, epoch %d", m.lease.Epoch)
}

func (m *model) suspend(rt *rapid.T) {
	if m.phase != "running" {
		rt.Skip()
	}
	m.waits, m.wait, m.by = wantedConditions.Draw(rt, "condition"), id.NewSuspensionID(), m.lease
	m.until = m.f.Time().Add(time.Hour)
	got, err := m.f.Engine.Suspend(m.t.Context(), engine.SuspendSpec{
		Lease: m.lease, Condition: m.waits.condition(), Timeout: time.Hour, ID: m.wait,
	})
	m.must(rt, err, "suspend")
	for _, p := range m.points {
		if m.waits.takes(string(p.Key)) && !p.closed {
			p.bound = m.f.Time().Before(p.ExpiresAt)
			p.closed = !p.bound
		}
	}
	for _, s := range m.signals {
		s.past = s.used
		if s.kept && s.point != nil && m.waits.takes(string(s.point.Key)) {
			s.kept = false
		}
	}
	if m.atOnce = m.satisfy(); m.atOnce {
		m.over("running")
	} else {
		m.phase = "suspended"
	}
	m.note("it waits for %s", m.waits)
	if got.Satisfied != m.atOnce {
		rt.Fatalf("satisfied at once: %v, want %v", got.Satisfied, m.atOnce)
	}
}

// suspendAgain repeats the latest suspension, as after a lost answer.
func (m *model) suspendAgain(rt *rapid.T) {
	if m.wait.IsZero() || m.ended() {
		rt.Skip()
	}
	got, err := m.f.Engine.Suspend(m.t.Context(), engine.SuspendSpec{
		Lease: m.by, Condition: m.waits.condition(), Timeout: time.Hour, ID: m.wait,
	})
	m.note("the worker repeats its suspension")
	m.must(rt, err, "suspend again")
	if got.ID != m.wait || got.Satisfied && !m.atOnce {
		rt.Fatalf("repeated: %+v, satisfied at once %v", got, m.atOnce)
	}
}

// formerWorker believes to hold a lease that is over.
func (m *model) formerWorker(rt *rapid.T) {
	leases := slices.Clone(m.former)
	if m.phase != "running" && m.lease.Execution != (id.ExecutionID{}) {
		leases = append(leases, m.lease)
	}
	if len(leases) == 0 {
		rt.Skip()
	}
	l := rapid.SampledFrom(leases).Draw(rt, "lease")
	before := m.f.Dump(m.t, m.x)
	calls := map[string]func() error{
		"suspend": func() error {
			_, err := m.f.Engine.Suspend(m.t.Context(), engine.SuspendSpec{Lease: l, Condition: engine.Received("a")})
			return err
		},
		"complete": func() error { return m.f.CompleteExecution(m.t.Context(), l, nil) },
		"open": func() error {
			_, err := m.f.CreateWaitpoint(m.t.Context(), engine.WaitpointSpec{Lease: l, Key: "a", TTL: time.Hour})
			return err
		},
		"close": func() error {
			return m.f.CloseWaitpoint(m.t.Context(), l, id.NewWaitpointID())
		},
	}
	what := rapid.SampledFrom([]string{"suspend", "complete", "open", "close"}).Draw(rt, "call")
	if what == "complete" && m.phase == "completed" && l.Epoch == m.lease.Epoch {
		rt.Skip() // a repetition
	}
	err := calls[what]()
	m.note("a former worker, of epoch %d, tries to %s", l.Epoch, what)
	if _, ok := errors.AsType[*fferr.LeaseError](err); !ok {
		rt.Fatalf("a former worker's %s: %v", what, err)
	}
	if after := m.f.Dump(m.t, m.x); after != before {
		rt.Fatalf("a former worker's %s wrote\n%s\nit was\n%s", what, after, before)
	}
}

// resume is an operator's.
func (m *model) resume(rt *rapid.T) {
	delay := rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(rt, "delay")
	err := m.f.Engine.Resume(m.t.Context(), m.x, delay)
	if m.phase != "suspended" {
		if !errors.Is(err, fferr.ErrNotSuspended) {
			rt.Fatalf("resume: %v", err)
		}
		return
	}
	m.must(rt, err, "resume")
	if delay > 0 {
		m.over("delayed")
	} else {
		m.resumed++
		m.over("ready")
	}
	m.note("an operator resumes it")
}

func (m *model) promote(rt *rapid.T) {
	if m.phase != "delayed" {
		rt.Skip()
	}
	m.f.Advance(time.Minute)
	fixture.Run(m.t, upkeep.Of(m.f.Engine).PromoteDelayed, 1)
	m.phase = "ready"
	m.note("its delay is over")
}

// timeOut lets an hour pass, and the jobs run.
func (m *model) timeOut(rt *rapid.T) {
	m.f.Advance(time.Hour)
	switch m.phase {
	case "running": // its lease has ended
		fixture.Run(m.t, upkeep.Of(m.f.Engine).ExpireLeases, 1)
		m.phase = "ready"
	case "delayed":
		fixture.Run(m.t, upkeep.Of(m.f.Engine).PromoteDelayed, 1)
		m.phase = "ready"
	}
	// A signal that comes after the time, and before the job, doesn't satisfy the wait.
	if m.phase == "suspended" && rapid.Bool().Draw(rt, "a late signal") {
		m.signal(rt)
	}
	n, err := upkeep.Of(m.f.Engine).ExpireWaits(m.t.Context(), 100)
	m.must(rt, err, "expire waits")
	if want := map[bool]int{true: 1}[m.phase == "suspended"]; n != want {
		rt.Fatalf("%d waits timed out, want %d", n, want)
	}
	if m.phase == "suspended" {
		m.resumed++
		m.over("ready")
	}
	m.note("an hour passes")
}

func (m *model) cancel(rt *rapid.T) {
	if m.ended() || rapid.IntRange(0, 9).Draw(rt, "rarely") > 0 {
		rt.Skip()
	}
	m.must(rt, m.f.CancelExecution(m.t.Context(), engine.CancelSpec{ID: m.x}), "cancel")
	m.phase = "cancelled"
	m.forget()
	m.note("it is cancelled")
}

func (m *model) complete(rt *rapid.T) {
	if m.phase != "running" || rapid.IntRange(0, 9).Draw(rt, "rarely") > 0 {
		rt.Skip()
	}
	m.must(rt, m.f.CompleteExecution(m.t.Context(), m.lease, nil), "complete")
	m.phase = "completed"
	m.note("it completes")
}

func (m *model) replay(rt *rapid.T) {
	if !m.ended() || m.replays == 10 {
		rt.Skip()
	}
	_, err := operator.Replay(m.t.Context(), m.f.Engine, m.x, operator.ReplayCompleted)
	m.must(rt, err, "replay")
	m.replays++
	m.phase, m.wait = "ready", id.SuspensionID{}
	m.forget()
	for _, s := range m.signals {
		s.forgotten = true
	}
	m.note("it is replayed")
}

// forget drops all signals and waitpoints.
func (m *model) forget() {
	for _, s := range m.signals {
		s.gone, s.kept = true, false
	}
	for _, p := range m.points {
		p.bound, p.closed = false, true
	}
}

// check compares what is stored with the model.
func (m *model) check(rt *rapid.T) {
	stored := m.f.Stored(m.t, m.x).State
	want := map[string]string{
		"running": "active", "ready": "runnable", "delayed": "runnable", "suspended": "suspended", "cancelled": "cancelled", "completed": "terminal",
	}[m.phase]
	if phase, _, _ := strings.Cut(stored, " "); phase != want || strings.Contains(stored, "delayed") != (m.phase == "delayed") {
		rt.Fatalf("%s, want %s", stored, m.phase)
	}
	resumed := slices.DeleteFunc(m.f.Events(m.t, m.x), func(event string) bool { return event != "completion resumable" })
	if len(resumed) != m.resumed {
		rt.Fatalf("%d waits ended, want %d", len(resumed), m.resumed)
	}
	if m.phase == "completed" {
		return // what it leaves belongs to nothing
	}
	m.checkSignals(rt)
}

// checkSignals: each signal that lives is received or kept, once, and used as often as the model says.
func (m *model) checkSignals(rt *rapid.T) {
	known, err := m.f.ReceivedSignals(m.t.Context(), m.x)
	m.must(rt, err, "read")
	places := make(map[string][]string)
	for _, s := range known {
		if s.Key != "__timeout__" {
			places[s.ID.String()] = append(places[s.ID.String()], fmt.Sprintf("received, used %v", s.Matched))
		}
	}
	for _, signal := range fixture.Texts(m.t, m.f.Pool, `SELECT b ->> 'signal_id' FROM ff_waitpoint_pending AS w
		CROSS JOIN LATERAL jsonb_array_elements(w.condition -> 'buffered_signals') AS b
		WHERE partition_key = $1 AND execution_id = $2`, m.x.Partition(), m.x.UUID()) {
		places[signal] = append(places[signal], "kept")
	}
	for _, s := range m.signals {
		got := places[s.id.String()]
		delete(places, s.id.String())
		switch {
		case (s.gone || s.past) && len(got) == 0, !s.gone && !s.used && slices.Equal(got, []string{"kept"}):
		case !s.gone && !s.past && slices.Equal(got, []string{fmt.Sprintf("received, used %v", s.used)}):
		default:
			rt.Fatalf("signal %d (%s) is %q; gone %v, used %v", s.number, s.name, got, s.gone, s.used)
		}
	}
	if len(places) > 0 {
		rt.Fatalf("signals that were never accepted: %v", places)
	}
}
