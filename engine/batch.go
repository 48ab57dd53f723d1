package engine

import (
	"fmt"

	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Outcome is the result of one item of a batch: a value or an error. It implies nothing about other items.
type Outcome[T any] struct {
	Value T
	Err   error
}

// byBytes is bySize with a given number of bytes.
func byBytes[T any](items []T, most, mostBytes int, size func(T) int) [][]T {
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

// bySize splits items into runs of at most most items, and of at most the bytes of one statement. A larger item is a
// run of its own.
func bySize[T any](items []T, most int, size func(T) int) [][]T {
	return byBytes(items, most, core.MaxStatementBytes, size)
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

func checkBatch(batch int) error {
	if batch < 1 || batch > MaxBatch {
		return core.Invalid("batch", fmt.Sprintf("must be between 1 and %d", MaxBatch))
	}
	return nil
}

// inChunks runs work on consecutive ranges of at most size of n items. If the first range fails, its error is returned.
// An error of a later range applies to all items from there on, because earlier ranges are committed.
func inChunks(n, size int, work func(from, to int) error, fail func(i int, err error)) error {
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

// MaxSweep is the largest batch of [Maintenance.RepairQueue], [Maintenance.RepairGroups], [Maintenance.SummariseFlows] and
// [Maintenance.SweepWaits].
const MaxSweep = 15_000
