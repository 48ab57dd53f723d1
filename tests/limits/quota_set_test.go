package limits

import (
	"errors"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A quota policy can be changed: a higher limit lets in what waits, and so does its deletion. L11
func TestQuotaPoliciesCanBeSetAndDeleted(t *testing.T) {
	f := fixture.NewCloned(t)
	created, err := interop.CreateQuotaPolicy(t.Context(), f.Engine, interop.QuotaPolicySpec{MaxRunning: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		f.Create(t, func(s *engine.ExecutionSpec) { s.QuotaPolicy = &created.ID })
	}
	admit(t, f.Engine)
	wantClaimable(t, f, 1, "with the first limit")
	for gateNotified(f) {
	}
	if err := interop.SetQuotaPolicy(t.Context(), f.Engine, interop.QuotaPolicySpec{ID: created.ID, MaxRunning: 2}); err != nil {
		t.Fatal(err)
	}
	if !gateNotified(f) {
		t.Error("the change did not ring")
	}
	admit(t, f.Engine)
	wantClaimable(t, f, 1, "with the second limit")
	if got, err := interop.GetQuotaPolicy(t.Context(), f.Engine, created.ID); err != nil || got.MaxRunning != 2 || got.MaxStarts != 0 || got.Window != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := interop.DeleteQuotaPolicy(t.Context(), f.Engine, created.ID); err != nil {
		t.Fatal(err)
	}
	if !gateNotified(f) {
		t.Error("the deletion did not ring")
	}
	admit(t, f.Engine)
	wantClaimable(t, f, 2, "without the policy")
	for _, err := range []error{
		interop.DeleteQuotaPolicy(t.Context(), f.Engine, created.ID),
		interop.SetQuotaPolicy(t.Context(), f.Engine, interop.QuotaPolicySpec{ID: created.ID}),
	} {
		if !errors.Is(err, fferr.ErrNotFound) {
			t.Error(err)
		}
	}
	fixture.WantInputError(t, interop.SetQuotaPolicy(t.Context(), f.Engine, interop.QuotaPolicySpec{}), "quota policy id")
	fixture.WantInputError(t, interop.DeleteQuotaPolicy(t.Context(), f.Engine, id.QuotaPolicyID{}), "quota policy id")
}
