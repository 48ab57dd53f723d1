package engine

// Outcome is the result of one item of a batch: a value or an error. It implies nothing about other items.
type Outcome[T any] struct {
	Value T
	Err   error
}

// validItems returns the positions that check accepts, and fills the outcomes of the others.
func validItems[T any](outcomes []Outcome[T], check func(n int) error) (valid []int) {
	for n := range outcomes {
		if outcomes[n].Err = check(n); outcomes[n].Err == nil {
			valid = append(valid, n)
		}
	}
	return valid
}

// errorsOf returns the errors of outcomes that have no value.
func errorsOf[T any](outcomes []Outcome[T]) []error {
	errs := make([]error, len(outcomes))
	for n, o := range outcomes {
		errs[n] = o.Err
	}
	return errs
}
