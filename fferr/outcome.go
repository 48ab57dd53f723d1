package fferr

// Outcome is the result of one item of a batch: a value or an error. It implies nothing about other items.
type Outcome[T any] struct {
	Value T
	Err   error
}
