package gate

import (
	"math"
	"slices"
	"testing"
)

func TestDecide(t *testing.T) {
	a, b, x, y := ID{1}, ID{2}, ID{3}, ID{4}
	limits := func(roomA, roomB int64) map[ID]*Limit {
		return map[ID]*Limit{a: {Concurrent: roomA, Starts: None}, b: {Concurrent: None, Starts: roomB}}
	}
	uses := []Use{{a, 1}, {b, 2}}
	for _, c := range []struct {
		name  string
		state State
		of    Waiting
		want  Decision
	}{
		{"all have room", State{Limits: limits(1, 2)}, Waiting{At: a, Uses: uses}, Decision{Verb: Admit}},
		{"its own is full", State{Limits: limits(0, 2)}, Waiting{At: a, Uses: uses}, Decision{}},
		{"another one is full", State{Limits: limits(0, 2)}, Waiting{At: b, Uses: uses}, Decision{Verb: Move, To: a}},
		{"another one is busy", State{Limits: map[ID]*Limit{a: {Concurrent: 1, Starts: None}}}, Waiting{At: a, Uses: uses}, Decision{Busy: true}},
		{"one is busy and one full", State{Limits: map[ID]*Limit{b: {Concurrent: 0, Starts: None}}}, Waiting{At: a, Uses: uses}, Decision{Verb: Move, To: b}},
		{
			"an exhausted budget comes first", State{Limits: limits(0, 0), Exhausted: map[ID]bool{y: true}},
			Waiting{At: a, Budgets: []ID{x, y}, Uses: uses}, Decision{Verb: Move, To: y, Budget: true},
		},
		{"its own budget", State{Exhausted: map[ID]bool{x: true}}, Waiting{At: x, Budgets: []ID{x}}, Decision{}},
		{"budgets without limits", State{}, Waiting{At: x, Budgets: []ID{x}}, Decision{Verb: Admit}},
		{"more than the whole limit", State{Limits: limits(1, 9)}, Waiting{At: a, Uses: []Use{{a, 5}}}, Decision{Verb: Admit}},
	} {
		if got := c.state.Decide(c.of); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// An execution that does not fit keeps the room from those behind it, or it would wait for ever.
func TestDecideKeepsTheOrder(t *testing.T) {
	a := ID{1}
	s := State{Limits: map[ID]*Limit{a: {Concurrent: 4, Starts: None, Held: 2}}}
	for i, units := range []int64{1, 3, 1} {
		want := Decision{}
		if i == 0 {
			want.Verb = Admit
		}
		if got := s.Decide(Waiting{At: a, Uses: []Use{{a, units}}}); got != want {
			t.Errorf("%d: %+v, want %+v", i, got, want)
		}
	}
}

// A newcomer that could start otherwise wants the units of executions in use, and keeps the room that its other limits have.
func TestDecideReplaces(t *testing.T) {
	a, b := ID{1}, ID{2}
	s := State{Limits: map[ID]*Limit{
		a: {Concurrent: 2, Starts: None, Held: 2, Counted: true, Replaces: true}, b: {Concurrent: 1, Starts: None, Counted: true},
	}}
	uses := []Use{{a, 1}, {b, 1}}
	for i, want := range []Decision{{Verb: Replace}, {Verb: Move, To: b}} {
		if got := s.Decide(Waiting{At: a, Uses: uses}); got != want {
			t.Errorf("%d: %+v, want %+v", i, got, want)
		}
	}
	if n := s.Limits[a].Surplus(); n != 1 {
		t.Errorf("%d units have to go, want 1", n)
	}
	s.Limits[a].Concurrent = 0
	if got := s.Decide(Waiting{At: a, Uses: uses[:1]}); got != (Decision{}) {
		t.Errorf("where nothing may start: %+v", got)
	}
}

func TestShares(t *testing.T) {
	for _, c := range []struct {
		rooms []int64
		total int
		want  []int32
	}{
		{nil, 5, []int32{}},
		{[]int64{3, math.MaxInt64}, 10, []int32{3, 7}},
		{[]int64{100, 1, 100}, 11, []int32{5, 1, 5}},
		{[]int64{0, 5}, 3, []int32{0, 3}},
		{[]int64{9, 9, 9}, 2, []int32{1, 1, 0}},
	} {
		if got := Shares(c.rooms, c.total); !slices.Equal(got, c.want) {
			t.Errorf("%v, %d: %v, want %v", c.rooms, c.total, got, c.want)
		}
	}
}
