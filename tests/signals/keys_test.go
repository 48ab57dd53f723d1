package signals

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func rotateTo(t *testing.T, eng *engine.Engine, kid string, grace time.Duration) operator.KeyRotation {
	t.Helper()
	rotation, err := operator.RotateKey(t.Context(), eng, kid, wire.NewSecret(), grace)
	if err != nil {
		t.Fatal(err)
	}
	return rotation
}

// A waitpoint that outlives a rotation gets a token of the new key, and its earlier one is dead at once.
func TestReissueToken_S56(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	w := open(t, f, l)
	f.SuspendAgain(t, l, engine.Received("approved").At(decision))
	if got := rotateTo(t, f.Engine, "k2", time.Hour); got.Waitpoints != 1 {
		t.Errorf("%+v", got)
	}
	reissue := func(x id.ExecutionID, waitpoint id.WaitpointID) (wire.WaitpointToken, error) {
		return operator.ReissueToken(t.Context(), f.Engine, x, waitpoint)
	}
	token, err := reissue(w.Execution, w.ID)
	if err != nil || token.Kid() != "k2" {
		t.Fatal(token, err)
	}
	if stored, err := operator.WaitpointToken(t.Context(), f.Engine, w.Execution, w.ID); err != nil || stored != token {
		t.Errorf("stored %v, %v", stored, err)
	}
	if again, err := reissue(w.Execution, w.ID); err != nil || again != token {
		t.Errorf("reissued again as %v, %v", again, err)
	}
	if _, err := sendBy(t, f, w, "approved"); !errors.Is(err, fferr.ErrInvalidToken) {
		t.Errorf("the earlier token: %v", err)
	}
	if got := rotateTo(t, f.Engine, "k3", time.Hour); got.Waitpoints != 1 {
		t.Errorf("%+v", got)
	}

	unsigned := f.Suspend(t, ready).Execution
	page, err := f.Engine.ListWaitpoints(t.Context(), unsigned, "", 0)
	if err != nil || len(page.Items) != 1 {
		t.Fatal(page, err)
	}
	expired := open(t, f, f.Start(t).Lease)
	f.Exec(t, "UPDATE ff_waitpoint_pending SET expires_at_ms = 0 WHERE waitpoint_id = $1", expired.ID)
	for name, at := range map[string]struct {
		x         id.ExecutionID
		waitpoint id.WaitpointID
	}{
		"another execution's":     {unsigned, w.ID},
		"without a token":         {unsigned, page.Items[0].ID},
		"expired":                 {expired.Execution, expired.ID},
		"unknown":                 {w.Execution, id.NewWaitpointID()},
		"of an unknown execution": {f.NewExecutionID(l.Lane), w.ID},
	} {
		if token, err := reissue(at.x, at.waitpoint); !errors.Is(err, fferr.ErrNotFound) || token != "" {
			t.Errorf("%s: reissued, %v", name, err)
		}
	}
	if _, err := operator.WaitpointToken(t.Context(), f.Engine, unsigned, page.Items[0].ID); !errors.Is(err, fferr.ErrNotFound) {
		t.Error(err)
	}

	w.Token = token
	if got, err := sendBy(t, f, w, "approved"); err != nil || got.Effect != engine.SignalSatisfied {
		t.Errorf("the new token: %+v, %v", got, err)
	}
	if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: w.Execution}); err != nil {
		t.Fatal(err)
	}
	if _, err := reissue(w.Execution, w.ID); !errors.Is(err, fferr.ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}

// In a caller's transaction a reissued token comes and goes with it.
func TestReissueTokenInTheCallersTransaction(t *testing.T) {
	f := fixture.GrantFixture(t)
	w := open(t, f, f.Start(t).Lease)
	rotateTo(t, f.Engine, "k2", time.Hour)
	tx := f.BeginTx(t)
	o := f.WithTx(tx)
	if _, err := operator.ReissueToken(t.Context(), o, w.Execution, id.NewWaitpointID()); !errors.Is(err, fferr.ErrNotFound) {
		t.Fatal(err)
	}
	if token, err := operator.ReissueToken(t.Context(), o, w.Execution, w.ID); err != nil || token.Kid() != "k2" {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := sendBy(t, f, w, "approved"); err != nil || got.Effect != engine.SignalBuffered {
		t.Errorf("%+v, %v", got, err)
	}
}

// A process reads the keys once in a while, and not again for each made-up id.
func TestKeysAreRemembered(t *testing.T) {
	f := fixture.GrantFixture(t)
	w := open(t, f, f.Start(t).Lease)
	var log fixture.RoundTripLog
	other := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = &log })
	verify := func(token wire.WaitpointToken) error {
		return other.VerifyWaitpoint(t.Context(), w.Execution, w.ID, token)
	}
	reads := func(work func()) int {
		sent, _ := log.Of(work)
		return len(slices.DeleteFunc(sent, func(name string) bool { return name != "ListVerifyingKeys" }))
	}
	wantReads := func(what string, want int, work func()) {
		t.Helper()
		if got := reads(work); got != want {
			t.Errorf("%s: the keys are read %d times, want %d", what, got, want)
		}
	}
	good := func() {
		t.Helper()
		if err := verify(w.Token); err != nil {
			t.Error(err)
		}
	}
	bad := func(token wire.WaitpointToken) {
		t.Helper()
		if err := verify(token); !errors.Is(err, fferr.ErrInvalidToken) {
			t.Error(err)
		}
	}
	wantReads("at first", 1, good)
	wantReads("then", 0, good)
	wantReads("made-up ids", 10, func() {
		for n := range 100 {
			bad(wire.WaitpointToken(fmt.Sprintf("k%d%s", n+9, w.Token.Reveal()[2:])))
		}
	})
	f.Advance(5 * time.Second)
	wantReads("after five seconds", 1, good)

	// A key that another process has just rotated in is read before its token is refused.
	rotateTo(t, f.Engine, "k2", time.Hour)
	token, err := operator.ReissueToken(t.Context(), f.Engine, w.Execution, w.ID)
	if err != nil {
		t.Fatal(err)
	}
	wantReads("of a new key", 1, func() {
		if err := verify(token); err != nil {
			t.Error(err)
		}
	})
	wantReads("of the retired one", 0, good)
}

// A key that is rotated away without a grace verifies nothing in the process of the rotation, and in others for five
// seconds at most. A grace ends on time.
func TestRotationReachesEveryProcess_S30(t *testing.T) {
	f := fixture.GrantFixture(t)
	w := open(t, f, f.Start(t).Lease)
	other := f.Rival(t)
	check := func(what string, eng *engine.Engine, want error) {
		t.Helper()
		if err := eng.VerifyWaitpoint(t.Context(), w.Execution, w.ID, w.Token); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	check("before", f.Engine, nil)
	check("before", other.Engine, nil)
	rotateTo(t, f.Engine, "k2", time.Second)
	f.Advance(time.Second - time.Millisecond)
	check("within the grace", f.Engine, nil)
	f.Advance(time.Millisecond)
	check("after the grace", f.Engine, fferr.ErrInvalidToken)
	check("elsewhere, from memory", other.Engine, nil)
	f.Advance(4 * time.Second)
	check("elsewhere, five seconds after it was read", other.Engine, fferr.ErrInvalidToken)

	w = open(t, f, f.Start(t).Lease)
	check("the next key", f.Engine, nil)
	// A caller's transaction sees its own keys, and leaves those of others alone.
	tx := f.BeginTx(t)
	bound := f.WithTx(tx)
	rotateTo(t, bound, "k3", 0)
	check("in the transaction", bound, fferr.ErrInvalidToken)
	check("beside it", f.Engine, nil)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("after the rollback", f.Engine, nil)
	if err := f.InTx(t.Context(), func(_ pgx.Tx, eng *engine.Engine) error {
		rotateTo(t, eng, "k3", 0)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	check("after the commit", f.Engine, fferr.ErrInvalidToken)
}
