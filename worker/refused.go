package worker

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/fferr"
)

// maxRefusals is how often the server may refuse a wait sent alone before its execution fails.
const maxRefusals = 3

// refusedAgain counts a refusal of the task's wait, and returns true after maxRefusals.
func (t *task) refusedAgain(err error) bool {
	if isRefusalOfData(err) {
		t.refusals++
	}
	return t.refusals >= maxRefusals
}

// isRefusalOfData reports whether the server refused the data, and would again. Locks, connections, rights and missing
// migrations are different: they can change.
func isRefusalOfData(err error) bool {
	if errors.Is(err, fferr.ErrCorruption) {
		return true
	}
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	// Bad data, constraints, features, limits of a program, and errors that functions raise.
	return ok && len(refusal.Code) == 5 && slices.Contains([]string{"22", "23", "0A", "54", "P0", "XX"}, refusal.Code[:2])
}
