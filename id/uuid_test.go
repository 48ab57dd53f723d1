package id

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/quick"
	"time"
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

func TestUUID_EveryAcceptedFormGivesTheSameID(t *testing.T) {
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

func TestUUID_OrdersLikeItsText(t *testing.T) {
	err := quick.Check(func(a, b EdgeID, same uint8) bool {
		copy(b[:same%17], a[:]) // they differ in the first byte, else
		return a.Compare(b) < 0 == (a.String() < b.String())
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

func TestUUID_JSON(t *testing.T) {
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

// TestI2_BudgetIDMustBeUUID: a budget id that is no UUID has no partition.
func TestI2_BudgetIDMustBeUUID(t *testing.T) {
	for _, text := range []string{"", "b1", "budget-550e8400-e29b-41d4-a716-446655440000"} {
		if _, err := ParseBudgetID(text); reasonOf(t, err) != ReasonInvalidUUID {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestNewUUIDs_AreVersion7InOrderAndDistinct(t *testing.T) {
	before := time.Now().UnixMilli()
	ids := NewLeaseIDs(10_000)
	after := time.Now().UnixMilli()
	if !slices.IsSortedFunc(ids, LeaseID.Compare) {
		t.Error("not ascending")
	}
	if n := len(slices.Compact(slices.Clone(ids))); n != len(ids) {
		t.Errorf("%d of %d are distinct", n, len(ids))
	}
	for _, u := range append(ids, NewLeaseID()) {
		if u[6]>>4 != 7 || u[8]>>6 != 0b10 {
			t.Fatalf("%v is no UUIDv7", u)
		}
	}
	var ms int64
	for _, b := range ids[0][:6] {
		ms = ms<<8 | int64(b)
	}
	if ms < before || ms > after {
		t.Errorf("made at %d, not in %d..%d", ms, before, after)
	}
	if ids := NewAttemptIDs(0); ids != nil {
		t.Errorf("asked for none, got %v", ids)
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
