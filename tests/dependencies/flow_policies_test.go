package dependencies

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// truth is the meaning of a policy, apart from its counters: whether the execution is to run once all its upstreams
// have ended so, and whether it waits for that.
type truth struct {
	group   policy.Group
	runs    func(ends string) bool
	waits   bool // for the last of its upstreams, although the others have decided
	cancels bool // its remaining upstreams once it is decided
}

// An end of an upstream is a letter: s for success, f for failed, c for cancelled, e for expired, x for skipped.
const everyEnd = "sfcex"

func atLeast(k int) func(string) bool {
	return func(ends string) bool { return strings.Count(ends, "s") >= k }
}

// truths are all policies of n upstreams.
func truths(n int) []truth {
	table := []truth{
		{group: policy.AllOf(), runs: atLeast(n)},
		{group: policy.OnFailure(), runs: func(ends string) bool { return strings.Trim(ends, "s") != "" }, waits: true},
		{group: policy.Always(), runs: func(string) bool { return true }, waits: true},
	}
	for on, cancels := range map[policy.OnSatisfied]bool{policy.LetRun: false, policy.CancelRemaining: true} {
		table = append(table, truth{group: policy.AnyOf(on), runs: atLeast(1), cancels: cancels})
		for k := range n {
			table = append(table, truth{group: policy.Quorum(k+1, on), runs: atLeast(k + 1), cancels: cancels})
		}
	}
	return table
}

// after returns the decision when so many of n upstreams have ended: the one on which all possible ends of the others
// agree.
func (p truth) after(n int, ended string) document.Decision {
	if p.waits && len(ended) < n {
		return document.Undecided
	}
	var ways func(ends string) (run, skip bool)
	ways = func(ends string) (run, skip bool) {
		if len(ends) == n {
			return p.runs(ends), !p.runs(ends)
		}
		for _, end := range "sf" { // as good as the others
			r, s := ways(ends + string(end))
			run, skip = run || r, skip || s
		}
		return run, skip
	}
	switch run, skip := ways(ended); {
	case run && skip:
		return document.Undecided
	case run:
		return document.Satisfied
	}
	return document.Impossible
}

// sequences returns the texts of n letters.
func sequences(n int, letters string) []string {
	all := []string{""}
	for range n {
		var longer []string
		for _, s := range all {
			for _, letter := range letters {
				longer = append(longer, s+string(letter))
			}
		}
		all = longer
	}
	return all
}

// endOf is how a letter is counted.
func endOf(letter byte) state.Bucket {
	return map[byte]state.CompletionOutcome{
		's': state.CompletionSuccess, 'f': state.CompletionFailure, 'c': state.CompletionCancelled, 'e': state.CompletionExpired,
		'x': state.CompletionSkipped,
	}[letter].Bucket()
}

// Every policy of up to five upstreams, six in a soak, which end in every way in every order: at each step the
// counters give the decision that follows from the meaning of the policy.
func TestPoliciesMatchTheirTruthTable(t *testing.T) {
	t.Parallel()
	steps := 0
	for n := 1; n <= soak.Size(t, 5, 6); n++ {
		for _, p := range truths(n) {
			stored := document.GroupOf(p.group)
			want := make(map[string]document.Decision) // by the ends so far, with all that did not succeed alike
			for _, ends := range sequences(n, everyEnd) {
				counted := make(map[state.Bucket]int64)
				for i := range len(ends) {
					counted[endOf(ends[i])]++
					ended := strings.NewReplacer("c", "f", "e", "f", "x", "f").Replace(ends[:i+1])
					decision, known := want[ended]
					if !known {
						decision = p.after(n, ended)
						want[ended] = decision
					}
					got := stored.Evaluate(int64(n), counted[state.BucketSuccess], counted[state.BucketFail], counted[state.BucketSkip])
					if got != decision {
						t.Fatalf("%v of %d after %q: %s, want %s", p.group, n, ends[:i+1], got, decision)
					}
					steps++
				}
			}
		}
	}
	t.Logf("%d steps", steps)
}

// A row of the table in a database: upstreams that end so, one after the other, and the executions that wait for all of
// them, each by another policy.
type tableRow struct {
	name     string
	ends     string
	policies []truth
}

func (r tableRow) upstream(i int) string { return fmt.Sprintf("%s/up%d", r.name, i) }

func (r tableRow) cause(i int) string { return fmt.Sprintf("%s/cause%d", r.name, i) }

func (r tableRow) downstream(i int) string { return fmt.Sprintf("%s/down%d", r.name, i) }

// inDatabase are rows of the table: all orders of the ends of up to three upstreams, some of four and six, in soak
// all of four and more of six. If the remaining upstreams are cancelled each policy has upstreams of its own.
func inDatabase(t *testing.T) []tableRow {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var rows []tableRow
	add := func(ends string) {
		var together []truth
		for i, p := range truths(len(ends)) {
			if p.cancels {
				rows = append(rows, tableRow{fmt.Sprintf("%d-%s-%d", len(rows), ends, i), ends, []truth{p}})
			} else {
				together = append(together, p)
			}
		}
		rows = append(rows, tableRow{fmt.Sprintf("%d-%s", len(rows), ends), ends, together})
	}
	for n := 1; n <= 4; n++ {
		for i, ends := range sequences(n, "sfx") {
			if n == 4 && i%soak.Size(t, 5, 1) > 0 {
				continue
			}
			add(strings.Map(func(end rune) rune { // failed is one of three
				if end == 'f' {
					return rune("fce"[random.IntN(3)])
				}
				return end
			}, ends))
		}
	}
	for range soak.Size(t, 8, 40) {
		ends := make([]byte, 6)
		for i := range ends {
			ends[i] = everyEnd[random.IntN(len(everyEnd))]
		}
		add(string(ends))
	}
	return rows
}

// policyTable is rows in a database.
type policyTable struct {
	*fixture.Racers
	rows   []tableRow
	flowOf map[string]id.FlowID // by row
}

// drawTable creates rows in flows of many each.
func drawTable(t *testing.T, r *fixture.Racers, rows []tableRow) *policyTable {
	t.Helper()
	p := &policyTable{r, rows, make(map[string]id.FlowID)}
	spec := engine.FlowSpec{ID: id.NewFlowID()}
	node := func(key string, when policy.Group) {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: key, When: when, Spec: engine.ExecutionSpec{Kind: "test"}})
	}
	for n, row := range rows {
		for i := range len(row.ends) {
			node(row.upstream(i), policy.AllOf())
			if row.ends[i] == 'x' {
				node(row.cause(i), policy.AllOf())
				spec.Edges = append(spec.Edges, engine.Edge{From: row.cause(i), To: row.upstream(i)})
			}
		}
		for i, truth := range row.policies {
			node(row.downstream(i), truth.group)
			for up := range len(row.ends) {
				spec.Edges = append(spec.Edges, engine.Edge{From: row.upstream(up), To: row.downstream(i)})
			}
		}
		p.flowOf[row.name] = spec.ID
		if len(spec.Nodes) > 1000 || n == len(rows)-1 {
			p.NewFlowOf(t, spec)
			spec = engine.FlowSpec{ID: id.NewFlowID()}
		}
	}
	p.ClaimAll(t)
	return p
}

// rowEnd is one upstream that is to end.
type rowEnd struct {
	flow id.FlowID
	key  string
	end  byte
}

func (p *policyTable) ending(row tableRow, i int) rowEnd {
	key := row.upstream(i)
	if row.ends[i] == 'x' {
		key = row.cause(i)
	}
	return rowEnd{p.flowOf[row.name], key, row.ends[i]}
}

// end ends upstreams in as few calls as it takes.
func (p *policyTable) end(t *testing.T, eng *engine.Engine, endings []rowEnd) {
	t.Helper()
	var completions []engine.Completion
	var failures []engine.AttemptFailure
	var cancels []engine.CancelSpec
	for _, e := range endings {
		x := p.NodeID(e.flow, e.key)
		switch e.end {
		case 's':
			completions = append(completions, engine.Completion{Lease: p.Leases[x]})
		case 'c', 'e': // counted alike
			cancels = append(cancels, engine.CancelSpec{ID: x})
		default:
			failures = append(failures, engine.AttemptFailure{Lease: p.Leases[x], Failure: fixture.ForGood})
		}
	}
	// Busy ones are repeated.
	for pending := completions; len(pending) > 0; {
		outcomes, err := eng.CompleteExecutions(t.Context(), pending)
		pending = again(t, pending, outcomes, err)
	}
	for pending := failures; len(pending) > 0; {
		results, err := eng.FailExecutions(t.Context(), pending)
		outcomes := make([]error, len(results))
		for i := range results {
			outcomes[i] = results[i].Err
		}
		pending = again(t, pending, outcomes, err)
	}
	for pending := cancels; len(pending) > 0; {
		outcomes, err := eng.CancelExecutions(t.Context(), pending)
		pending = again(t, pending, outcomes, err)
	}
}

// again returns the items that were busy.
func again[T any](t *testing.T, items []T, outcomes []error, err error) (busy []T) {
	if err != nil {
		t.Error(err)
		return nil
	}
	for i, err := range outcomes {
		switch {
		case errors.Is(err, fferr.ErrBusy):
			busy = append(busy, items[i])
		case err != nil:
			t.Error(err)
		}
	}
	return busy
}

// settle does the work left to background jobs.
func (p *policyTable) settle(t *testing.T) {
	t.Helper()
	for _, job := range []fixture.Job{upkeep.Of(p.Engine).DispatchCompletions, upkeep.Of(p.Engine).CancelSiblings} {
		for {
			n, err := job(t.Context(), 1000)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
		}
	}
}

// states returns the state of every execution by flow and key.
func (p *policyTable) states(t *testing.T) map[id.FlowID]map[string]string {
	t.Helper()
	states := make(map[id.FlowID]map[string]string)
	for _, flow := range p.flowOf {
		if states[flow] == nil {
			states[flow] = p.Members(t, flow)
		}
	}
	return states
}

var stateOf = map[document.Decision]string{
	document.Undecided: fixture.StateHeld, document.Satisfied: fixture.StateReady, document.Impossible: fixture.StateSkipped,
}

// In a database: as the upstreams of hundreds of groups end one after the other, each downstream moves at the step
// that decides it and at no other, and the remaining upstreams are cancelled then and there.
func TestPoliciesMatchTheirTruthTableInADatabase(t *testing.T) {
	rows := inDatabase(t)
	p := drawTable(t, fixture.NewRacers(t, 1), rows)
	cancelled := make(map[string]int) // how many upstreams of a row had ended when the others were cancelled
	for step := range 6 {
		var endings []rowEnd
		for _, row := range rows {
			if _, over := cancelled[row.name]; !over && step < len(row.ends) {
				endings = append(endings, p.ending(row, step))
			}
		}
		p.end(t, p.Engine, endings)
		p.settle(t)
		states := p.states(t)
		for _, row := range rows {
			n, ended := len(row.ends), min(step+1, len(row.ends))
			if at, over := cancelled[row.name]; over {
				ended = at
			}
			for i, truth := range row.policies {
				decision := truth.after(n, row.ends[:ended])
				if got := states[p.flowOf[row.name]][row.downstream(i)]; got != stateOf[decision] {
					t.Errorf("%v of %d after %q: %s, want %s", truth.group, n, row.ends[:ended], got, decision)
				}
				if _, over := cancelled[row.name]; !over && truth.cancels && decision != document.Undecided {
					cancelled[row.name] = ended
				}
			}
			if at, over := cancelled[row.name]; over {
				for i := at; i < n; i++ {
					if got := states[p.flowOf[row.name]][row.upstream(i)]; got != fixture.StateCancelled {
						t.Errorf("%v of %d after %q: upstream %d is %s", row.policies[0].group, n, row.ends[:at], i, got)
					}
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	p.wantOver(t)
}

// wantOver fails the test unless each group has counted each of its upstreams, and no downstream has moved twice.
func (p *policyTable) wantOver(t *testing.T) {
	t.Helper()
	for _, flow := range slices.Compact(slices.SortedFunc(maps.Values(p.flowOf), id.FlowID.Compare)) {
		for key, g := range p.Groups(t, flow) {
			// A cancelled upstream need not have waited for its cause.
			if running := g.Running % 1_000_000_000; running != 0 && strings.Contains(key, "/down") || g.Flagged || g.Enqueued {
				t.Errorf("group of %s: %+v", key, g)
			}
		}
	}
	if twice := fixture.Texts(t, p.Pool, "SELECT execution_id::text FROM moves GROUP BY execution_id HAVING count(*) > 1"); len(twice) > 0 {
		t.Errorf("%d moved more than once", len(twice))
	}
	p.WantNoAborts(t)
}

// All upstreams end at the same time, from many connections, in random order and in batches, beside the background
// work: the final decision is the one of each order of them.
func TestPoliciesMatchTheirTruthTableConcurrently(t *testing.T) {
	rows := slices.DeleteFunc(inDatabase(t), func(row tableRow) bool { return row.policies[0].cancels })
	p := drawTable(t, fixture.NewRacers(t, 8), rows)
	var endings []rowEnd
	for _, row := range rows {
		for i := range len(row.ends) {
			endings = append(endings, p.ending(row, i))
		}
	}
	rand.Shuffle(len(endings), func(i, j int) { endings[i], endings[j] = endings[j], endings[i] })
	var running sync.WaitGroup
	for worker := range 8 {
		mine := endings[worker*len(endings)/8 : (worker+1)*len(endings)/8]
		running.Go(func() {
			for batch := range slices.Chunk(mine, 1+rand.IntN(20)) {
				p.end(t, p.Rivals.Engine, batch)
				if _, err := upkeep.Of(p.Rivals.Engine).DispatchCompletions(t.Context(), 100); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	p.settle(t)
	states := p.states(t)
	for _, row := range rows {
		for i, truth := range row.policies {
			decision := truth.after(len(row.ends), row.ends)
			if got := states[p.flowOf[row.name]][row.downstream(i)]; got != stateOf[decision] {
				t.Errorf("%v of %q: %s, want %s", truth.group, row.ends, got, decision)
			}
		}
	}
	p.wantOver(t)
}
