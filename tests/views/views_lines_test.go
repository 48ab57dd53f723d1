package views

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// lines renders the results of a read and of a view, a field a line, so that they can be compared.
type lines []string

func (l *lines) add(name string, value any) { *l = append(*l, fmt.Sprintf("%s: %v", name, value)) }

// instant renders an instant, cut to the range of timestamptz.
func (l *lines) instant(name string, at time.Time) {
	if at.IsZero() {
		l.add(name, "-")
		return
	}
	l.add(name, min(max(at.UnixMilli(), -210_000_000_000_000), 9_224_318_000_000_000))
}

func (l *lines) tags(tags map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		l.add("tag "+key, tags[key])
	}
}

func at(p *time.Time) time.Time {
	if p == nil {
		return time.Time{}
	}
	return *p
}

// or is the value or, where there is none, the zero value.
func or[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

func decoded(t *testing.T, document []byte) map[string]string {
	t.Helper()
	var tags map[string]string
	if err := json.Unmarshal(document, &tags); err != nil {
		t.Fatalf("tags %s: %v", document, err)
	}
	return tags
}

// corrupted is the column that a read refuses a row for, "" when it does not.
func corrupted(t *testing.T, err error) string {
	t.Helper()
	corruption, ok := errors.AsType[*fferr.CorruptionError](err)
	if err != nil && !ok {
		t.Fatal(err)
	}
	if corruption == nil {
		return ""
	}
	return corruption.Column
}

func readLines(s *engine.ExecutionSnapshot) (l lines) {
	l.add("id", s.ID)
	l.add("flow", or(s.Flow))
	l.add("lane", s.Lane)
	l.add("namespace", s.Namespace)
	l.add("kind", s.Kind)
	l.add("priority", s.Priority)
	l.tags(s.Tags)
	l.add("capabilities", []string(s.RequiredCapabilities))
	l.add("state", s.State.Public)
	l.add("outcome", cmp.Or(s.State.Outcome, "none")) // as the view spells it
	l.add("phase", s.State.Phase)
	l.add("ownership", s.State.Ownership)
	l.add("eligibility", s.State.Eligibility)
	l.add("attempt state", s.State.Attempt)
	l.add("blocking reason", s.State.Blocking)
	l.add("blocking detail", s.BlockingDetail)
	l.add("cancellation reason", s.CancellationReason)
	l.add("cancelled by", s.CancelledBy)
	l.add("failure reason", s.FailureReason)
	l.instant("created", s.CreatedAt)
	l.instant("started", s.StartedAt)
	l.instant("ended", s.EndedAt)
	l.instant("last mutation", s.LastMutationAt)
	l.instant("delay until", s.DelayUntil)
	l.instant("deadline", s.Deadline)
	index := -1
	if s.Attempt != nil {
		index = s.Attempt.Index
	}
	l.add("attempt", index)
	l.add("attempt id", or(s.Attempt).ID)
	lease := or(s.Lease)
	l.add("lease", fmt.Sprint(lease.ID, lease.Epoch, lease.Instance))
	l.instant("lease expires", lease.ExpiresAt)
	l.add("waitpoint", or(s.Waitpoint))
	l.add("attempts", s.Attempts)
	l.add("retries", s.Retries)
	l.add("leases lost", s.LeasesLost)
	for _, budget := range s.BudgetIDs {
		l.add("budget", budget)
	}
	l.add("quota policy", or(s.QuotaPolicy))
	return l
}

func viewLines(t *testing.T, v *db.FfxExecution) (l lines) {
	t.Helper()
	l.add("id", v.ID)
	l.add("flow", or(v.FlowID))
	l.add("lane", v.LaneID)
	l.add("namespace", v.Namespace)
	l.add("kind", v.Kind)
	l.add("priority", v.Priority)
	l.tags(decoded(t, v.Tags))
	l.add("capabilities", v.RequiredCapabilities)
	l.add("state", or(v.State))
	l.add("outcome", or(v.Outcome))
	l.add("phase", or(v.Phase))
	l.add("ownership", or(v.Ownership))
	l.add("eligibility", or(v.Eligibility))
	l.add("attempt state", or(v.AttemptState))
	l.add("blocking reason", or(v.BlockingReason))
	l.add("blocking detail", or(v.BlockingDetail))
	l.add("cancellation reason", or(v.CancellationReason))
	l.add("cancelled by", or(v.CancelledBy))
	l.add("failure reason", or(v.FailureReason))
	l.instant("created", v.CreatedAt)
	l.instant("started", at(v.StartedAt))
	l.instant("ended", at(v.EndedAt))
	l.instant("last mutation", v.LastMutationAt)
	l.instant("delay until", at(v.DelayUntil))
	l.instant("deadline", at(v.Deadline))
	index := -1
	if v.Attempt != nil {
		index = int(*v.Attempt)
	}
	l.add("attempt", index)
	l.add("attempt id", or(v.AttemptID))
	instance := "" // shown after the lease's end too
	if v.LeaseExpiresAt != nil {
		instance = or(v.WorkerInstanceID)
	}
	l.add("lease", fmt.Sprint(or(v.LeaseID), or(v.LeaseEpoch), instance))
	l.instant("lease expires", at(v.LeaseExpiresAt))
	l.add("waitpoint", or(v.WaitpointID))
	l.add("attempts", v.Attempts)
	l.add("retries", v.Retries)
	l.add("leases lost", v.LeasesLost)
	for _, budget := range v.BudgetIDs {
		l.add("budget", id.BudgetID(budget.Bytes))
	}
	l.add("quota policy", or(v.QuotaPolicyID))
	return l
}

// wantSameLines fails the test with the fields that differ.
func wantSameLines(t *testing.T, what string, view, read lines) {
	t.Helper()
	if slices.Equal(view, read) {
		return
	}
	var differing []string
	for _, line := range view {
		if !slices.Contains(read, line) {
			differing = append(differing, "the view has "+line)
		}
	}
	for _, line := range read {
		if !slices.Contains(view, line) {
			differing = append(differing, "the read has "+line)
		}
	}
	t.Errorf("%s:\n\t%s", what, strings.Join(differing, "\n\t"))
}
