package fftest

import (
	"context"
	"time"
)

// Now returns the kit's time. Use it instead of time.Now for instants compared with the engine's clock.
func (k *Kit) Now() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now
}

// Advance moves the database's clock by d. Delays, retries, leases, timeouts and deadlines ending by then are due, and
// the next [Kit.Drain] acts on them. Between two calls the clock stands still.
func (k *Kit) Advance(d time.Duration) {
	k.t.Helper()
	if d < 0 {
		k.t.Fatalf("fftest: Advance(%v): the clock never goes back", d)
	}
	to := k.Now().Add(d).Truncate(time.Millisecond)
	if err := k.setClock(k.t.Context(), to); err != nil {
		k.t.Fatalf("fftest: advance the clock: %v", err)
	}
}

// setClock sets the clock of the database and of the engine.
func (k *Kit) setClock(ctx context.Context, to time.Time) error {
	if _, err := k.Pool.Exec(ctx, "UPDATE public.fftest_clock SET now_ms = $1", to.UnixMilli()); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now = to
	return nil
}
