package limits

import (
	"context"
	"errors"
	"testing"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A limit can be deleted: what waits for it is let in, and a kind that declares it declares it again. L11
func TestLimitsCanBeDeleted_L11(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(1))
	for range 3 {
		created(t, f.Engine, kind, sync{})
	}
	running := wantClaimable(t, f, 1, "with the limit")
	for range 2 { // changes of a limit go with it, or the next one of the name could not be changed
		if err := limit.Set(t.Context(), f.Engine, perTenant, limit.Setting{Units: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for gateNotified(f) {
	}
	if err := limit.Delete(t.Context(), f.Engine, perTenant); err != nil {
		t.Fatal(err)
	}
	if !gateNotified(f) {
		t.Error("the deletion did not ring")
	}
	wantClaimable(t, f, 2, "without the limit")
	if err := limit.Delete(t.Context(), f.Engine, perTenant); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
	fixture.WantInputError(t, limit.Delete(t.Context(), f.Engine, limit.Name{}), "Name")
	created(t, f.Engine, kind, sync{})
	wantClaimable(t, f, 0, "while one runs that was let in by the limit before")
	for range 2 {
		if err := limit.Set(t.Context(), f.Engine, perTenant, limit.Setting{Units: 1}); err != nil {
			t.Fatal(err)
		}
	}
	complete(t, f, running...)
	wantClaimable(t, f, 1, "after its end")
}

// The deletion waits for a pass that admits by the limit. L11
func TestDeletionOfALimitWaitsForPasses_L11(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(5))
	tx := f.BeginTx(t) // in which nothing is admitted
	for range 6 {
		created(t, f.WithTx(tx), kind, sync{})
	}
	fixture.Commit(t, tx)
	r := f.StoppedBefore(t, "AdmitExecutions")
	pass := passing(t, r.Engine)
	r.AwaitStop(t)
	rival, admitted := f.Rival(t), 0
	returned, wait := fixture.Watched(t, func(ctx context.Context) error {
		err := limit.Delete(ctx, rival.Engine, perTenant)
		if err == nil {
			err = rival.Pool.QueryRow(ctx, countAdmitted).Scan(&admitted)
		}
		return err
	})
	rival.AwaitBlockedOr(t, f, returned)
	r.Resume()
	pass()
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	if admitted < 5 {
		t.Errorf("it returned while a pass admitted: %d are admitted", admitted)
	}
}
