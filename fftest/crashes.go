package fftest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// maxPoints limits the round trips of a scenario.
const maxPoints = 2_000

// Crashes runs a scenario once for every moment at which the worker's process could die, and requires the same outcome
// every time. The moments are before and after each round trip of the process to the database, by [Kit.Drain]: for
// claims, handlers, settlements and background work. "After" means that the server has run the statements, and the
// process never gets the answer. Then Crashes advances the clock past the lease, and Drain continues with a new
// process.
//
//	fftest.Crashes(t, func(kit *fftest.Kit) any {
//		bank := newBank()
//		worker.Handle(kit.Worker, Fulfil, fulfilBy(bank))
//		fftest.Create(kit, Fulfil, order)
//		kit.Drain()
//		return bank.charges()
//	})
//
// The scenario makes all it uses, and returns an outcome independent of deaths: amounts and results, not times and ids.
// Each moment is a subtest with a kit of its own; the name of the subtest repeats the moment:
//
//	go test -run 'TestFulfil/after_round_trip_12'
//
// Go can't end a handler from outside: after the death the handler runs on to its end, without the database. So if a
// handler does something elsewhere between two round trips, it does so even in the run that dies after the first one,
// where a real process might not. Variables outlive the death too. One process dies, once in a run.
//
// A moment is found by counting, so the round trips must have the same order in every run: Crashes is sequential, and
// fails if two round trips are under way at once. In handlers, don't use [Kit.Pool] on several goroutines, or for
// another worker.
func Crashes(t *testing.T, scenario func(kit *Kit) any, option ...Option) {
	t.Helper()
	c := &crashes{scenario: scenario, options: option}
	if !t.Run("without_a_death", func(t *testing.T) { c.run(t, point{}) }) {
		return
	}
	for trip := 1; trip <= maxPoints; trip++ {
		for _, after := range []bool{false, true} {
			c.over = false
			t.Run(point{trip, after}.name(), func(t *testing.T) {
				if !c.known { // the subtest runs alone
					c.run(t, point{})
				}
				c.run(t, point{trip, after})
			})
			if c.over {
				return
			}
		}
	}
}

// crashes are the runs of a scenario.
type crashes struct {
	scenario func(kit *Kit) any
	options  []Option
	want     any
	known    bool
	over     bool // the last run had fewer round trips
}

// run runs the scenario with a process dying at a moment, or never.
func (c *crashes) run(t *testing.T, dies point) {
	t.Helper()
	kit := New(t, append(slices.Clip(c.options), func(o *options) { o.crashes, o.dies = true, dies })...)
	defer func() {
		at := kit.process.at
		beside := kit.process.overlap()
		c.over = dies.trip > 0 && at == "" || beside != ""
		switch {
		case beside != "":
			t.Errorf("fftest: Crashes needs one round trip after the other, but %s: handlers use the kit's pool on several goroutines, or another worker runs on it", beside)
		case t.Failed() && at != "":
			t.Logf("the worker died at this moment: %s, %s", strings.ReplaceAll(dies.name(), "_", " "), at)
		case dies.trip == maxPoints && dies.after && !c.over:
			t.Errorf("fftest: the scenario has more than %d round trips", maxPoints)
		}
	}()
	got := c.scenario(kit)
	if dies.trip == 0 {
		c.want, c.known = got, true
		return
	}
	if diff := difference(c.want, got); diff != "" && kit.process.at != "" && kit.process.overlap() == "" {
		t.Errorf("the outcome differs from that of a run without a death (-without +with):\n%s", diff)
	}
}

func (p point) name() string {
	if p.after {
		return fmt.Sprintf("after_round_trip_%d", p.trip)
	}
	return fmt.Sprintf("before_round_trip_%d", p.trip)
}
