package pgtx

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/db"
)

func serverError(code string) error { return fmt.Errorf("query: %w", &pgconn.PgError{Code: code}) }

// tries runs a statement that returns the given errors, one a try, and returns when each try began.
func tries(ctx context.Context, r Runner, answers ...error) (began []time.Duration, err error) {
	start := time.Now()
	_, err = InStatement(ctx, &r, func(db.DBTX) (int, error) {
		began = append(began, time.Since(start))
		return 0, answers[len(began)-1]
	})
	return began, err
}

func TestRetryTriesThreeTimesWithGrowingPauses(t *testing.T) {
	for _, code := range []string{sqlSerializationFailure, sqlDeadlockDetected, sqlLockNotAvailable} {
		synctest.Test(t, func(t *testing.T) {
			conflict := serverError(code)
			began, err := tries(t.Context(), NewRunner(nil), conflict, conflict, conflict)
			contention, ok := errors.AsType[*ContentionError](err)
			if !ok || contention.Tries != 3 || SQLState(err) != code {
				t.Errorf("%s: got %v, want contention after three tries", code, err)
			}
			if len(began) != 3 {
				t.Fatalf("%s: %d tries, want 3", code, len(began))
			}
			for i, least := range []time.Duration{5 * time.Millisecond, 10 * time.Millisecond} {
				if pause := began[i+1] - began[i]; pause < least || pause > least*3/2 {
					t.Errorf("%s: pause %d took %v, want %v to half as much again", code, i, pause, least)
				}
			}
		})
	}
}

func TestRetryEndsWithSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, err := tries(t.Context(), NewRunner(nil), serverError(sqlDeadlockDetected), nil)
		if err != nil || len(began) != 2 {
			t.Errorf("%d tries and %v, want success at the second", len(began), err)
		}
	})
}

func TestRetryIsOffForRunnersWithShortWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, err := tries(t.Context(), NewRunner(nil).ShortWait(), serverError(sqlLockNotAvailable))
		if !errors.Is(err, ErrBusy) || len(began) != 1 {
			t.Errorf("%d tries and %v, want busy at the first", len(began), err)
		}
		began, err = tries(t.Context(), NewRunner(nil).ShortWait(), serverError(sqlDeadlockDetected), nil)
		if err != nil || len(began) != 2 {
			t.Errorf("%d tries and %v, want success at the second", len(began), err)
		}
	})
}

func TestRetryReturnsOtherErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, want := range []error{errors.New("other"), serverError("23505"), context.Canceled} {
			if began, err := tries(t.Context(), NewRunner(nil), want); err != want || len(began) != 1 {
				t.Errorf("%d tries and %v, want %v at the first", len(began), err, want)
			}
		}
	})
}

func TestRetryEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if began, err := tries(ctx, NewRunner(nil), serverError(sqlDeadlockDetected)); err != why || len(began) != 1 {
			t.Errorf("%d tries and %v, want the context's cause at the first", len(began), err)
		}
	})
}
