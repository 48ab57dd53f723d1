package wire

import (
	"encoding/json"
	"math"
	"testing"
	"testing/quick"

	"github.com/flowfabric/flowfabric-go/id"
)

// TestExpectedLeaseTakesAllSpellings_I11: a revocation accepts the ids that a listing returns.
func TestExpectedLeaseTakesAllSpellings_I11(t *testing.T) {
	err := quick.Check(func(lease LeaseTriple) bool {
		lease.AttemptIndex &= math.MaxInt32
		lease.LeaseEpoch &= math.MaxInt64
		stored := id.NewLeaseID()
		for _, expected := range []string{"", lease.String(), lease.Synthetic().String(), stored.String()} {
			if !ExpectedLease(expected).Matches(lease, stored) {
				t.Logf("%q does not match", expected)
				return false
			}
		}
		next := lease
		next.LeaseEpoch ^= 1
		for _, expected := range []string{lease.String(), lease.Synthetic().String(), stored.String(), "x"} {
			if ExpectedLease(expected).Matches(next, id.NewLeaseID()) {
				t.Logf("%q matches %v", expected, next)
				return false
			}
		}
		return true
	}, nil)
	if err != nil {
		t.Error(err)
	}
	t.Run("no_stored_id", func(t *testing.T) {
		lease := LeaseTriple{AttemptIndex: 1, LeaseEpoch: 1}
		if ExpectedLease(id.LeaseID{}.String()).Matches(lease, id.LeaseID{}) {
			t.Error("the nil id matches a lease without one")
		}
	})
}

// TestSyntheticLeaseIsOnlyALabel_I12: different leases share one, so it fences nothing.
func TestSyntheticLeaseIsOnlyALabel_I12(t *testing.T) {
	a := LeaseTriple{Execution: id.ExecutionUUID{7: 1}, LeaseEpoch: 1}
	b := LeaseTriple{Execution: id.ExecutionUUID{7: 3}, LeaseEpoch: 3}
	if a == b || a.Synthetic() != b.Synthetic() {
		t.Errorf("%v and %v, labels %v and %v", a, b, a.Synthetic(), b.Synthetic())
	}
	start := LeaseTriple{Execution: id.NewExecutionUUID()}
	if got := start.Synthetic(); got != id.LeaseID(start.Execution) {
		t.Errorf("epoch and index 0: got %v, want %v", got, start.Execution)
	}
}

// TestStoredNumbersAreChecked_I44: a number above its column's range is never stored as a negative one.
func TestStoredNumbersAreChecked_I44(t *testing.T) {
	if n, err := StoredAttemptIndex(math.MaxInt32); n != math.MaxInt32 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := StoredAttemptIndex(math.MaxInt32 + 1); reasonOf(t, err) != id.ReasonOutOfRange {
		t.Errorf("got %v", err)
	}
	if n, err := StoredLeaseEpoch(math.MaxInt64); n != math.MaxInt64 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := StoredLeaseEpoch(math.MaxInt64 + 1); reasonOf(t, err) != id.ReasonOutOfRange {
		t.Errorf("got %v", err)
	}
}

func FuzzParseLeaseTriple(f *testing.F) {
	f.Add("pg:" + someUUID + ":1:2")
	f.Add("pg:" + someUUID + ":01:2")
	f.Fuzz(func(t *testing.T, s string) {
		lease, err := ParseLeaseTriple(s)
		if err != nil {
			return
		}
		if again, err := ParseLeaseTriple(lease.String()); err != nil || again != lease {
			t.Fatalf("%q is %v, which parses as %v, %v", s, lease, again, err)
		}
	})
}

func FuzzLeaseFenceJSON(f *testing.F) {
	f.Add([]byte(`{"lease_id":"` + someUUID + `","lease_epoch":7,"attempt_id":"` + someUUID + `"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var fence, again LeaseFence
		if json.Unmarshal(data, &fence) != nil || string(data) == "null" {
			return
		}
		encoded, err := json.Marshal(fence)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(encoded, &again); err != nil || again != fence {
			t.Fatalf("%s became %s, %v", data, encoded, err)
		}
	})
}
