package steps

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// op is a part of a random program.
type op struct {
	kind     string // plain, tx, sleep, wait, turn, call, nested, loop
	name     string
	end      string // of a turn: nothing, sleep, await or complete
	fails    int    // first calls, of a plain step, one in a transaction or a turn
	retried  bool   // within the attempt
	times    int    // a loop, or how many executions a call creates
	children []op   // of a nested step or a loop
}

func (o op) String() string {
	text := o.kind + " " + o.name
	switch {
	case o.kind == "loop":
		return fmt.Sprintf("%s %d times %v", text, o.times, o.children)
	case o.kind == "nested":
		return fmt.Sprintf("%s %v", text, o.children)
	case o.kind == "call":
		return fmt.Sprintf("%s of %d", text, o.times)
	}
	if o.end != "" {
		text += " then " + o.end
	}
	if o.retried {
		text += ", retried,"
	}
	if o.fails > 0 {
		text += fmt.Sprintf(" fails %d times", o.fails)
	}
	return text
}

// drawProgram draws a program. The names of its steps are unique.
func drawProgram(rt *rapid.T, depth int, names *int) []op {
	kinds := []string{"plain", "tx", "sleep", "wait", "turn", "call"}
	if depth > 0 {
		kinds = append(kinds, "nested", "loop")
	}
	ops := make([]op, rapid.IntRange(1, 2+depth).Draw(rt, "length"))
	for i := range ops {
		*names++
		o := op{kind: rapid.SampledFrom(kinds).Draw(rt, "kind"), name: fmt.Sprintf("s%d", *names)}
		switch o.kind {
		case "turn":
			o.end = rapid.SampledFrom([]string{"", "sleep", "await"}).Draw(rt, "end")
			fallthrough
		case "plain", "tx":
			o.fails, o.retried = rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(rt, "failures"), rapid.Bool().Draw(rt, "retried")
		case "call":
			o.times = rapid.IntRange(1, 3).Draw(rt, "executions")
		case "loop":
			o.times = rapid.IntRange(1, 3).Draw(rt, "times")
			fallthrough
		case "nested":
			o.children = drawProgram(rt, depth-1, names)
		}
		ops[i] = o
	}
	return ops
}

// crash is what happens to a run of a handler when it comes to a place: before a step, in it, or after it. After a lost
// lease the run goes on, alone or behind a rival that has gone on with the execution.
type crash struct {
	place int
	how   string
}

var crashes = rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) crash {
	return crash{rapid.IntRange(1, 30).Draw(rt, "place"), rapid.SampledFrom([]string{
		"panic", "failure", "lost lease", "rival", "cut connections", "stopped worker",
	}).Draw(rt, "how")}
}), 0, 8)

// stepModel is an execution of a random program, and what is known of its steps.
type stepModel struct {
	t       *testing.T
	c       *fixture.Crew
	eng     *engine.Engine // of the workers, whose connections are cut
	later   *engine.Engine
	x       id.ExecutionID
	other   id.ExecutionID // gets signals of turns
	program []op
	crashes []crash // of the first runs, one each

	playing atomic.Int64 // handlers that run
	rivals  atomic.Int64 // handlers that have lost their leases, and stand still while a rival runs

	mu      sync.Mutex
	runs    int
	calls   map[string]int // of functions, by step
	history []string
	stored  map[string]engine.Step
}

func (m *stepModel) note(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history = append(m.history, fmt.Sprintf(format, args...))
}

// Programs of steps that are run by workers that crash have the result of a plain interpretation. A stored step keeps its
// place and its result, and its function isn't called again, except by a worker that has lost its lease and stores nothing.
// Steps that follow each other have places in this order. Each turn has its row, execution and signal once, and each call its
// executions.
func TestStepsFollowTheModel(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Exec(t, effectTables)
	later, err := engine.New(f.Pool, engine.Config{Now: func() time.Time { return time.Now().Add(time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	fixture.Check(t, func(rt *rapid.T) {
		names := 0
		m := &stepModel{
			t: t, c: fixture.CrewOn(t, fixture.On(t, f.Pool, f.Url), engine.Config{}), later: later,
			program: drawProgram(rt, 2, &names), crashes: crashes.Draw(rt, "crashes"),
			calls: make(map[string]int), stored: make(map[string]engine.Step),
		}
		if rapid.Bool().Draw(rt, "completes in a turn") {
			m.program = append(m.program, op{kind: "turn", name: "end", end: "complete"})
		}
		defer func() {
			if rt.Failed() {
				rt.Logf("program %v\nhistory of %s:\n%s", m.program, m.x, strings.Join(m.history, "\n"))
			}
		}()
		m.eng, err = engine.New(m.pool(rt), engine.Config{})
		m.must(rt, err)
		defer m.eng.Pool().Close()
		m.x = m.c.Create(t, func(s *engine.ExecutionSpec) {
			s.Kind, s.Policy = "program", &policy.Execution{Retry: policy.ImmediateRetries(200), MaxReclaims: 1000}
		})
		m.other = m.c.Create(t, func(s *engine.ExecutionSpec) { s.Lane = beside(m.c.Lane) })
		for _, name := range waits(m.program) {
			m.must(rt, goOn(name).Send(t.Context(), m.c.Engine, m.x, "signal "+name))
		}
		for n := 0; m.c.Stored(t, m.x).State != fixture.StateCompleted; n++ {
			if n > 400 {
				rt.Fatal("the execution does not end")
			}
			m.must(rt, m.run())
			m.checkSteps(rt)
		}
		m.checkEnd(rt)
	})
}

func (m *stepModel) must(rt *rapid.T, err error) {
	if err != nil {
		rt.Fatal(err)
	}
}

// pool returns the pool of the workers, which can be told by its name.
func (m *stepModel) pool(rt *rapid.T) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(m.c.Url)
	m.must(rt, err)
	config.ConnConfig.RuntimeParams["application_name"] = string(m.c.Lane)
	config.MaxConns = 30
	pool, err := pgxpool.NewWithConfig(m.t.Context(), config)
	m.must(rt, err)
	return pool
}

// goOn is the signal that a wait of a program waits for.
func goOn(name string) engine.Signal[string] { return engine.Signal[string]{Name: "go on " + name} }

// waits are the names of the waits of a program. A wait in a loop has a signal for each turn.
func waits(ops []op) (names []string) {
	walk(ops, nil, func(o op, name string) {
		if o.kind == "wait" || o.end == "await" {
			names = append(names, name)
		}
	})
	return names
}

// checkSteps compares the stored steps with what was stored before.
func (m *stepModel) checkSteps(rt *rapid.T) {
	steps, err := m.c.Engine.StepResults(m.t.Context(), m.x)
	m.must(rt, err)
	found, places := make(map[string]engine.Step), make(map[int]string)
	for _, s := range steps {
		if other, taken := places[s.Seq]; taken {
			rt.Errorf("steps %q and %q have place %d", other, s.Name, s.Seq)
		}
		found[s.Name], places[s.Seq] = s, s.Name
	}
	for name, before := range m.stored {
		if before.Outcome == engine.StepCalled { // it gets its results
			before.Outcome, before.Result, before.ResultSize = found[name].Outcome, found[name].Result, found[name].ResultSize
			before.Attempt, before.EndedAt, before.Tries = found[name].Attempt, found[name].EndedAt, found[name].Tries
		}
		if fmt.Sprint(found[name]) != fmt.Sprint(before) {
			rt.Errorf("step %q was %+v, is %+v", name, before, found[name])
		}
	}
	m.stored = found
}

// checkEnd compares the outcome with a plain interpretation of the program.
func (m *stepModel) checkEnd(rt *rapid.T) {
	want := strings.Join(m.interpret(m.program), " ")
	if got := string(m.c.Stored(m.t, m.x).Result); got != `"`+want+`"` {
		rt.Errorf("the result is %s, want %q", got, want)
	}
	last, steps := -1, 0
	inPlace := func(name string, ordered bool) {
		s, ok := m.stored[name]
		if steps++; !ok {
			rt.Errorf("step %q is not stored", name)
		}
		if !ordered {
			return
		}
		if s.Seq <= last {
			rt.Errorf("step %q has place %d, after one with %d", name, s.Seq, last)
		}
		last = s.Seq
	}
	var booked, turns, called []string
	walk(m.program, nil, func(o op, name string) {
		if o.kind == "wait" {
			inPlace("signal "+goOn(name).Name, true)
			return
		}
		inPlace(name, o.kind != "nested") // a nested step may have begun anew after its parts
		switch o.kind {
		case "tx":
			booked = append(booked, name)
		case "turn":
			booked, turns = append(booked, name), append(turns, name)
		case "call":
			called = append(called, slices.Repeat([]string{"singer"}, o.times)...)
		}
		if o.end == "await" {
			inPlace("signal "+goOn(name).Name, true)
		}
	})
	if steps != len(m.stored) {
		rt.Errorf("%d steps are stored, want %d", len(m.stored), steps)
	}
	same := func(what string, want []string, query string, arg any) {
		got := fixture.Texts(m.t, m.c.Pool, query, arg)
		if slices.Sort(want); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			rt.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	same("booked", booked, "SELECT step FROM booked WHERE execution = $1", m.x.UUID())
	same("created by turns", turns, `
		SELECT substr(raw_fields ->> 'execution_kind', 10) FROM ff_exec_core WHERE lane_id = $1 AND raw_fields ->> 'execution_kind' LIKE 'child of %'`,
		beside(m.c.Lane))
	same("signals of turns", turns, "SELECT source_identity FROM ff_signal_event WHERE execution_id = $1", m.other.UUID().String())
	same("called", called, `
		SELECT raw_fields ->> 'execution_kind' FROM ff_exec_core WHERE lane_id = $1 AND raw_fields ->> 'execution_kind' <> 'program'`, m.c.Lane)
	if late := fixture.Texts(m.t, m.c.Pool, "SELECT step FROM effect WHERE execution = $1 AND late", m.x.UUID()); len(late) > 0 {
		rt.Errorf("%q ran after they were stored", late)
	}
}
