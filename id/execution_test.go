package id

import (
	"math"
	"math/rand"
	"net/url"
	"reflect"
	"testing"
	"testing/quick"
)

const someUUID = "550e8400-e29b-41d4-a716-446655440000"

// Generate makes any execution id for testing/quick.
func (ExecutionID) Generate(random *rand.Rand, _ int) reflect.Value {
	e := ExecutionID{partition: uint16(random.Uint32())}
	random.Read(e.uuid[:])
	return reflect.ValueOf(e)
}

func TestExecutionIDRoundTrip(t *testing.T) {
	err := quick.Check(func(want ExecutionID) bool {
		if want.partition <= math.MaxInt16 && ExecutionIDFromRow(want.Partition(), want.UUID()) != want {
			return false
		}
		got, err := ParseExecutionID(want.String())
		return got == want && err == nil
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

// F6: the short form needs no escapes in a URL, and is read back. Texts near it are no ids.
func TestExecutionIDHasAShortForm(t *testing.T) {
	err := quick.Check(func(want ExecutionID) bool {
		got, err := ParseExecutionID(want.Short())
		return got == want && err == nil && url.PathEscape(want.Short()) == want.Short() && url.QueryEscape(want.Short()) == want.Short()
	}, nil)
	if err != nil {
		t.Error(err)
	}
	if short := ExecutionIDFromRow(7, ExecutionUUID{}).Short(); short != "7-00000000-0000-0000-0000-000000000000" {
		t.Errorf("the short form is %s", short)
	}
	for _, text := range []string{
		someUUID, "-" + someUUID, "07-" + someUUID, "+7-" + someUUID, "65536-" + someUUID, "7-" + someUUID + "0", "7 -" + someUUID,
		"7-", "7", "7:" + someUUID, "7-{" + someUUID + "}", "7-550e8400e29b41d4a716446655440000", "7--" + someUUID,
	} {
		if got, err := ParseExecutionID(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestExecutionIDOrdersByPartitionThenUUID(t *testing.T) {
	low, high := ExecutionUUID{15: 1}, ExecutionUUID{0: 1}
	ordered := []ExecutionID{
		ExecutionIDFromRow(2, low), ExecutionIDFromRow(2, high), ExecutionIDFromRow(10, low), ExecutionIDFromRow(10, high),
	}
	for i, a := range ordered {
		for j, b := range ordered {
			if got, want := a.Compare(b), min(max(i-j, -1), 1); got != want {
				t.Errorf("%v to %v: got %d, want %d", a, b, got, want)
			}
		}
	}
}

// TestPartitionCountsComeFromConfiguration_I1: the counts come from configuration, and their defaults are the
// ones that other programs on the database use.
func TestPartitionCountsComeFromConfiguration_I1(t *testing.T) {
	if got, want := (Partitions{}).WithDefaults(), (Partitions{Flow: 256, Budget: 32, Quota: 32}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, p := range []Partitions{{}, {Flow: 256, Budget: 32767, Quota: 32767}, {Flow: 1, Budget: 1, Quota: 1}} {
		if err := p.Validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, p := range []Partitions{{Flow: 257}, {Budget: 32768}, {Quota: 65535}} {
		if p.Validate() == nil {
			t.Errorf("%+v accepted", p)
		}
	}
}

// TestExecutionIDParseIsStrict_I7: every row has one spelling, and tokens are signed over it.
func TestExecutionIDParseIsStrict_I7(t *testing.T) {
	tests := []struct {
		name, text string
		want       Reason
	}{
		{"plus_sign", "{fp:+7}:" + someUUID, ReasonInvalidPartitionIndex},
		{"leading_zeros", "{fp:007}:" + someUUID, ReasonInvalidPartitionIndex},
		{"braced_uuid", "{fp:7}:{" + someUUID + "}", ReasonInvalidUUID},
		{"urn_uuid", "{fp:7}:urn:uuid:" + someUUID, ReasonInvalidUUID},
		{"bare_digits", "{fp:7}:550e8400e29b41d4a716446655440000", ReasonInvalidUUID},
		{"trailing_newline", "{fp:7}:" + someUUID + "\n", ReasonInvalidUUID},
		{"no_partition", someUUID, ReasonMissingTag},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := ParseExecutionID(tt.text); reasonOf(t, err) != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
	t.Run("upper_case_renders_lower", func(t *testing.T) {
		parsed, err := ParseExecutionID("{fp:7}:550E8400-E29B-41D4-A716-446655440000")
		if err != nil || parsed.String() != "{fp:7}:"+someUUID {
			t.Errorf("got %v, %v", parsed, err)
		}
	})
}

// TestPartitionOutOfRangeIsRefused_I8: a number is checked, never wrapped.
func TestPartitionOutOfRangeIsRefused_I8(t *testing.T) {
	tests := []struct {
		text      string
		partition int16
		of256     bool
		of4       bool
	}{
		{"{fp:0}:" + someUUID, 0, true, true},
		{"{fp:3}:" + someUUID, 3, true, true},
		{"{fp:4}:" + someUUID, 4, true, false},
		{"{fp:255}:" + someUUID, 255, true, false},
		{"{fp:256}:" + someUUID, 256, false, false},
		{"{fp:32768}:" + someUUID, -1, false, false},
		{"{fp:65535}:" + someUUID, -1, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.text[:10], func(t *testing.T) {
			parsed, err := ParseExecutionID(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if got := parsed.Partition(); got != tt.partition {
				t.Errorf("partition: got %d, want %d", got, tt.partition)
			}
			for count, accepted := range map[uint16]bool{0: tt.of256, 4: tt.of4} {
				p := Partitions{Flow: count}
				want := ReasonOutOfRange
				if accepted {
					want = ""
				}
				if err := p.CheckExecution(parsed); reasonOf(t, err) != want {
					t.Errorf("%+v: got %v, want %q", p, err, want)
				}
			}
		})
	}
	t.Run("negative_row", func(t *testing.T) {
		broken := ExecutionIDFromRow(-7, ExecutionUUID{})
		if err := (Partitions{}).CheckExecution(broken); reasonOf(t, err) != ReasonOutOfRange {
			t.Errorf("got %v", err)
		}
	})
}

func TestPartitionsStayInRange(t *testing.T) {
	err := quick.Check(func(a, b, c uint16, lane LaneID, flow FlowID, budget BudgetID, quota QuotaPolicyID) bool {
		p := Partitions{Flow: a%256 + 1, Budget: b%math.MaxInt16 + 1, Quota: c%math.MaxInt16 + 1}
		inBudget, inQuota := p.BudgetPartition(budget), p.QuotaPartition(quota)
		return p.CheckExecution(NewExecutionID(lane, p)) == nil &&
			p.CheckExecution(NewMemberExecutionID(flow, p)) == nil &&
			inBudget >= 0 && uint16(inBudget) < p.Budget &&
			inQuota >= 0 && uint16(inQuota) < p.Quota
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

func TestErrorsQuoteAtMost64Bytes(t *testing.T) {
	long := make([]byte, 10_000)
	for i := range long {
		long[i] = 'x'
	}
	_, err := ParseExecutionID(string(long))
	if n := len(err.Error()); n > 128 {
		t.Errorf("%d bytes: %v", n, err)
	}
}

func FuzzParseExecutionID(f *testing.F) {
	f.Add("{fp:42}:" + someUUID)
	f.Add("{fp:007}:" + someUUID)
	f.Add("{fp:65536}:" + someUUID)
	f.Fuzz(func(t *testing.T, s string) {
		parsed, err := ParseExecutionID(s)
		if err != nil {
			return
		}
		if again, err := ParseExecutionID(parsed.String()); err != nil || again != parsed {
			t.Fatalf("%q is %v, which parses as %v, %v", s, parsed, again, err)
		}
	})
}
