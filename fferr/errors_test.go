package fferr

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestKnown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		err   error
		known bool
	}{
		{"a sentinel", ErrBusy, true},
		{"a wrapped one", fmt.Errorf("claim: %w", ErrBusy), true},
		{"one in a struct", &LeaseError{Err: ErrStaleLease}, true},
		{"one beside another error", &InputError{Field: "field", Reason: "reason", Cause: errors.New("cause")}, true},
		{"an error with the text of one", errors.New(ErrBusy.Error()), false},
		{"the driver's", pgx.ErrNoRows, false},
		{"a context's", context.Canceled, false},
		{"none", nil, false},
	} {
		if known := Known(c.err); known != c.known {
			t.Errorf("%s: %t, want %t", c.name, known, c.known)
		}
	}
}
