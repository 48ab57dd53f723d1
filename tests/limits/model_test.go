package limits

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The states of a modelled execution, by its place at its limits.
const (
	waits   = "waits"   // for a limit or a budget
	ready   = "ready"   // admitted, claimable
	running = "running" // claimed
	away    = "away"    // it gave its place back, and waits for a time
	ended   = "ended"
)

// modelGate is a key of a limit, or a quota policy.
type modelGate struct {
	name, key          string // of a limit
	concurrent, starts int64  // -1: no limit
	window             time.Duration
	log                []modelStart
	until              time.Time // end of a hold
}

type modelStart struct {
	at    time.Time
	units int64
}

// modelUse is how much an execution takes of a limit.
type modelUse struct {
	*modelGate
	units int64
}

// modelWork is one execution.
type modelWork struct {
	id       id.ExecutionID
	state    string
	uses     []modelUse
	budgets  []id.BudgetID
	priority int
	created  time.Time
	pause    time.Duration // before a retry
	started  bool          // since it was admitted
	lease    engine.Lease
	expires  time.Time // of its lease
	wake     time.Time // of one that is away
}

func (x *modelWork) has() bool { return x.state == ready || x.state == running }

// before is the order of claims.
func (x *modelWork) before(y *modelWork) bool {
	return cmp.Or(cmp.Compare(y.priority, x.priority), x.created.Compare(y.created), slices.Compare(uuidOf(x), uuidOf(y))) < 0
}

func uuidOf(x *modelWork) []byte {
	u := x.id.UUID()
	return u[:]
}

// gateModel is the model of limits, quota policies and budgets in front of executions: one call after the other. It decides from
// the executions alone, and keeps no counters.
type gateModel struct {
	*fixture.Fixture
	gates   []*modelGate
	quota   id.QuotaPolicyID
	budgets []id.BudgetID
	all     []*modelWork
}

// held is how much of a limit is in use.
func (m *gateModel) held(g *modelGate) (n int64) {
	for _, x := range m.all {
		for _, u := range x.uses {
			if u.modelGate == g && x.has() {
				n += u.units
			}
		}
	}
	return n
}

// began is how much of a limit has started within the window, or will start.
func (m *gateModel) began(g *modelGate) (n int64) {
	for _, s := range g.log {
		if s.at.After(m.Time().Add(-g.window)) {
			n += s.units
		}
	}
	for _, x := range m.all {
		for _, u := range x.uses {
			if u.modelGate == g && x.has() && !x.started {
				n += u.units
			}
		}
	}
	return n
}

// fits reports whether a limit has room. An execution that takes more than the whole limit needs all of it.
func (m *gateModel) fits(u modelUse) bool {
	if u.until.After(m.Time()) {
		return false
	}
	fits := func(limit, used int64) bool { return limit < 0 || limit > 0 && limit-used >= min(u.units, limit) }
	return fits(u.concurrent, m.held(u.modelGate)) && fits(u.starts, m.began(u.modelGate))
}

// exhausted are the budgets whose usage and reservations have reached a hard limit. Their sums have a model of their own.
func (m *gateModel) exhausted(t *testing.T) map[id.BudgetID]bool {
	t.Helper()
	is := make(map[id.BudgetID]bool)
	for _, b := range m.budgets {
		found, err := budget.Get(t.Context(), m.Fixture.Engine, b)
		if err != nil {
			t.Fatal(err)
		}
		is[b] = found.Usage["n"]+found.Reserved["n"] >= found.Limits["n"].Hard
	}
	return is
}

func (m *gateModel) admissible(x *modelWork, exhausted map[id.BudgetID]bool) bool {
	return !slices.ContainsFunc(x.budgets, func(b id.BudgetID) bool { return exhausted[b] }) &&
		!slices.ContainsFunc(x.uses, func(u modelUse) bool { return !m.fits(u) })
}

// compare reads where each execution is. The only step that the model has not made itself is an admission, for which it must
// have room.
func (m *gateModel) compare(t *testing.T, r *rapid.T) {
	type row struct {
		ExecutionID id.ExecutionUUID
		State       string
	}
	stored := make(map[id.ExecutionUUID]string)
	for _, s := range fixture.All[row](t, m.Pool, `
		SELECT execution_id, CASE
			WHEN lifecycle_phase IN ('terminal', 'cancelled') THEN 'ended' WHEN lifecycle_phase = 'active' THEN 'running'
			WHEN ffx_gate_id IS NOT NULL THEN 'waits' WHEN eligibility_state = 'eligible_now' THEN 'ready' ELSE 'away' END AS state
		FROM ff_exec_core`) {
		stored[s.ExecutionID] = s.State
	}
	exhausted := m.exhausted(t)
	slices.SortFunc(m.all, func(x, y *modelWork) int {
		if x.before(y) {
			return -1
		}
		return 1
	})
	var late []*modelWork
	for _, x := range m.all {
		got := stored[x.id.UUID()]
		switch {
		case got == x.state:
		case x.state != waits || got != ready:
			r.Fatalf("%s is stored as %q, want %q", x.id, got, x.state)
		case m.admissible(x, exhausted):
			x.state, x.started = ready, false
		default:
			late = append(late, x)
		}
	}
	for _, x := range late {
		r.Fatalf("%s is admitted without room: %s", x.id, m.describe(x, exhausted))
	}
	m.compareBounds(t, r)
}

// compareBounds: the stored bounds are never too low.
func (m *gateModel) compareBounds(t *testing.T, r *rapid.T) {
	type row struct {
		Name, Key     string
		Held, Started int64
	}
	rows := fixture.All[row](t, m.Pool, "SELECT coalesce(limit_name, '') AS name, key, held, started FROM ffx_gate")
	for _, g := range m.gates {
		i := slices.IndexFunc(rows, func(row row) bool { return row.Name == g.name && row.Key == g.key })
		var bounds row
		if i >= 0 {
			bounds = rows[i]
		}
		if held, began := m.held(g), m.began(g); g.concurrent >= 0 && bounds.Held < held || g.starts >= 0 && bounds.Started < began {
			r.Fatalf("the bounds of %s %q are %d and %d, in use are %d and %d", g.name, g.key, bounds.Held, bounds.Started, held, began)
		}
	}
}

func (m *gateModel) describe(x *modelWork, exhausted map[id.BudgetID]bool) (text string) {
	for _, u := range x.uses {
		text += fmt.Sprintf("%d of %s %q, where %d of %d run and %d of %d start; ",
			u.units, u.name, u.key, m.held(u.modelGate), u.concurrent, m.began(u.modelGate), u.starts)
	}
	for _, b := range x.budgets {
		text += fmt.Sprintf("a budget, exhausted: %v; ", exhausted[b])
	}
	return text
}

// quiet runs the gate until it does nothing more. Then nothing waits that has room, unless it stands behind an execution that has
// none at a limit that both need.
func (m *gateModel) quiet(t *testing.T, r *rapid.T) {
	for {
		n, err := upkeep.Of(m.Engine).AdmitWaiting(t.Context(), rapid.SampledFrom([]int{10, 100}).Draw(r, "batch"))
		if err != nil {
			r.Fatal(err)
		}
		m.compare(t, r)
		if n == 0 {
			break
		}
	}
	exhausted := m.exhausted(t)
	full := make(map[*modelGate]bool)
	for _, x := range m.all { // compare has sorted them
		if x.state != waits {
			continue
		}
		if m.admissible(x, exhausted) && !slices.ContainsFunc(x.uses, func(u modelUse) bool { return full[u.modelGate] }) {
			r.Fatalf("%s waits although there is room: %s", x.id, m.describe(x, exhausted))
		}
		for _, u := range x.uses {
			full[u.modelGate] = full[u.modelGate] || !m.fits(u)
		}
	}
}

// in returns an execution in a state, or nil.
func (m *gateModel) in(r *rapid.T, states ...string) *modelWork {
	var found []*modelWork
	for _, x := range m.all {
		if slices.Contains(states, x.state) && (x.state != running || x.expires.After(m.Time())) {
			found = append(found, x)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found[rapid.IntRange(0, len(found)-1).Draw(r, "execution")]
}

func (m *gateModel) leave(x *modelWork, state string) { x.state, x.started = state, false }

// goAway gives the place back until a time.
func (m *gateModel) goAway(x *modelWork, wake time.Time) {
	m.leave(x, away)
	x.wake = wake
}

func (m *gateModel) create(t *testing.T, r *rapid.T) {
	spec := engine.ExecutionSpec{Lane: m.Lane, Kind: "test", Priority: rapid.IntRange(0, 1).Draw(r, "priority")}
	x := &modelWork{state: waits, priority: spec.Priority, created: m.Time(), pause: rapid.SampledFrom([]time.Duration{0, 5 * time.Second}).Draw(r, "pause")}
	spec.Policy = &policy.Execution{MaxReclaims: policy.ReclaimLimit, Retry: &policy.Retry{MaxRetries: 1000, Backoff: policy.Fixed(x.pause)}}
	for _, g := range m.gates {
		if !rapid.Bool().Draw(r, "uses") || slices.ContainsFunc(x.uses, func(u modelUse) bool { return u.name == g.name }) {
			continue
		}
		use := modelUse{g, 1}
		if g.name == "" {
			q := m.quota
			spec.QuotaPolicy = &q
		} else {
			use.units = rapid.Int64Range(1, 2).Draw(r, "units")
			spec.Limits = append(spec.Limits, engine.LimitKey{Name: g.name, Key: g.key, Units: int(use.units)})
		}
		x.uses = append(x.uses, use)
	}
	for _, b := range m.budgets {
		if rapid.IntRange(0, 3).Draw(r, "within") == 0 {
			x.budgets = append(x.budgets, b)
		}
	}
	if spec.Budgets = x.budgets; len(x.uses)+len(x.budgets) == 0 {
		x.state = ready
	}
	created, err := m.CreateExecution(t.Context(), spec)
	if err != nil {
		r.Fatal(err)
	}
	x.id = created.ID
	m.all = append(m.all, x)
}

func (m *gateModel) claim(t *testing.T, r *rapid.T) {
	limit := rapid.IntRange(1, 4).Draw(r, "limit")
	claimed, err := m.Claim(t.Context(), m.Worker(), limit)
	n := 0
	for _, x := range m.all {
		if x.state == ready {
			n++
		}
	}
	if err != nil || len(claimed) != min(limit, n) {
		r.Fatalf("claimed %d of %d, limit %d, %v", len(claimed), n, limit, err)
	}
	for _, c := range claimed {
		x := m.all[slices.IndexFunc(m.all, func(x *modelWork) bool { return x.id == c.ID })]
		if x.state != ready {
			r.Fatalf("claimed %s, which %s", x.id, x.state)
		}
		x.state, x.lease, x.expires = running, c.Lease, m.Time().Add(fixture.LeaseTTL)
		for _, u := range x.uses {
			if !x.started {
				u.log = append(u.log, modelStart{m.Time(), u.units})
			}
		}
		x.started = true
	}
}

// holds returns the acts of the holder of a lease.
func (m *gateModel) holds(t *testing.T) map[string]func(r *rapid.T, x *modelWork) error {
	ctx := t.Context()
	return map[string]func(r *rapid.T, x *modelWork) error{
		"complete": func(_ *rapid.T, x *modelWork) error {
			m.leave(x, ended)
			return m.CompleteExecution(ctx, x.lease, nil)
		},
		"fail": func(_ *rapid.T, x *modelWork) error {
			if x.state = ready; x.pause > 0 {
				m.goAway(x, m.Time().Add(x.pause))
			}
			_, err := m.FailExecution(ctx, x.lease, engine.Failure{})
			return err
		},
		"release": func(_ *rapid.T, x *modelWork) error {
			m.leave(x, waits)
			_, err := m.ReleaseLeases(ctx, []engine.Lease{x.lease})
			return err
		},
		"delay": func(_ *rapid.T, x *modelWork) error {
			m.goAway(x, m.Time().Add(time.Second))
			return m.DelayExecution(ctx, x.lease, x.wake)
		},
		"suspend": func(_ *rapid.T, x *modelWork) error {
			m.goAway(x, m.Time().Add(2*time.Second))
			_, err := m.Engine.Suspend(ctx, engine.SuspendSpec{Lease: x.lease, Condition: engine.Received("go"), Timeout: 2 * time.Second})
			return err
		},
		"reserve": func(r *rapid.T, x *modelWork) error {
			amounts := map[string]int64{"n": rapid.Int64Range(1, 4).Draw(r, "amount")}
			_, err := budget.Reserve(ctx, m.Fixture.Engine, x.lease.Fence, budget.ReserveSpec{Budgets: m.budgets[:1], Amounts: amounts})
			return err
		},
		"settle": func(r *rapid.T, x *modelWork) error {
			used := map[string]int64{"n": rapid.Int64Range(0, 2).Draw(r, "amount")}
			_, err := budget.Settle(ctx, m.Fixture.Engine, x.lease.Fence, budget.SettleSpec{Budgets: m.budgets[:1], Used: used})
			return err
		},
	}
}

// advance lets time pass, and runs the jobs that look at it.
func (m *gateModel) advance(t *testing.T, r *rapid.T) {
	m.Advance(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 3 * time.Second, fixture.LeaseTTL}).Draw(r, "time"))
	if rapid.Bool().Draw(r, "jobs") {
		mt := upkeep.Of(m.Engine)
		for _, job := range []func(context.Context, int) (int, error){mt.ExpireLeases, mt.PromoteDelayed, mt.ExpireWaits, mt.ReleaseReservations} {
			if _, err := job(t.Context(), 100); err != nil {
				r.Fatal(err)
			}
		}
		for _, x := range m.all {
			switch {
			case x.state == running && !x.expires.After(m.Time()):
				x.state = ready // a lost lease keeps the place
			case x.state == away && !x.wake.After(m.Time()):
				if x.state = waits; len(x.uses)+len(x.budgets) == 0 {
					x.state = ready
				}
			}
		}
	}
}

// operate is what an operator does to limits, budgets and executions.
func (m *gateModel) operate(t *testing.T, r *rapid.T, act string) (err error) {
	switch act {
	case "set a limit":
		i := rapid.IntRange(0, 2).Draw(r, "limit")
		units := rapid.IntRange(0, 3).Draw(r, "units")
		for _, g := range m.gates {
			if g.name != m.gates[i].name {
				continue
			}
			if g.window > 0 {
				g.starts = int64(units)
			} else {
				g.concurrent = int64(units)
			}
		}
		err = limit.Set(t.Context(), m.Engine, limit.Name{Name: m.gates[i].name}, limit.Setting{Units: units})
	case "report":
		usage := budget.Usage{Budget: m.budgets[rapid.IntRange(0, 1).Draw(r, "budget")], Amounts: map[string]int64{"n": rapid.Int64Range(1, 5).Draw(r, "amount")}}
		_, err = budget.Report(t.Context(), m.Fixture.Engine, usage)
	case "reset":
		_, err = budget.Reset(t.Context(), m.Fixture.Engine, m.budgets[rapid.IntRange(0, 1).Draw(r, "budget")])
	case "cancel":
		if x := m.in(r, waits, ready, running, away); x != nil {
			m.leave(x, ended)
			err = m.CancelExecution(t.Context(), engine.CancelSpec{ID: x.id})
		}
	}
	return err
}

// hold holds a key of a limit, or ends its hold. What is ready with the key waits again.
func (m *gateModel) hold(t *testing.T, r *rapid.T) {
	g := m.gates[rapid.IntRange(0, 2).Draw(r, "key")]
	until := m.Time().Add(rapid.SampledFrom([]time.Duration{0, time.Second, 4 * time.Second}).Draw(r, "hold"))
	switch ends := !until.After(m.Time()); {
	case ends:
		g.until = time.Time{}
	case until.After(g.until):
		g.until = until
	}
	for _, x := range m.all {
		if x.state == ready && g.until.After(m.Time()) && slices.ContainsFunc(x.uses, func(u modelUse) bool { return u.modelGate == g }) {
			m.leave(x, waits)
		}
	}
	got, err := limit.Hold(t.Context(), m.Engine, limit.Name{Name: g.name}, g.key, limit.Holding{Until: until})
	if err != nil || !got.Equal(g.until) {
		r.Fatalf("held until %v, %v, want %v", got, err, g.until)
	}
}

// begin makes limits, a quota policy and budgets of their own for a run.
func (m *gateModel) begin(t *testing.T, r *rapid.T, run int) {
	if _, err := m.Pool.Exec(t.Context(), `TRUNCATE ff_exec_core, ff_attempt, ffx_ready, ffx_blocked, ffx_lease_timer, ff_lease_event,
		ff_completion_event, ff_suspension_current, ff_waitpoint_pending, ffx_gate, ffx_gate_use`); err != nil {
		r.Fatal(err)
	}
	places, rate := fmt.Sprint("places ", run), fmt.Sprint("rate ", run)
	m.all, m.budgets = nil, nil
	m.gates = []*modelGate{
		{name: places, key: "a", concurrent: 2, starts: -1},
		{name: places, key: "b", concurrent: 2, starts: -1},
		{name: rate, key: "a", concurrent: -1, starts: 3, window: 4 * time.Second},
		{concurrent: 3, starts: 4, window: 5 * time.Second},
	}
	if err := limit.Declare(t.Context(), m.Engine,
		limit.Spec{Name: places, Units: 2}, limit.Spec{Name: rate, Units: 3, Window: 4 * time.Second}); err != nil {
		r.Fatal(err)
	}
	m.quota = quota(t, m.Fixture, interop.QuotaPolicySpec{MaxRunning: 3, MaxStarts: 4, Window: 5 * time.Second})
	for range 2 {
		m.budgets = append(m.budgets, budgetOf(t, m.Fixture, 6))
	}
}

// Random calls on executions with limits, a quota policy and budgets agree with a model that counts anew each time: nothing is
// admitted without room, and nothing waits that has room once the gate has nothing to do.
func TestGateMatchesTheModel(t *testing.T) {
	m := &gateModel{Fixture: fixture.NewCloned(t)}
	actions := map[string]func(*rapid.T){
		"create":  func(r *rapid.T) { m.create(t, r) },
		"create2": func(r *rapid.T) { m.create(t, r) },
		"claim":   func(r *rapid.T) { m.claim(t, r) },
		"quiet":   func(r *rapid.T) { m.quiet(t, r) },
		"advance": func(r *rapid.T) { m.advance(t, r) },
		"hold":    func(r *rapid.T) { m.hold(t, r) },
		"pass": func(r *rapid.T) {
			if _, err := upkeep.Of(m.Engine).AdmitWaiting(t.Context(), rapid.IntRange(1, 4).Draw(r, "batch")); err != nil {
				r.Fatal(err)
			}
		},
		"": func(r *rapid.T) { m.compare(t, r) },
	}
	for name, act := range m.holds(t) {
		actions[name] = func(r *rapid.T) {
			if x := m.in(r, running); x != nil {
				if err := act(r, x); err != nil {
					r.Fatalf("%s: %v", name, err)
				}
			}
		}
	}
	for _, act := range []string{"set a limit", "report", "reset", "cancel"} {
		actions[act] = func(r *rapid.T) {
			if err := m.operate(t, r, act); err != nil {
				r.Fatalf("%s: %v", act, err)
			}
		}
	}
	run := 0
	runs := fixture.ForAMoment(t, func(r *rapid.T) {
		run++
		m.begin(t, r, run)
		r.Repeat(actions)
		m.quiet(t, r)
	})
	t.Logf("%d runs", runs)
}
