package engine

// MaxPage is the largest number of items in a page, and the default if the limit is 0.
const MaxPage = 1000

// Page is one page of a listing. Next is the cursor of the next page, or "" after the last one. A cursor is valid for
// the same listing and filter, as long as the database exists.
type Page[T any] struct {
	Items []T
	Next  string
}
