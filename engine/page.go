package engine

// MaxPage is the largest number of items in a page, and the default for a limit of 0.
const MaxPage = 1000

// Page is one page of a listing. Next continues the listing as after of the next call; a first call passes "". Only an
// empty Next means the end: a page may be short. A limit of 0 or above [MaxPage] means [MaxPage]. A negative limit, or
// a cursor of another listing or filter, is [fferr.ErrInvalidInput]. Cursors don't expire. Iterators read a page at a
// time.
type Page[T any] struct {
	Items []T
	Next  string
}
