package claims

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// leavesQueue explains for each statement that sets an eligibility of not_applicable why no row stays in the queue,
// or in the list of blocked executions. The trigger that maintains both does not see a change from eligible_now to
// not_applicable that changes ffx_last_mutation_at_ms, except an end by itself.
var leavesQueue = map[string]string{
	"ClaimAfterPositions": byItself, "ClaimOneAfterPosition": byItself, "ClaimFromHead": byItself, "LeaseTakenExecutions": byItself,
	"EndUnsuccessful": byTrigger, "SkipDownstream": byTrigger, "CompleteExecutions": byTrigger, "CompleteOne": byTrigger, "EndSucceeded": byTrigger,
	"EndCancelled": "", // DropEntriesOf precedes it in the same round trip
	"HealEnded":    "", // no execution that is claimable or blocked: another program has ended it, by a write that the trigger saw
}

const byItself = "DELETE FROM ffx_ready" // in the same statement

const byTrigger = "lifecycle_phase = 'terminal'" // the trigger sees it

// A statement that takes an execution out of its eligibility takes its queue entry out too, or is seen by the trigger.
func TestQueriesLeaveNoQueueEntryBehind(t *testing.T) {
	t.Parallel()
	update := regexp.MustCompile(`(?s)UPDATE ff_exec_core AS \w+\s+SET\s(.*?)\n\s*(?:FROM|WHERE) `)
	eligibility := regexp.MustCompile(`(?s)\n?\s*eligibility_state = (.*?)(?:,\n|$)`)
	found := make(map[string]bool)
	for name, text := range fixture.Queries(t) {
		for _, set := range update.FindAllStringSubmatch(text, -1) {
			to := eligibility.FindStringSubmatch(set[1])
			if to == nil || !strings.Contains(to[1], "not_applicable") {
				continue
			}
			found[name] = true
			why, ok := leavesQueue[name]
			if why != "" && !strings.Contains(text, why) || !ok {
				t.Errorf("%s makes executions not_applicable, and does not say %q", name, why)
			}
			if why != byTrigger && !strings.Contains(set[1], "ffx_last_mutation_at_ms") {
				t.Errorf("%s does not say when it changed an execution", name)
			}
		}
	}
	if got, want := slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(leavesQueue)); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
