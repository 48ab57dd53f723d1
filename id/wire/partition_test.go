package wire

import (
	"errors"
	"math"
	"testing"

	"github.com/flowfabric/flowfabric-go/id"
)

const someUUID = "550e8400-e29b-41d4-a716-446655440000"

// reasonOf returns the reason of a refusal, "" for none.
func reasonOf(t *testing.T, err error) id.Reason {
	t.Helper()
	if err == nil {
		return ""
	}
	refused, ok := errors.AsType[*id.ParseError](err)
	if !ok {
		t.Fatalf("not a ParseError: %v", err)
	}
	return refused.Reason
}

// TestFlowKeyIsChecked_I8: a number is checked, never wrapped.
func TestFlowKeyIsChecked_I8(t *testing.T) {
	for _, tt := range []struct {
		key   PartitionKey
		flows uint16
		want  id.Reason
	}{
		{PartitionKey{FamilyFlow, 255}, 0, ""},
		{PartitionKey{FamilyFlow, 256}, 0, id.ReasonOutOfRange},
		{PartitionKey{FamilyFlow, 3}, 4, ""},
		{PartitionKey{FamilyFlow, 4}, 4, id.ReasonOutOfRange},
		{PartitionKey{FamilyFlow, math.MaxUint16}, 0, id.ReasonOutOfRange},
		{PartitionKey{FamilyBudget, 1}, 0, id.ReasonUnknownFamilyPrefix},
	} {
		if err := tt.key.CheckFlow(id.Partitions{Flow: tt.flows}); reasonOf(t, err) != tt.want {
			t.Errorf("%v of %d: got %v, want %q", tt.key, tt.flows, err, tt.want)
		}
	}
}

func FuzzParsePartitionKey(f *testing.F) {
	f.Add("{fp:42}")
	f.Add("{b:1:2}")
	f.Fuzz(func(t *testing.T, s string) {
		if key, err := ParsePartitionKey(s); err == nil && key.String() != s {
			t.Fatalf("%q renders as %q", s, key)
		}
	})
}
