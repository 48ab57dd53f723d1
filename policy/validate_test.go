package policy_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

func TestExecutionValidate(t *testing.T) {
	backoff := func(b policy.Backoff) policy.Execution {
		return policy.Execution{Retry: &policy.Retry{Backoff: b}}
	}
	for _, c := range []struct {
		policy  policy.Execution
		field   string // "" where it is valid
		problem string // part of it
	}{
		{policy.Execution{}, "", ""},
		{policy.Execution{Retry: &policy.Retry{}}, "", ""},
		{policy.Execution{
			Retry:          &policy.Retry{MaxRetries: policy.NoRetries, Backoff: policy.Fixed(0)},
			AttemptTimeout: math.MaxInt64, Deadline: 1, DelayUntil: time.UnixMilli(math.MaxInt64),
			MaxReclaims: policy.NoReclaims, DedupWindow: policy.NoDedup, Capabilities: id.Capabilities{"b", "a", "b"},
		}, "", ""},
		{policy.Execution{Retry: &policy.Retry{MaxRetries: math.MaxInt32, Categories: []string{""}}, MaxReclaims: policy.ReclaimLimit}, "", ""},
		{policy.Execution{Retry: &policy.Retry{MaxRetries: -2}}, "Retry.MaxRetries", "-2, must be NoRetries, 0 for the default, or at most 2147483647"},
		{policy.Execution{Retry: &policy.Retry{MaxRetries: math.MaxInt32 + 1}}, "Retry.MaxRetries", "2147483648"},
		{policy.Execution{Retry: &policy.Retry{Categories: []string{"a", "b\x00"}}}, "Retry.Categories[1]", ""},
		{policy.Execution{MaxReclaims: policy.ReclaimLimit + 1}, "MaxReclaims", "1001, must be NoReclaims, 0 for the default, or at most 1000"},
		{policy.Execution{MaxReclaims: -2}, "MaxReclaims", "-2"},
		{policy.Execution{MaxReplays: policy.NoReplays}, "", ""},
		{policy.Execution{MaxReplays: -2}, "MaxReplays", "-2, must be NoReplays"},
		{policy.Execution{AttemptTimeout: -1}, "AttemptTimeout", "-1ns"},
		{policy.Execution{Deadline: -time.Second}, "Deadline", "-1s"},
		{policy.Execution{DedupWindow: -time.Second}, "DedupWindow", "NoDedup"},
		{policy.Execution{DelayUntil: time.UnixMilli(0)}, "DelayUntil", "1970"},
		{policy.Execution{DelayUntil: time.UnixMilli(math.MaxInt64).Add(time.Millisecond)}, "DelayUntil", "64 bits"},
		{policy.Execution{Capabilities: id.Capabilities{"a,b"}}, "Capabilities", ""},
		{backoff(policy.Exponential(0, 0)), "", ""},
		{backoff(policy.Backoff{Max: time.Second, Factor: 0.5}), "", ""},
		{backoff(policy.Fixed(-1)), "Retry.Backoff.First", "-1ns"},
		{backoff(policy.Exponential(time.Minute, time.Second)), "Retry.Backoff.Max", "1s, must be at least First, which is 1m0s"},
		{backoff(policy.Backoff{First: time.Second, Factor: 2}), "Retry.Backoff.Max", "0s"},
		{backoff(policy.Backoff{Jitter: true}), "Retry.Backoff.Factor", "0, must be finite and above 0; Fixed and Exponential set it"},
		{backoff(policy.Backoff{Factor: -1}), "Retry.Backoff.Factor", "-1"},
		{backoff(policy.Backoff{Factor: math.NaN()}), "Retry.Backoff.Factor", "NaN"},
		{backoff(policy.Backoff{Factor: math.Inf(1)}), "Retry.Backoff.Factor", "Inf"},
	} {
		wantFieldError(t, c.policy.Validate(), c.field, c.problem)
	}
}

func TestGroupValidate(t *testing.T) {
	for _, g := range []policy.Group{
		{},
		policy.AllOf(), policy.AnyOf(""), policy.AnyOf(policy.LetRun), policy.Quorum(1, ""), policy.Quorum(math.MaxInt32, policy.LetRun),
		policy.OnFailure(), policy.Always(),
	} {
		wantFieldError(t, g.Validate(), "", "")
	}
	wantFieldError(t, policy.Quorum(0, policy.LetRun).Validate(), "Quorum", "0 upstreams, must be 1 to 2147483647")
	wantFieldError(t, policy.Quorum(-1, "").Validate(), "Quorum", "-1")
	wantFieldError(t, policy.Quorum(math.MaxInt32+1, "").Validate(), "Quorum", "2147483648")
	wantFieldError(t, policy.AnyOf("odd").Validate(), "AnyOf", "neither CancelRemaining nor LetRun")
	wantFieldError(t, policy.Quorum(1, "odd").Validate(), "Quorum", "neither CancelRemaining nor LetRun")
}

func wantFieldError(t *testing.T, err error, field, problem string) {
	t.Helper()
	if field == "" {
		if err != nil {
			t.Error(err)
		}
		return
	}
	refused, ok := errors.AsType[*policy.FieldError](err)
	if !ok || refused.Field != field || !strings.Contains(refused.Problem, problem) {
		t.Errorf("got %v, want %s refused: %s", err, field, problem)
	}
}

func TestGroupNeeds(t *testing.T) {
	for g, want := range map[policy.Group]struct {
		needs int
		text  string
	}{
		policy.AllOf():                  {7, "all of"},
		policy.AnyOf(policy.LetRun):     {1, "any of"},
		policy.Quorum(3, policy.LetRun): {3, "quorum of 3"},
		policy.OnFailure():              {0, "on failure"},
		policy.Always():                 {0, "always"},
	} {
		if got := g.Needs(7); got != want.needs || g.String() != want.text {
			t.Errorf("%s needs %d of 7, want %s and %d", g, got, want.text, want.needs)
		}
	}
}

func TestGroupCancelsRemaining(t *testing.T) {
	for g, want := range map[policy.Group]bool{
		policy.AllOf(): false, policy.OnFailure(): false, policy.Always(): false,
		policy.AnyOf(""): true, policy.AnyOf(policy.LetRun): false,
		policy.Quorum(2, policy.CancelRemaining): true, policy.Quorum(2, policy.LetRun): false,
	} {
		if got := g.CancelsRemaining(); got != want {
			t.Errorf("%v: got %v", g, got)
		}
	}
}
