package core

import (
	"iter"
)

// MaxPage is the largest number of items in a page.
const MaxPage = 1000

// Page is one page of a listing, and the cursor of the next.
type Page[T any] struct {
	Items []T
	Next  string
}

// PageOf cuts a page from rows, which were read with one more than limit.
func PageOf[T any](rows []T, limit int, cursor func(*T) string) Page[T] {
	if len(rows) <= limit {
		return Page[T]{Items: rows}
	}
	return Page[T]{Items: rows[:limit], Next: cursor(&rows[limit-1])}
}

// PageSize returns the limit to apply for a caller's limit.
func PageSize(limit int) (int, error) {
	switch {
	case limit < 0:
		return 0, Invalid("limit", "is negative")
	case limit == 0:
		return MaxPage, nil
	}
	return min(limit, MaxPage), nil
}

// Pages iterates over a listing, a page at a time. Nothing is held open while the loop's body runs. P is the public form of
// [Page].
func Pages[P ~struct {
	Items []T
	Next  string
}, T any](list func(after string) (P, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for after := ""; ; {
			public, err := list(after)
			page := Page[T](public)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if after = page.Next; after == "" {
				return
			}
		}
	}
}

// All iterates over a listing. read returns the next rows after the given row, nil for the start, and at most [MaxPage]. item
// converts a row, or returns false to skip the row. An error ends the iteration before the items of the same read. No
// connection is held while the loop's body runs.
func All[R, T any](op string, read func(after *R) ([]R, error), item func(*R) (T, bool, error)) iter.Seq2[T, error] {
	return AllFrom(op, MaxPage, func(after *R, _ int32) ([]R, error) { return read(after) }, item)
}

// AllFrom is [All] with a smaller first read, for callers that stop early: read returns at most n rows.
func AllFrom[R, T any](
	op string, first int32, read func(after *R, n int32) ([]R, error), item func(*R) (T, bool, error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		n := first
		for after := (*R)(nil); ; n = MaxPage {
			rows, err := read(after, n)
			var items []T
			for i := range rows {
				found, ok, invalid := item(&rows[i])
				if err = invalid; err != nil {
					break
				}
				if ok {
					items = append(items, found)
				}
			}
			if err != nil {
				var none T
				yield(none, Wrap(op, err))
				return
			}
			for _, found := range items {
				if !yield(found, nil) {
					return
				}
			}
			if len(rows) < int(n) {
				return
			}
			after = &rows[len(rows)-1]
		}
	}
}
