package document

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// The stored form of a policy never changes, byte for byte: later versions read it.
func TestExecutionOfKeepsStoredBytes(t *testing.T) {
	const head, tail = `{"priority":0,`, `"max_reclaim_count":100,"max_replay_count":10,"budget_ids":[],"max_signals_per_execution":10000}`
	retry := func(policy policy.Retry) policy.Execution { return executionWith(policy) }
	for _, c := range []struct {
		name   string
		policy policy.Execution
		want   string
	}{
		{"zero", policy.Execution{}, head + tail},
		{"zero retry", retry(policy.Retry{}), head + `"retry_policy":{"max_retries":24,"backoff":{"type":"patient"},"retryable_categories":[]},` + tail},
		{
			"no retries", retry(policy.Retry{MaxRetries: policy.NoRetries, Backoff: policy.Fixed(0)}),
			head + `"retry_policy":{"max_retries":0,"backoff":{"type":"fixed","delay_ms":0},"retryable_categories":[]},` + tail,
		},
		{"retries", retry(policy.Retry{
			MaxRetries: 5, Categories: []string{"net", "disk"},
			Backoff: policy.Backoff{First: 1500 * time.Millisecond, Max: time.Hour, Factor: 1.5, Jitter: true},
		}), head + `"retry_policy":{"max_retries":5,"backoff":{"type":"exponential","initial_delay_ms":1500,"max_delay_ms":3600000,` +
			`"multiplier":1.5,"jitter":true},"retryable_categories":["net","disk"]},` + tail},
		{
			"fixed pause with jitter", retry(policy.Retry{Backoff: policy.Backoff{First: time.Second, Max: time.Second, Factor: 1, Jitter: true}}),
			head + `"retry_policy":{"max_retries":24,"backoff":{"type":"exponential","initial_delay_ms":1000,"max_delay_ms":1000,` +
				`"multiplier":1,"jitter":true},"retryable_categories":[]},` + tail,
		},
		{
			"attempt timeout",
			policy.Execution{AttemptTimeout: time.Minute},
			head + `"timeout_policy":{"attempt_timeout_ms":60000,"max_reclaim_count":100},` + tail,
		},
		{"deadline", policy.Execution{Deadline: 1}, head + `"timeout_policy":{"execution_deadline_ms":1,"max_reclaim_count":100},` + tail},
		{
			"fewer reclaims",
			policy.Execution{MaxReclaims: 7, Deadline: time.Second},
			head + `"timeout_policy":{"execution_deadline_ms":1000,"max_reclaim_count":100},"max_reclaim_count":7,` +
				`"max_replay_count":10,"budget_ids":[],"max_signals_per_execution":10000}`,
		},
		{
			"more reclaims",
			policy.Execution{MaxReclaims: 700, Deadline: time.Second},
			head + `"timeout_policy":{"execution_deadline_ms":1000,"max_reclaim_count":700},"max_reclaim_count":700,` +
				`"max_replay_count":10,"budget_ids":[],"max_signals_per_execution":10000}`,
		},
		{
			"none of anything",
			policy.Execution{MaxReclaims: policy.NoReclaims, DedupWindow: policy.NoDedup},
			head + `"max_reclaim_count":0,"max_replay_count":10,"budget_ids":[],"dedup_window_ms":0,"max_signals_per_execution":10000}`,
		},
		{"the rest", policy.Execution{
			DelayUntil: time.UnixMilli(1234).Add(999 * time.Microsecond), DedupWindow: time.Hour + 1, Capabilities: id.Capabilities{"gpu", "arm", "gpu"},
		}, head + `"delay_until":1234,"max_reclaim_count":100,"max_replay_count":10,"budget_ids":[],` +
			`"routing_requirements":{"required_capabilities":["arm","gpu"]},"dedup_window_ms":3600001,"max_signals_per_execution":10000}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.policy.Validate(); err != nil {
				t.Fatal(err)
			}
			if got, err := json.Marshal(ExecutionOf(c.policy)); string(got) != c.want || err != nil {
				t.Errorf("got  %s, %v\nwant %s", got, err, c.want)
			}
		})
	}
}

func executionWith(retry policy.Retry) policy.Execution { return policy.Execution{Retry: &retry} }

// The comment of policy.Execution.Retry says so.
func TestRetriesWithoutAPolicyPauseForAboutADay(t *testing.T) {
	absent := RetryWhenAbsent()
	var total time.Duration
	for retries, want := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute} {
		if got := time.Duration(absent.PauseMs(retries, 0.5)) * time.Millisecond; got != want {
			t.Errorf("%v before retry %d, want %v", got, retries+1, want)
		}
		total += want
	}
	retries := 5
	for ; absent.Retries(policy.Transient, "transient", retries); retries++ {
		if got := time.Duration(absent.PauseMs(retries, 0.5)) * time.Millisecond; got != time.Hour {
			t.Errorf("%v before retry %d, want an hour", got, retries+1)
		}
		total += time.Hour
	}
	if retries != 24 || total < 18*time.Hour || total > 24*time.Hour {
		t.Errorf("%d retries in %v, want 24 in about a day", retries, total)
	}
}

func TestImmediateRetriesDoNotPause(t *testing.T) {
	for given, want := range map[int]int{2: 2, 0: policy.DefaultMaxRetries, policy.NoRetries: 0} {
		r := RetryOf(*policy.ImmediateRetries(given))
		retries := 0
		for ; r.Retries(policy.Transient, "transient", retries); retries++ {
			if pause := r.PauseMs(retries, 0.5); pause != 0 {
				t.Errorf("a pause of %d ms before retry %d", pause, retries+1)
			}
		}
		if retries != want {
			t.Errorf("%d retries of ImmediateRetries(%d), want %d", retries, given, want)
		}
	}
}

// Every valid policy is stored as a document that the strict reader reads back unchanged.
func TestExecutionOfRoundTrips(t *testing.T) {
	durations := []time.Duration{0, 1, time.Millisecond, time.Second - 1, time.Hour, math.MaxInt64}
	for i := range 6 * 6 * 6 * 5 {
		given := policy.Execution{
			AttemptTimeout: durations[i%6], Deadline: durations[i/6%6], DedupWindow: durations[i/36%6],
			MaxReclaims: []int{policy.NoReclaims, 0, policy.ReclaimLimit}[i%3],
			Retry: &policy.Retry{
				MaxRetries: []int{policy.NoRetries, 0, math.MaxInt32}[i/3%3],
				Backoff: policy.Backoff{
					First: durations[i/216], Max: math.MaxInt64, Factor: []float64{math.SmallestNonzeroFloat64, 1, 1.5, math.MaxFloat64}[i/5%4],
					Jitter: i%2 == 0,
				},
			},
		}
		if err := given.Validate(); err != nil {
			t.Fatal(err)
		}
		document, err := json.Marshal(ExecutionOf(given))
		if err != nil {
			t.Fatal(err)
		}
		read, err := DecodeExecution(document)
		if err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(read)
		if err != nil || string(again) != string(document) {
			t.Fatalf("%s became %s, %v", document, again, err)
		}
	}
}
