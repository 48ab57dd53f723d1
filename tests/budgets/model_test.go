package budgets

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// modelBudget is what a budget should be. It decides in the plainest way.
type modelBudget struct {
	id     id.BudgetID
	limits limits // nil: it does not exist
	usage  amounts
	ledger map[id.ExecutionID]amounts
	held   map[id.Fence]amounts
	over   []id.Fence      // leases that have ended, and whose reservations still count
	above  map[string]bool // dimensions above their hard limits when these were made
	keys   map[string]modelKey

	breaches, soft int64
}

type modelKey struct {
	result  budget.Result
	expires time.Time
}

func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// reserved is the sum of all reservations in a dimension.
func (m *modelBudget) reserved(d string) (n int64) {
	for _, held := range m.held {
		n = sum(n, held[d])
	}
	return n
}

// free ends the reservations of leases that are over.
func (m *modelBudget) free() {
	for _, l := range m.over {
		delete(m.held, l)
	}
	m.over = nil
}

// refusal returns the breach of amounts, if they are one. lease is the reservation of the caller's lease, own the part of it for
// these amounts: settled amounts within it fit. Before a refusal the reservations of leases that are over return.
func (m *modelBudget) refusal(of, lease, own amounts) (budget.Result, bool) {
	breach, refused := m.breach(of, lease, own)
	if refused {
		m.free()
		breach, refused = m.breach(of, lease, own)
	}
	if refused {
		m.breaches++
	}
	return breach, refused
}

func (m *modelBudget) breach(of, lease, own amounts) (result budget.Result, refused bool) {
	result = ok
	for _, d := range slices.Sorted(maps.Keys(of)) {
		limit, reserved := m.limits[d].Hard, m.reserved(d)
		if limit <= 0 || own != nil && of[d] <= own[d] || sum(sum(m.usage[d], reserved-own[d]), of[d]) <= limit {
			continue
		}
		alone := sum(sum(m.usage[d], lease[d]-own[d]), of[d]) <= limit
		if refused {
			result.ByReservations = result.ByReservations && alone
			continue
		}
		refused = true
		result = budget.Result{
			Outcome: budget.HardBreach, Dimension: d, Current: m.usage[d], Reserved: reserved, Limit: limit, ByReservations: alone,
		}
	}
	return result, refused
}

func (m *modelBudget) reserve(l id.Fence, of amounts) budget.Result {
	if refusal, refused := m.refusal(of, m.held[l], nil); refused {
		return refusal
	}
	if m.held[l] == nil {
		m.held[l] = amounts{}
	}
	result := ok
	for _, d := range slices.Backward(slices.Sorted(maps.Keys(of))) {
		m.held[l][d] = sum(m.held[l][d], of[d])
		if limit := m.limits[d].Soft; limit > 0 && sum(m.usage[d], m.reserved(d)) > limit {
			result = budget.Result{Outcome: budget.SoftBreach, Dimension: d, Current: m.usage[d], Reserved: m.reserved(d), Limit: limit}
		}
	}
	return result
}

func (m *modelBudget) settle(l id.Fence, used, part amounts) budget.Result {
	own := amounts{}
	for d, n := range m.held[l] {
		if own[d] = n; part != nil {
			own[d] = min(n, part[d])
		}
	}
	if refusal, refused := m.refusal(used, m.held[l], own); refused {
		return refusal
	}
	for d, n := range own {
		m.held[l][d] -= n
	}
	return m.apply(used)
}

func (m *modelBudget) report(of amounts) budget.Result {
	if refusal, refused := m.refusal(of, nil, nil); refused {
		return refusal
	}
	return m.apply(of)
}

func (m *modelBudget) apply(of amounts) budget.Result {
	dimensions := slices.Sorted(maps.Keys(of))
	result := ok
	for _, d := range slices.Backward(dimensions) {
		m.usage[d] = sum(m.usage[d], of[d])
		if limit := m.limits[d].Soft; limit > 0 && m.usage[d] > limit {
			result = budget.Result{Outcome: budget.SoftBreach, Dimension: d, Current: m.usage[d], Limit: limit}
		}
	}
	if result.Outcome != budget.Ok && m.limits != nil {
		m.soft++
	}
	return result
}

// keyed is a report with a key.
func (m *modelBudget) keyed(key string, now time.Time, first func() budget.Result, again func(budget.Result) budget.Result) budget.Result {
	if known, found := m.keys[key]; key != "" && found && known.expires.After(now) {
		return again(known.result)
	}
	result := first()
	if key != "" {
		m.keys[key] = modelKey{result, now.Add(budget.KeyKept)}
	}
	return result
}

// Budgets agree with a plain model in any order of calls: the usage is the sum of what was applied, no hard limit is ever
// exceeded, and the ledger has what can still be given back.
func TestBudgetsAgreeWithTheModel(t *testing.T) {
	f := fixture.NewCloned(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := &modelBudget{
			id: id.NewBudgetID(), usage: amounts{}, ledger: map[id.ExecutionID]amounts{}, held: map[id.Fence]amounts{}, keys: map[string]modelKey{},
		}
		var holders []id.Fence
		for _, claimed := range f.StartMany(t, 2) {
			holders = append(holders, claimed.Lease.Fence)
		}
		executions := []id.ExecutionID{f.NewExecutionID(f.Lane), f.NewExecutionID(f.Lane)}
		amount := rapid.SampledFrom([]int64{0, 1, 2, 3, 5, math.MaxInt64 - 2})
		draw := func(rt *rapid.T) (amounts, string) {
			of := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), amount, 0, 3).Draw(rt, "amounts")
			return of, rapid.SampledFrom([]string{"", "k", "l"}).Draw(rt, "key")
		}
		check := func(got budget.Result, err error, want budget.Result) {
			if err != nil || !same(got, want) {
				rt.Fatalf("got %+v, %v, want %+v", got, err, want)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"create": func(rt *rapid.T) {
				limit := rapid.SampledFrom([]int64{0, 4, 9, math.MaxInt64})
				of := make(limits)
				for _, d := range []string{"a", "b"} {
					of[d] = budget.Limit{Hard: limit.Draw(rt, "hard"), Soft: limit.Draw(rt, "soft")}
				}
				created, err := budget.Create(t.Context(), f.Engine, budget.Spec{ID: m.id, Limits: of})
				if err != nil || created.Duplicate != (m.limits != nil) {
					rt.Fatal(created, err)
				}
				if m.limits == nil {
					m.limits, m.above = of, map[string]bool{}
					for d, limit := range of {
						m.above[d] = limit.Hard > 0 && sum(m.usage[d], m.reserved(d)) > limit.Hard
					}
				}
			},
			"report": func(rt *rapid.T) {
				of, key := draw(rt)
				got, err := budget.Report(t.Context(), f.Engine, budget.Usage{Budget: m.id, Amounts: of, Key: key})
				place := ""
				if key != "" {
					place = "report " + key
				}
				check(got, err, m.keyed(place, f.Time(), func() budget.Result { return m.report(of) }, func(r budget.Result) budget.Result { return r }))
			},
			"spend": func(rt *rapid.T) {
				of, key := draw(rt)
				x := rapid.SampledFrom(executions).Draw(rt, "execution")
				got, err := budget.RecordSpend(t.Context(), f.Engine, budget.Spend{Budget: m.id, Execution: x, Amounts: of, Key: key})
				place := ""
				if key != "" {
					place = "spend " + key
				}
				check(got, err, m.keyed(place, f.Time(), func() budget.Result {
					result := m.report(of)
					if result.Outcome != budget.HardBreach && len(of) > 0 {
						if m.ledger[x] == nil {
							m.ledger[x] = amounts{}
						}
						for d, n := range of {
							m.ledger[x][d] = sum(m.ledger[x][d], n)
						}
					}
					return result
				}, func(r budget.Result) budget.Result {
					if r.Outcome != budget.HardBreach {
						r = budget.Result{Outcome: budget.AlreadyApplied}
					}
					return r
				}))
			},
			"release": func(rt *rapid.T) {
				x := rapid.SampledFrom(executions).Draw(rt, "execution")
				got, err := budget.Release(t.Context(), f.Engine, m.id, x)
				if err != nil || !maps.Equal(got, m.ledger[x]) {
					rt.Fatalf("released %v, %v, want %v", got, err, m.ledger[x])
				}
				for d, n := range m.ledger[x] {
					m.usage[d] = max(m.usage[d]-n, 0)
				}
				delete(m.ledger, x)
			},
			"reset": func(rt *rapid.T) {
				_, err := budget.Reset(t.Context(), f.Engine, m.id)
				if (err == nil) != (m.limits != nil) {
					rt.Fatal(err)
				}
				if err != nil {
					return
				}
				clear(m.ledger)
				for d := range m.usage {
					m.usage[d] = 0
				}
			},
			"reserve": func(rt *rapid.T) {
				of := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.Int64Range(0, 5), 0, 3).Draw(rt, "amounts")
				l := rapid.SampledFrom(holders).Draw(rt, "holder")
				got, err := budget.Reserve(t.Context(), f.Engine, l, budget.ReserveSpec{Budgets: []id.BudgetID{m.id}, Amounts: of})
				check(got, err, m.reserve(l, of))
			},
			"settle": func(rt *rapid.T) {
				used, key := draw(rt)
				var part amounts
				if key != "" {
					part = rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.Int64Range(0, 5), 0, 3).Draw(rt, "part")
				}
				l := rapid.SampledFrom(holders).Draw(rt, "holder")
				got, err := budget.Settle(t.Context(), f.Engine, l, budget.SettleSpec{Budgets: []id.BudgetID{m.id}, Used: used, Reserved: part})
				check(got, err, m.settle(l, used, part))
			},
			"a holder dies": func(rt *rapid.T) {
				n := rapid.IntRange(0, 1).Draw(rt, "holder")
				if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: holders[n].Execution}); err != nil {
					rt.Fatal(err)
				}
				for range 3 {
					if _, err := f.RenewLease(t.Context(), engine.Lease{Fence: holders[1-n]}, fixture.LeaseTTL); err != nil {
						rt.Fatal(err)
					}
					f.Advance(fixture.LeaseTTL/3 + time.Millisecond)
				}
				m.over = append(m.over, holders[n])
				holders[n] = f.Start(t).Lease.Fence
				if rapid.Bool().Draw(rt, "release") {
					m.free()
					if _, err := upkeep.Of(f.Engine).ReleaseReservations(t.Context(), 100); err != nil {
						rt.Fatal(err)
					}
				}
			},
			"a day": func(rt *rapid.T) {
				f.Advance(budget.KeyKept)
				clear(m.held)
				m.over = nil
				if _, err := upkeep.Of(f.Engine).ReleaseReservations(t.Context(), 100); err != nil {
					rt.Fatal(err)
				}
				for n, claimed := range f.StartMany(t, 2) {
					holders[n] = claimed.Lease.Fence
				}
				if rapid.Bool().Draw(rt, "prune") {
					if _, err := upkeep.Of(f.Engine).PruneUsageKeys(t.Context(), 100); err != nil {
						rt.Fatal(err)
					}
				}
			},
			"": func(rt *rapid.T) {
				if m.limits == nil {
					return
				}
				got := read(t, f, m.id)
				if !maps.Equal(got.Usage, m.usage) || got.Breaches != m.breaches || got.SoftBreaches != m.soft {
					rt.Fatalf("got %+v, want %+v", got, m)
				}
				for _, d := range []string{"a", "b", "c"} {
					if got.Reserved[d] != m.reserved(d) {
						rt.Fatalf("%v is reserved, want %d of %s", got.Reserved, m.reserved(d), d)
					}
					if limit := m.limits[d].Hard; limit > 0 && !m.above[d] && sum(got.Usage[d], got.Reserved[d]) > limit {
						rt.Fatalf("%s is overspent: %+v", d, got)
					}
				}
				var want []string
				for _, of := range m.ledger {
					for d, n := range of {
						want = append(want, fmt.Sprint(d, " ", n))
					}
				}
				if stored := ledger(t, f, m.id); !sameTexts(stored, want) {
					rt.Fatalf("the ledger is %q, want %q", stored, want)
				}
			},
		})
	})
}

func sameTexts(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}
