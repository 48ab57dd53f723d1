package id

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestNewUUIDsAreVersion7InOrderAndDistinct(t *testing.T) {
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
		if u.UUID().Version() != 7 || u.UUID().Variant() != uuid.RFC4122 {
			t.Fatalf("%v is no UUIDv7", u)
		}
	}
	sec, nsec := ids[0].UUID().Time().UnixTime()
	if ms := time.Unix(sec, nsec).UnixMilli(); ms < before || ms > after {
		t.Errorf("made at %d, not in %d..%d", ms, before, after)
	}
	if ids := NewAttemptIDs(0); ids != nil {
		t.Errorf("asked for none, got %v", ids)
	}
}

func TestNewUUIDsAscendFromCallToCall(t *testing.T) {
	last := NewLeaseID()
	for range 100_000 {
		next := NewLeaseID()
		if next.Compare(last) <= 0 {
			t.Fatalf("%v after %v", next, last)
		}
		last = next
	}
}

func BenchmarkNewLeaseID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		NewLeaseID()
	}
}

func BenchmarkNewLeaseIDs(b *testing.B) {
	for _, n := range []int{1, 10, 100, 500} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				NewLeaseIDs(n)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/id")
		})
	}
}
