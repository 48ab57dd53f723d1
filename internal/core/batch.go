package core

import (
	"fmt"

	"github.com/flowfabric/flowfabric-go/fferr"
)

// ByBytes is BySize with a given number of bytes.
func ByBytes[T any](items []T, most, mostBytes int, size func(T) int) [][]T {
	var runs [][]T
	from, bytes := 0, 0
	for n, item := range items {
		more := size(item)
		if n > from && (n-from == most || bytes+more > mostBytes) {
			runs = append(runs, items[from:n])
			from, bytes = n, 0
		}
		bytes += more
	}
	if from < len(items) {
		runs = append(runs, items[from:])
	}
	return runs
}

// BySize splits items into runs of at most most items, and of at most the bytes of one statement. A larger item is a
// run of its own.
func BySize[T any](items []T, most int, size func(T) int) [][]T {
	return ByBytes(items, most, MaxStatementBytes, size)
}

// CheckBatch refuses the size of a batch.
func CheckBatch(batch int) error {
	if batch < 1 || batch > MaxBatch {
		return Invalid("batch", fmt.Sprintf("must be between 1 and %d", MaxBatch))
	}
	return nil
}

// InChunks runs work on consecutive ranges of at most size of n items. It returns the error of the first range. An
// error of a later range applies to all items from there on, because earlier ranges are committed.
func InChunks(n, size int, work func(from, to int) error, fail func(i int, err error)) error {
	for from := 0; from < n; from += size {
		to := min(from+size, n)
		err := work(from, to)
		switch {
		case err == nil:
		case from == 0:
			return err
		default:
			for i := from; i < n; i++ {
				fail(i, err)
			}
			return nil
		}
	}
	return nil
}

// MaxSweep is the largest batch of the job repair_queue, the job repair_groups, the job summarise_flows and
// the job sweep_waits.
const MaxSweep = 15_000

// ValidItems returns the positions accepted by check, and stores the errors of the others in their outcomes.
func ValidItems[T any](outcomes []fferr.Outcome[T], check func(n int) error) (valid []int) {
	for n := range outcomes {
		if outcomes[n].Err = check(n); outcomes[n].Err == nil {
			valid = append(valid, n)
		}
	}
	return valid
}

// ErrorsOf returns the errors of outcomes, in order.
func ErrorsOf[T any](outcomes []fferr.Outcome[T]) []error {
	errs := make([]error, len(outcomes))
	for n, o := range outcomes {
		errs[n] = o.Err
	}
	return errs
}
