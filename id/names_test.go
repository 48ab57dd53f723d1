package id

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

func TestNamesValidate(t *testing.T) {
	long := func(n int) string { return strings.Repeat("n", n) }
	tests := []struct {
		name string
		err  error
		want Reason
	}{
		{"namespace", Namespace("tenant a|b").Validate(), ""},
		{"namespace_empty", Namespace("").Validate(), ReasonEmpty},
		{"namespace_longest", Namespace(long(255)).Validate(), ""},
		{"namespace_too_long", Namespace(long(256)).Validate(), ReasonTooLong},
		{"namespace_control", Namespace("a\nb").Validate(), ReasonForbiddenCharacter},
		{"namespace_utf8", Namespace("a\xff").Validate(), ReasonInvalidUTF8},
		{"worker", WorkerID("wörker").Validate(), ""},
		{"worker_instance_control", WorkerInstanceID("a\u0085").Validate(), ReasonForbiddenCharacter},
		{"waitpoint_key", WaitpointKey("k\n_").Validate(), ""},
		{"waitpoint_key_empty", WaitpointKey("").Validate(), ReasonEmpty},
		{"waitpoint_key_reserved", WaitpointKey("__timeout__").Validate(), ReasonReservedPrefix},
		{"waitpoint_key_nul", WaitpointKey("a\x00").Validate(), ReasonForbiddenCharacter},
		{"waitpoint_key_longest", WaitpointKey(long(512)).Validate(), ""},
		{"waitpoint_key_too_long", WaitpointKey(long(513)).Validate(), ReasonTooLong},
		{"waitpoint_key_minted", WaitpointKey("wpk:" + NewWaitpointID().String()).Validate(), ""},
		{"idempotency_key_none", IdempotencyKey("").Validate(MaxCreateKey), ""},
		{"idempotency_key_by_use", IdempotencyKey(long(257)).Validate(MaxSignalKey), ReasonTooLong},
		{"idempotency_key_of_create", IdempotencyKey(long(1024)).Validate(MaxCreateKey), ""},
		{"idempotency_key_nul", IdempotencyKey("\x00").Validate(MaxUsageKey), ReasonForbiddenCharacter},
		{"text_nul", CheckText("reason", "a\x00b"), ReasonForbiddenCharacter},
		{"text_empty", CheckText("reason", ""), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := reasonOf(t, tt.err); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestLaneIDJSONValidates(t *testing.T) {
	lane := LaneID("kept")
	if err := json.Unmarshal([]byte(`"bad\nlane"`), &lane); reasonOf(t, err) != ReasonNonPrintable || lane != "kept" {
		t.Errorf("got %v, %q", err, lane)
	}
	if err := json.Unmarshal([]byte(`"fine lane"`), &lane); err != nil || lane != "fine lane" {
		t.Errorf("got %v, %q", err, lane)
	}
}

// TestPipeInWorkerIDIsRefused_I29: a grant's signature covers the worker ids joined by it.
func TestPipeInWorkerIDIsRefused_I29(t *testing.T) {
	if err := WorkerID("a|b").Validate(); reasonOf(t, err) != ReasonForbiddenCharacter {
		t.Errorf("worker: got %v", err)
	}
	if err := WorkerInstanceID("|").Validate(); reasonOf(t, err) != ReasonForbiddenCharacter {
		t.Errorf("instance: got %v", err)
	}
}

// TestTagKeysAreCheckedPerEntity_I37: an execution is created with keys that set and get refuse; a flow is not.
func TestTagKeysAreCheckedPerEntity_I37(t *testing.T) {
	tests := []struct {
		key         string
		set, create bool
	}{
		{"cairn.task_id", true, true},
		{"plain", false, true},
		{"Upper.case", false, true},
		{"", false, false},
		{"a\x00", false, false},
		{strings.Repeat("k", 256), false, true},
		{strings.Repeat("k", 257), false, false},
	}
	for _, tt := range tests {
		if got := CheckTagKey(tt.key) == nil; got != tt.set {
			t.Errorf("set %q: got %v", tt.key, got)
		}
		if got := CheckCreateTagKey(tt.key) == nil; got != tt.create {
			t.Errorf("create %q: got %v", tt.key, got)
		}
	}
}

// Rules of identifiers, as the specification states them.
var (
	tagKeyRule    = regexp.MustCompile(`^[a-z][a-z0-9_]*\.[a-z0-9_][a-z0-9_.]*\z`)
	tagPrefixRule = regexp.MustCompile(`^[a-z][a-z0-9_]*\.`)
)

func FuzzTagKey(f *testing.F) {
	f.Add("cairn.task_id")
	f.Add("a.b..c")
	f.Add("a.b\n")
	f.Fuzz(func(t *testing.T, key string) {
		if got, want := CheckTagKey(key) == nil, tagKeyRule.MatchString(key); got != want {
			t.Errorf("key %q: got %v", key, got)
		}
		if got, want := IsFlowTag(key), tagPrefixRule.MatchString(key); got != want {
			t.Errorf("prefix of %q: got %v", key, got)
		}
	})
}

func FuzzLaneID(f *testing.F) {
	f.Add("default")
	f.Add("é")
	f.Fuzz(func(t *testing.T, s string) {
		if LaneID(s).Validate() != nil {
			return
		}
		if Namespace(s).Validate() != nil {
			t.Errorf("lane %q is no namespace", s)
		}
	})
}

// TestCapabilityWithCommaIsRefused_I6: it would read back as two capabilities.
func TestCapabilityWithCommaIsRefused_I6(t *testing.T) {
	if err := NewCapabilities("gpu,cuda").Validate(); reasonOf(t, err) != ReasonForbiddenCharacter {
		t.Errorf("got %v", err)
	}
}

func TestCapabilitiesLimits(t *testing.T) {
	numbered := func(n, width int) []string {
		tokens := make([]string, n)
		for i := range tokens {
			tokens[i] = strings.Repeat("x", width-2) + string(rune('A'+i/16)) + string(rune('a'+i%16))
		}
		return tokens
	}
	tests := []struct {
		name   string
		tokens []string
		want   Reason
	}{
		{"most_tokens", numbered(256, 5), ""},
		{"too_many_tokens", append(numbered(256, 5), "more"), ReasonTooMany},
		{"longest", append(numbered(255, 15), strings.Repeat("y", 16)), ""},
		{"too_long", append(numbered(255, 15), strings.Repeat("y", 17)), ReasonTooLong},
		{"invalid_utf8", []string{"\xff"}, ReasonInvalidUTF8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := NewCapabilities(tt.tokens...)
			if got := reasonOf(t, set.Validate()); got != tt.want {
				t.Errorf("%d tokens, %d bytes: got %q, want %q", len(set), len(set.CSV()), got, tt.want)
			}
		})
	}
}

func TestCapabilitiesCoverUnlessMissing(t *testing.T) {
	sets := subsets("a", "b", "c", "d", "A")
	for _, worker := range sets {
		for _, required := range sets {
			missing := worker.Missing(required)
			if worker.Covers(required) != (len(missing) == 0) {
				t.Errorf("worker %v, required %v, missing %v", worker, required, missing)
			}
			if all := NewCapabilities(append(missing, worker...)...); !all.Covers(required) {
				t.Errorf("worker %v, required %v, missing only %v", worker, required, missing)
			}
		}
	}
}

// subsets returns every set of the tokens. Each token of a set is passed twice.
func subsets(tokens ...string) []Capabilities {
	sets := []Capabilities{NewCapabilities()}
	for _, token := range tokens {
		for _, set := range sets {
			sets = append(sets, NewCapabilities(append([]string{token, token}, set...)...))
		}
	}
	return sets
}

func FuzzParseCapabilities(f *testing.F) {
	f.Add("b,a,,a")
	f.Fuzz(func(t *testing.T, csv string) {
		set := ParseCapabilities(csv)
		if again := ParseCapabilities(set.CSV()); again.CSV() != set.CSV() {
			t.Fatalf("%q is %q, then %q", csv, set, again)
		}
		if !set.Covers(set) {
			t.Fatalf("%q does not cover itself", set)
		}
	})
}
