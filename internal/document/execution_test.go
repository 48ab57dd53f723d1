package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/id"
)

func TestExecutionStoredForm(t *testing.T) {
	tests := []struct {
		name   string
		policy Execution
		want   string
	}{
		{
			"zero_value",
			Execution{},
			`{"priority":0,"max_reclaim_count":100,"max_replay_count":10,"budget_ids":[],"max_signals_per_execution":10000}`,
		},
		{
			"zero_parts",
			Execution{
				Retry: &Retry{}, Timeout: &Timeout{}, Suspension: &Suspension{}, Fallback: &Fallback{},
				Routing: &Routing{}, Stream: &Stream{},
			},
			`{"priority":0,` +
				`"retry_policy":{"max_retries":3,"backoff":{"type":"exponential","initial_delay_ms":1000,"max_delay_ms":60000,"multiplier":2,"jitter":false},"retryable_categories":[]},` +
				`"timeout_policy":{"max_reclaim_count":100},"max_reclaim_count":100,"suspension_policy":{"timeout_behavior":"fail"},` +
				`"fallback_policy":{"tiers":[]},"max_replay_count":10,"budget_ids":[],"routing_requirements":{"required_capabilities":[]},` +
				`"stream_policy":{"durability_mode":"buffered","retention_maxlen":10000},"max_signals_per_execution":10000}`,
		},
		{
			"explicit_zeros",
			Execution{
				MaxReclaimCount: new(uint32), MaxReplayCount: new(uint32), MaxSignalsPerExecution: new(uint32),
				DedupWindowMs: new(uint64), Retry: &Retry{MaxRetries: new(uint32), Backoff: FixedBackoff(0)},
			},
			`{"priority":0,"retry_policy":{"max_retries":0,"backoff":{"type":"fixed","delay_ms":0},"retryable_categories":[]},` +
				`"max_reclaim_count":0,"max_replay_count":0,"budget_ids":[],"dedup_window_ms":0,"max_signals_per_execution":0}`,
		},
		{
			"capabilities_sorted",
			Execution{Routing: &Routing{RequiredCapabilities: id.Capabilities{"gpu", "cuda", "gpu"}}},
			`{"priority":0,"max_reclaim_count":100,"max_replay_count":10,"budget_ids":[],` +
				`"routing_requirements":{"required_capabilities":["cuda","gpu"]},"max_signals_per_execution":10000}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := json.Marshal(tt.policy)
			if err != nil || string(got) != tt.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, tt.want)
			}
			decoded, err := DecodeExecution(got)
			if err != nil || !reflect.DeepEqual(decoded, tt.policy.WithDefaults()) {
				t.Errorf("decoded %+v, %v", decoded, err)
			}
		})
	}
}

func TestExecutionWithDefaultsLeavesTheOriginal(t *testing.T) {
	tokens := id.Capabilities{"b", "a"}
	e := Execution{Retry: &Retry{}, Routing: &Routing{RequiredCapabilities: tokens}}
	e.WithDefaults()
	if e.Retry.MaxRetries != nil || tokens[0] != "b" {
		t.Errorf("changed: %+v, %v", e.Retry, tokens)
	}
}

func TestDecodeExecutionRefusesBadInput(t *testing.T) {
	tests := []struct{ name, document, path string }{
		{"not_an_object", `[]`, ""},
		{"null", `null`, ""},
		{"not_json", `{`, ""},
		{"two_documents", `{}{}`, ""},
		{"invalid_utf8", "{\"retry_policy\":{\"retryable_categories\":[\"\xff\"]}}", ""},
		{"null_for_a_default", `{"max_reclaim_count":null}`, "max_reclaim_count"},
		{"null_replays", `{"max_replay_count":null}`, "max_replay_count"},
		{"null_signals", `{"max_signals_per_execution":null}`, "max_signals_per_execution"},
		{"null_reclaims", `{"timeout_policy":{"max_reclaim_count":null}}`, "timeout_policy.max_reclaim_count"},
		{"null_length", `{"stream_policy":{"retention_maxlen":null}}`, "stream_policy.retention_maxlen"},
		{"null_capabilities", `{"routing_requirements":{"required_capabilities":null}}`, "routing_requirements.required_capabilities"},
		{"null_priority", `{"priority":null}`, "priority"},
		{"null_budgets", `{"budget_ids":null}`, "budget_ids"},
		{"null_in_budgets", `{"budget_ids":[null]}`, "budget_ids"},
		{"null_nested", `{"retry_policy":{"max_retries":null}}`, "retry_policy.max_retries"},
		{"null_backoff", `{"retry_policy":{"backoff":null}}`, "retry_policy.backoff"},
		{"null_jitter", `{"retry_policy":{"backoff":{"type":"exponential","initial_delay_ms":1,"max_delay_ms":1,"multiplier":1,"jitter":null}}}`, "retry_policy.backoff.jitter"},
		{"null_category", `{"retry_policy":{"retryable_categories":[null]}}`, "retry_policy.retryable_categories"},
		{"null_mode", `{"stream_policy":{"durability_mode":null}}`, "stream_policy.durability_mode"},
		{"unknown_mode", `{"stream_policy":{"durability_mode":"Durable"}}`, "stream_policy.durability_mode"},
		{"unknown_behavior", `{"suspension_policy":{"timeout_behavior":"expire"}}`, "suspension_policy.timeout_behavior"},
		{"float_for_an_integer", `{"max_replay_count":1.0}`, "max_replay_count"},
		{"exponent_for_an_integer", `{"priority":1e2}`, "priority"},
		{"minus_zero", `{"priority":-0}`, "priority"},
		{"string_for_an_integer", `{"delay_until":"1"}`, "delay_until"},
		{"above_int64", `{"delay_until":9223372036854775808}`, "delay_until"},
		{"above_uint64", `{"timeout_policy":{"attempt_timeout_ms":18446744073709551616}}`, "timeout_policy.attempt_timeout_ms"},
		{"tier_without_model", `{"fallback_policy":{"tiers":[{"provider":"p"}]}}`, "fallback_policy.tiers.model"},
		{"object_for_an_array", `{"fallback_policy":{"tiers":{}}}`, "fallback_policy.tiers"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := DecodeExecution([]byte(tt.document))
			var refused *DecodeError
			if !errors.As(err, &refused) || refused.Path != tt.path {
				t.Errorf("got %v, want a refusal at %q", err, tt.path)
			}
		})
	}
	t.Run("key_in_another_case_is_unknown", func(t *testing.T) {
		got, err := DecodeExecution([]byte(`{"Priority":"x","MAX_REPLAY_COUNT":7}`))
		if err != nil || *got.MaxReplayCount != DefaultMaxReplayCount {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("largest_values", func(t *testing.T) {
		document := `{"priority":2147483647,"max_replay_count":4294967295,"dedup_window_ms":18446744073709551615}`
		got, err := DecodeExecution([]byte(document))
		if err != nil || *got.DedupWindowMs != math.MaxUint64 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// fuzzStrict checks that accepted documents are stable under encoding and decoding.
func fuzzStrict[T any](f *testing.F, seeds ...string) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		var first, second T
		if string(bytes.TrimSpace(document)) == "null" || json.Unmarshal(document, &first) != nil {
			return
		}
		encoded, err := json.Marshal(first)
		if err != nil {
			t.Fatalf("%s: %v", document, err)
		}
		if err := json.Unmarshal(encoded, &second); err != nil {
			t.Fatalf("%s became %s: %v", document, encoded, err)
		}
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("%s: %+v became %+v", document, first, second)
		}
	})
}

func FuzzDecodeExecution(f *testing.F) {
	fuzzStrict[Execution](f, `{}`, `{"priority":7,"delay_until":1,"retry_policy":{"max_retries":1,"backoff":{"type":"fixed","delay_ms":5}}}`,
		`{"timeout_policy":{"attempt_timeout_ms":1},"fallback_policy":{"tiers":[{"provider":"p","model":"m"}]}}`,
		`{"routing_requirements":{"required_capabilities":["b","a"],"isolation_level":"x"},"stream_policy":{}}`,
		`{"budget_ids":["550e8400-e29b-41d4-a716-446655440000"],"suspension_policy":{"timeout_behavior":"cancel"}}`)
}

func TestDecodeErrorText(t *testing.T) {
	_, err := DecodeExecution([]byte(`{"retry_policy":{"max_retries":"` + strings.Repeat("9", 1000) + `"}}`))
	if got, want := err.Error(), "policy: retry_policy.max_retries: not an unsigned integer"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
