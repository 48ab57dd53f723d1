package fferr

// Outcome is the result of one item of a batch: a value or an error. An outcome implies nothing about other items.
type Outcome[T any] struct {
	Value T
	Err   error
}
