package backoff

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := Backoff{First: 100 * time.Millisecond, Max: time.Second}
	for range 2 {
		for _, full := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
			full *= time.Millisecond
			if pause := b.Next(); pause < full/2 || pause > full {
				t.Errorf("pause %v, want between %v and %v", pause, full/2, full)
			}
		}
		b.Reset()
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	for range 1000 {
		if d := Spread(time.Second); d < 900*time.Millisecond || d > 1100*time.Millisecond {
			t.Fatalf("spread %v, want within a tenth of a second", d)
		}
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if began := time.Now(); !Wait(ctx, time.Second) || time.Since(began) != time.Second {
			t.Errorf("did not wait for the second: %v", time.Since(began))
		}
		if began := time.Now(); Wait(ctx, time.Hour) || time.Since(began) != 59*time.Second {
			t.Errorf("did not end with its context: %v", time.Since(began))
		}
	})
}
