package document

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"testing/quick"

	"github.com/flowfabric/flowfabric-go/policy"
)

func TestRetryRetries(t *testing.T) {
	limited := Retry{MaxRetries: new(uint32(2)), RetryableCategories: []string{"timeout", "provider_error"}}
	tests := []struct {
		name       string
		policy     Retry
		class      policy.Class
		detail     string
		retryCount int
		want       bool
	}{
		{"transient", Retry{}, policy.Transient, "", 0, true},
		{"crash", Retry{}, policy.InfraCrash, "", 2, true},
		{"budget_used_up", Retry{}, policy.Transient, "", 3, false},
		{"no_retries", Retry{MaxRetries: new(uint32(0))}, policy.Transient, "", 0, false},
		{"permanent", Retry{}, policy.Permanent, "", 0, false},
		{"cancelled", Retry{}, policy.Cancelled, "", 0, false},
		{"unknown_class", Retry{}, "odd", "", 0, false},
		{"timeout", Retry{}, policy.TimedOut, "", 2, true},
		{"timeout_of_another_category", Retry{}, policy.TimedOut, "slow", 0, true},
		{"timeout_used_up", Retry{}, policy.TimedOut, "", 3, false},
		{"timeout_not_listed", Retry{RetryableCategories: []string{"network"}}, policy.TimedOut, "", 0, false},
		{"timeout_listed", limited, policy.TimedOut, "", 1, true},
		{"timeout_listed_category_not", limited, policy.TimedOut, "other", 1, false},
		{"category_listed", limited, policy.Transient, "provider_error", 1, true},
		{"category_not_listed", limited, policy.Transient, "bug", 0, false},
		{"class_not_listed", limited, policy.Transient, "", 0, false},
		{"permanent_category_listed", limited, policy.Permanent, "provider_error", 0, false},
		{"listed_and_used_up", limited, policy.Transient, "provider_error", 2, false},
		{"absent_policy", RetryWhenAbsent(), policy.Transient, "", 23, true},
		{"absent_policy_timeout", RetryWhenAbsent(), policy.TimedOut, "", 23, true},
		{"absent_policy_permanent", RetryWhenAbsent(), policy.Permanent, "", 0, false},
		{"absent_policy_used_up", RetryWhenAbsent(), policy.Transient, "", 24, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			category := Category(tt.class, []byte(tt.detail))
			if got := tt.policy.Retries(tt.class, category, tt.retryCount); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// A policy without a backoff has the pauses of an execution without a policy, whatever its other fields are: a caller that
// sets one field, such as the number of retries, doesn't ask for haste (F2).
func TestAPolicyWithoutABackoffIsPatient(t *testing.T) {
	want := []int64{1_000, 5_000, 30_000, 120_000, 600_000, 3_600_000, 3_600_000}
	for _, given := range []policy.Retry{{}, {MaxRetries: 4}, {MaxRetries: 100}, {Categories: []string{"net"}}} {
		stored, err := json.Marshal(RetryOf(given))
		if err != nil {
			t.Fatal(err)
		}
		read, err := RetryFromJSON(stored)
		if err != nil {
			t.Fatal(err)
		}
		var strict Retry
		if err := json.Unmarshal(stored, &strict); err != nil {
			t.Fatal(err)
		}
		for _, r := range []Retry{RetryOf(given), read, strict, RetryWhenAbsent()} {
			for retries, pause := range want {
				if got := r.PauseMs(retries, 0.5); got != pause {
					t.Errorf("%+v: %d ms before retry %d, want %d", given, got, retries+1, pause)
				}
			}
		}
	}
	if zero, absent := RetryOf(policy.Retry{}).WithDefaults(), RetryWhenAbsent(); !reflect.DeepEqual(zero, absent) || *zero.MaxRetries != 24 {
		t.Errorf("the zero policy is %+v, no policy %+v", zero, absent)
	}
}

func TestCategory(t *testing.T) {
	for detail, want := range map[string]string{"": "infra_crash", "oom": "oom", "\xff": "infra_crash", "a\x00": "infra_crash"} {
		if got := Category(policy.InfraCrash, []byte(detail)); got != want {
			t.Errorf("%q: got %q, want %q", detail, got, want)
		}
	}
}

// TestJitterAndCategoriesAreHonoured_I45
func TestJitterAndCategoriesAreHonoured_I45(t *testing.T) {
	r := Retry{
		Backoff:             Backoff{Type: BackoffExponential, InitialDelayMs: 1000, MaxDelayMs: 60000, Multiplier: 2, Jitter: true},
		RetryableCategories: []string{"network"},
	}
	for random, want := range map[float64]int64{0: 2000, 0.5: 3000, math.Nextafter(1, 0): 4000} {
		if got := r.PauseMs(2, random); got != want {
			t.Errorf("random %v: got %d, want %d", random, got, want)
		}
	}
	if r.Retries(policy.Transient, "bug", 0) || !r.Retries(policy.Transient, "network", 0) {
		t.Error("the categories do not decide")
	}
}

func TestPauseStaysInBounds(t *testing.T) {
	inBounds := func(initial, most uint64, multiplier float64, count uint32) bool {
		b := Backoff{
			Type:           BackoffExponential,
			InitialDelayMs: initial,
			MaxDelayMs:     most,
			Multiplier:     multiplier,
			Jitter:         true,
		}
		n := int(count & math.MaxInt32)
		pause := b.PauseMs(n)
		if pause < 0 || uint64(pause) > b.MaxDelayMs {
			t.Logf("pause %d", pause)
			return false
		}
		for _, random := range []float64{0, 0.25, 0.5, 0.75, math.Nextafter(1, 0)} {
			if got := (Retry{Backoff: b}).PauseMs(n, random); got < pause/2 || got > pause {
				t.Logf("pause %d with jitter is %d", pause, got)
				return false
			}
		}
		return true
	}
	if err := quick.Check(inBounds, nil); err != nil {
		t.Error(err)
	}
	delays := []uint64{0, 1, 700, 1000, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64}
	for _, initial := range delays {
		for _, most := range delays {
			for _, multiplier := range []float64{math.Inf(-1), -2, 0, 0.5, 1, 2, math.MaxFloat64, math.Inf(1), math.NaN()} {
				for _, count := range []uint32{0, 1, 2, 63, 64, math.MaxInt32} {
					if !inBounds(initial, most, multiplier, count) {
						t.Errorf("from %d to %d times %v at retry %d", initial, most, multiplier, count)
					}
				}
			}
		}
	}
}

func TestPauseWithoutABackoffIsZero(t *testing.T) {
	if got := ExponentialBackoff(0, 60000, 2).PauseMs(5000); got != 0 {
		t.Errorf("got %d", got)
	}
}

func TestRetryFromJSON(t *testing.T) {
	tests := []struct {
		name, text string
		maxRetries uint32
		pauseMs    int64
		categories int
		ok         bool
	}{
		{"empty_text", "", 0, 1000, 0, true},
		{"empty_object", `{}`, 0, 1000, 0, true},
		{"whole", `{"max_retries":2,"backoff":{"type":"fixed","delay_ms":5},"retryable_categories":["a","b"]}`, 2, 5, 2, true},
		{"number_as_text", `{"max_retries":"2"}`, 0, 1000, 0, true},
		{"above_uint32", `{"max_retries":4294967296}`, math.MaxUint32, 1000, 0, true},
		{"odd_categories", `{"max_retries":1,"retryable_categories":["a",1,null]}`, 1, 1000, 1, true},
		{"odd_backoff", `{"max_retries":1,"backoff":[]}`, 1, 1000, 0, true},
		{"blank", ` `, 0, 0, 0, false},
		{"not_json", `{`, 0, 0, 0, false},
		{"not_an_object", `3`, 0, 0, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := RetryFromJSON([]byte(tt.text))
			if (err == nil) != tt.ok {
				t.Fatalf("got %v", err)
			}
			if !tt.ok {
				return
			}
			if *r.MaxRetries != tt.maxRetries || r.PauseMs(0, 0) != tt.pauseMs || len(r.RetryableCategories) != tt.categories {
				t.Errorf("got %d retries after %d ms, categories %q", *r.MaxRetries, r.PauseMs(0, 0), r.RetryableCategories)
			}
		})
	}
}

func FuzzRetryDocuments(f *testing.F) {
	f.Add([]byte(`{"max_retries":2,"backoff":{"type":"exponential","initial_delay_ms":1,"max_delay_ms":2,"multiplier":1.5}}`))
	f.Add([]byte(`{"type":"fixed","delay_ms":5}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		lenient, err := RetryFromJSON(document)
		if err != nil {
			return
		}
		if pause := lenient.PauseMs(3, 0.5); pause < 0 {
			t.Fatalf("%s: pause %d", document, pause)
		}
		// Where both readers accept a backoff, they agree.
		var strict Backoff
		if json.Unmarshal(document, &strict) == nil && BackoffFromJSON(document) != strict {
			t.Fatalf("%s: strictly %+v, leniently %+v", document, strict, BackoffFromJSON(document))
		}
	})
}

func FuzzRetryPolicy(f *testing.F) {
	fuzzStrict[Retry](f, `{}`, `{"max_retries":3,"backoff":{"type":"exponential","initial_delay_ms":1,"max_delay_ms":2,"multiplier":1.5}}`)
}
