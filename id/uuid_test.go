package id

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/quick"

	"github.com/google/uuid"
)

func reasonOf(t *testing.T, err error) Reason {
	t.Helper()
	if err == nil {
		return ""
	}
	var refused *ParseError
	if !errors.As(err, &refused) {
		t.Fatalf("not a ParseError: %v", err)
	}
	return refused.Reason
}

func TestUUIDEveryAcceptedFormGivesTheSameID(t *testing.T) {
	err := quick.Check(func(want FlowID) bool {
		text := want.String()
		bare := text[0:8] + text[9:13] + text[14:18] + text[19:23] + text[24:]
		for _, form := range []string{text, bare, "{" + text + "}", "urn:uuid:" + text} {
			if got, err := ParseFlowID(form); err != nil || got != want {
				t.Logf("%q: got %v, %v", form, got, err)
				return false
			}
		}
		return true
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

// TestUUIDRefusesWhatOnlyThePackageAccepts covers the forms that uuid.Parse accepts beyond the documented four.
func TestUUIDRefusesWhatOnlyThePackageAccepts(t *testing.T) {
	text := NewFlowID().String()
	for _, form := range []string{"(" + text + ")", "{" + text + ")", " " + text + " ", "{" + text + "{", "URN:UUID:" + text, "Urn:uuid:" + text} {
		if _, err := uuid.Parse(form); err != nil {
			t.Errorf("%q: the package refuses it too", form)
		}
		if u, err := ParseFlowID(form); reasonOf(t, err) != ReasonInvalidUUID || !u.IsZero() {
			t.Errorf("%q: got %v, %v", form, u, err)
		}
		if _, err := ParseExecutionID("{fp:1}:" + form); reasonOf(t, err) != ReasonInvalidUUID {
			t.Errorf("%q in an execution id: got %v", form, err)
		}
	}
}

func TestUUIDConvertsBothWays(t *testing.T) {
	err := quick.Check(func(u uuid.UUID) bool {
		x := ExecutionIDFromRow(1, ExecutionUUID(u))
		return FlowID(u).UUID() == u && x.UUID().UUID() == u && FlowID(u).String() == u.String()
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

func TestUUIDOrdersLikeItsText(t *testing.T) {
	err := quick.Check(func(a, b EdgeID, same uint8) bool {
		copy(b[:same%17], a[:]) // they differ in the first byte, else
		return a.Compare(b) < 0 == (a.String() < b.String())
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

func TestUUIDRoundTripsInJSON(t *testing.T) {
	want := NewSignalID()
	data, err := json.Marshal(map[SignalID]SignalID{want: want})
	if err != nil {
		t.Fatal(err)
	}
	var got map[SignalID]SignalID
	if err := json.Unmarshal(data, &got); err != nil || got[want] != want {
		t.Fatalf("%s: got %v, %v", data, got, err)
	}
	if err := json.Unmarshal([]byte(`"550e8400"`), &want); reasonOf(t, err) != ReasonInvalidUUID {
		t.Fatalf("got %v", err)
	}
}

// TestBudgetIDMustBeUUID_I2: a budget id that is no UUID has no partition.
func TestBudgetIDMustBeUUID_I2(t *testing.T) {
	for _, text := range []string{"", "b1", "budget-550e8400-e29b-41d4-a716-446655440000"} {
		if _, err := ParseBudgetID(text); reasonOf(t, err) != ReasonInvalidUUID {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func FuzzParseUUID(f *testing.F) {
	f.Add("550e8400-e29b-41d4-a716-446655440000")
	f.Add("{550E8400-E29B-41D4-A716-446655440000}")
	f.Add("urn:uuid:550e8400-e29b-41d4-a716-446655440000")
	f.Add("550e8400e29b41d4a716446655440000")
	f.Fuzz(func(t *testing.T, s string) {
		u, err := ParseFlowID(s)
		if err != nil {
			if !u.IsZero() {
				t.Fatalf("%q refused, and %v returned", s, u)
			}
			return
		}
		if again, err := ParseFlowID(u.String()); err != nil || again != u {
			t.Fatalf("%q is %v, which parses as %v, %v", s, u, again, err)
		}
	})
}
