package conformance

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

const corruption = "Corruption"

type jsonShapeCase struct {
	Type      string          `json:"type"`
	JSON      json.RawMessage `json:"json"`
	OK        bool            `json:"ok"`
	DecodesTo json.RawMessage `json:"decodes_to"`
}

// decoders has, for every type of document, a new value to decode into.
func decoders() map[string]any {
	return map[string]any{
		"AttemptIndex":         new(uint32),
		"BackoffStrategy":      new(document.Backoff),
		"CancelSource":         new(state.CancelSource),
		"EdgeDependencyPolicy": new(document.Group),
		"ExecutionPolicy":      new(document.Execution),
		"FallbackPolicy":       new(document.Fallback),
		"Handle":               new(wire.Handle),
		"LeaseEpoch":           new(uint64),
		"LeaseFence":           new(wire.LeaseFence),
		"RetryPolicy":          new(document.Retry),
		"RoutingRequirements":  new(document.Routing),
		"StreamPolicy":         new(document.Stream),
		"SuspensionPolicy":     new(document.Suspension),
		"TimeoutPolicy":        new(document.Timeout),
	}
}

func jsonShape(t *testing.T, raw testCase) bool {
	var c jsonShapeCase
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	into, ok := decoders()[c.Type]
	if !ok {
		return false
	}
	err := json.Unmarshal(c.JSON, into)
	equal(t, "ok", err == nil, c.OK)
	if err != nil {
		return true
	}
	encoded := mustMarshal(t, into)
	if c.DecodesTo != nil {
		sameJSON(t, "decoded and encoded", encoded, c.DecodesTo)
		return true
	}
	containsJSON(t, "decoded and encoded", encoded, c.JSON)
	again := decoders()[c.Type]
	if err := json.Unmarshal(encoded, again); err != nil {
		t.Fatal(err)
	}
	sameJSON(t, "encoded again", mustMarshal(t, again), encoded)
	return true
}

type edgePolicyCase struct {
	Stored   json.RawMessage `json:"stored"`
	Required json.RawMessage `json:"required"`
}

func edgePolicyStored(t *testing.T, c edgePolicyCase) {
	group, err := document.GroupFromStored(c.Stored)
	if string(c.Required) == `"`+corruption+`"` {
		equal(t, "refused", errors.As(err, new(*document.DecodeError)), true)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	sameJSON(t, "policy", mustMarshal(t, group), c.Required)
}

type retryDelayCase struct {
	Backoff    json.RawMessage `json:"backoff"`
	RetryCount int             `json:"retry_count"`
	DelayMs    int64           `json:"delay_ms"`
}

func retryDelay(t *testing.T, c retryDelayCase) {
	equal(t, "read leniently", document.BackoffFromJSON(c.Backoff).PauseMs(c.RetryCount), c.DelayMs)
	var strict document.Backoff
	if json.Unmarshal(c.Backoff, &strict) == nil && string(c.Backoff) != "null" {
		equal(t, "read strictly", strict.PauseMs(c.RetryCount), c.DelayMs)
	}
}

type enumCase struct {
	Type     string   `json:"type"`
	Literals []string `json:"literals"`
}

func enumLiterals(t *testing.T, raw testCase) bool {
	var c enumCase
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	lists := map[string][]string{
		"AttemptLifecycle": literals(state.AttemptLifecycles()),
		"AttemptState":     literals(state.AttemptStates()),
		"AttemptType":      literals(state.AttemptTypes()),
		"BackendTag":       nil,
		"BlockingReason":   literals(state.BlockingReasons()),
		"EdgeGroupState":   literals(state.EdgeGroupStates()),
		"EligibilityState": literals(state.EligibilityStates()),
		"HandleKind":       literals(wire.HandleKinds()),
		"LaneState":        literals(state.LaneStates()),
		"LifecyclePhase":   literals(state.LifecyclePhases()),
		"OnSatisfied":      literals(document.OnSatisfiedValues()),
		"OwnershipState":   literals(state.OwnershipStates()),
		"PublicState":      literals(state.PublicStates()),
		"TerminalOutcome":  append([]string{storedNone}, literals(state.TerminalOutcomes()[1:])...),
	}
	for _, backend := range wire.Backends() {
		lists["BackendTag"] = append(lists["BackendTag"], backend.String())
	}
	list, ok := lists[c.Type]
	if ok {
		equal(t, c.Type, list, c.Literals)
	}
	return ok
}

// storedNone is how the vectors spell an execution without an outcome, which is [state.OutcomeNone] here.
const storedNone = "none"

func literals[S ~string](values []S) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}

type completionCase struct {
	Stored   string       `json:"stored"`
	Required string       `json:"required_typed"`
	Counter  state.Bucket `json:"dependency_counter"`
}

func completionOutcome(t *testing.T, c completionCase) {
	outcome, ok := normalise.CompletionOutcome(c.Stored)
	if !ok {
		equal(t, "typed", "not a completion: never delivered", c.Required)
		equal(t, "counter", state.BucketNone, c.Counter)
		return
	}
	names := map[state.CompletionOutcome]string{
		state.CompletionSuccess: "Success", state.CompletionFailure: "Failure", state.CompletionCancelled: "Cancelled",
		state.CompletionExpired: "Expired", state.CompletionSkipped: "Skipped",
	}
	typed, known := names[outcome]
	if !known {
		typed = "Other(" + string(outcome) + ")"
	}
	equal(t, "typed", typed, c.Required)
	equal(t, "known", outcome.Known(), known)
	equal(t, "counter", outcome.Bucket(), c.Counter)
}

type deriveCase struct {
	Phase       state.LifecyclePhase   `json:"lifecycle_phase"`
	Eligibility state.EligibilityState `json:"eligibility_state"`
	Outcome     state.TerminalOutcome  `json:"terminal_outcome"`
	Public      state.PublicState      `json:"public_state"`
}

func derivePublicState(t *testing.T, c deriveCase) {
	if c.Outcome == storedNone {
		c.Outcome = state.OutcomeNone
	}
	equal(t, "public state", state.Derive(c.Phase, c.Eligibility, c.Outcome), c.Public)
}

type storedLiteralCase struct {
	Column   string `json:"column"`
	Stored   string `json:"stored"`
	Required string `json:"required"`
}

func storedLiteral(t *testing.T, c storedLiteralCase) {
	readers := map[string]func(string) (string, error){
		"lifecycle_phase":   reader(normalise.LifecyclePhase),
		"ownership_state":   reader(normalise.OwnershipState),
		"eligibility_state": reader(normalise.EligibilityState),
		"attempt_state":     reader(normalise.AttemptState),
		"public_state":      reader(normalise.PublicState),
	}
	read, ok := readers[c.Column]
	if !ok {
		t.Fatalf("unknown column %q", c.Column)
	}
	got, err := read(c.Stored)
	if err != nil {
		var unknown *normalise.UnknownLiteralError
		if !errors.As(err, &unknown) {
			t.Fatal(err)
		}
		equal(t, "error", *unknown, normalise.UnknownLiteralError{Column: c.Column, Literal: c.Stored})
		got = corruption
	}
	equal(t, "read as", got, c.Required)
}

func reader[S ~string](read func(string) (S, error)) func(string) (string, error) {
	return func(raw string) (string, error) {
		value, err := read(raw)
		return string(value), err
	}
}
