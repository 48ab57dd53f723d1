package core

import (
	"errors"
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/fferr"
)

// listing lists the numbers below n, without those that keep refuses.
func listing(n int, keep func(int) (bool, error), reads *int) (listed []int, failed error) {
	for item, err := range All("list numbers", func(after *int) (rows []int, err error) {
		*reads++
		first := 0
		if after != nil {
			first = *after + 1
		}
		for i := first; i < min(n, first+MaxPage); i++ {
			rows = append(rows, i)
		}
		return rows, nil
	}, func(row *int) (int, bool, error) {
		ok, err := keep(*row)
		return *row, ok, err
	}) {
		if err != nil {
			return listed, err
		}
		listed = append(listed, item)
	}
	return listed, nil
}

func TestAllReadsPagesToTheEnd(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ n, reads int }{{0, 1}, {1, 1}, {MaxPage - 1, 1}, {MaxPage, 2}, {MaxPage + 1, 2}, {2*MaxPage + 1, 3}} {
		reads := 0
		got, err := listing(tc.n, func(i int) (bool, error) { return i%3 > 0, nil }, &reads)
		if err != nil || len(got) != tc.n-(tc.n+2)/3 || !slices.IsSorted(got) || reads != tc.reads {
			t.Errorf("%d of %d rows by %d reads, want %d, %v", len(got), tc.n, reads, tc.reads, err)
		}
	}
}

func TestAllReturnsAnErrorBeforeItsPage(t *testing.T) {
	t.Parallel()
	reads := 0
	got, err := listing(2*MaxPage, func(i int) (bool, error) {
		if i == MaxPage+7 {
			return false, Corrupt("a.column", errors.New("odd"))
		}
		return true, nil
	}, &reads)
	if len(got) != MaxPage || !errors.Is(err, fferr.ErrCorruption) {
		t.Errorf("%d items and %v", len(got), err)
	}
}
