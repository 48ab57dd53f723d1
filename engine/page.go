package engine

import (
	"iter"

	"github.com/flowfabric/flowfabric-go/internal/core"
)

// MaxPage is the largest number of items in a page, and the default if the limit is 0.
const MaxPage = 1000

// Page is one page of a listing. Next is the cursor of the next page, or "" after the last one. A cursor is valid for
// the same listing and filter, as long as the database exists.
type Page[T any] struct {
	Items []T
	Next  string
}

// pageOf cuts a page from rows, which were read with one more than limit.
func pageOf[T any](rows []T, limit int, cursor func(*T) string) Page[T] {
	if len(rows) <= limit {
		return Page[T]{Items: rows}
	}
	return Page[T]{Items: rows[:limit], Next: cursor(&rows[limit-1])}
}

// pageSize returns the limit to apply for a caller's limit.
func pageSize(limit int) (int, error) {
	switch {
	case limit < 0:
		return 0, core.Invalid("limit", "is negative")
	case limit == 0:
		return MaxPage, nil
	}
	return min(limit, MaxPage), nil
}

// pages iterates over a listing, a page at a time. Nothing is held open while the loop's body runs.
func pages[T any](list func(after string) (Page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for after := ""; ; {
			page, err := list(after)
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
