package upkeep

import (
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/reconcile"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A job of the caller's own has one holder, until the hold ends or the holder releases it.
func TestHoldHasOneHolder(t *testing.T) {
	f := fixture.NewCloned(t)
	other := f.Rival(t)
	hold := func(instance id.WorkerInstanceID) bool {
		t.Helper()
		eng := f.Engine
		if instance == "second" {
			eng = other.Engine
		}
		held, err := reconcile.Hold(t.Context(), eng, "app.report", instance, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	for range 2 {
		if !hold("first") || hold("second") {
			t.Fatal("the first does not hold the job, or both do")
		}
		f.Advance(59 * time.Second)
	}
	f.Advance(time.Second)
	if !hold("second") || hold("first") {
		t.Fatal("the second did not take the job at the end of the hold")
	}
	if err := reconcile.Release(t.Context(), other.Engine, "second"); err != nil {
		t.Fatal(err)
	}
	if !hold("first") {
		t.Error("the first did not take a released job")
	}
}

func TestHoldRefusesBadInput(t *testing.T) {
	f := fixture.New(t)
	for _, test := range []struct {
		job      string
		instance id.WorkerInstanceID
		hold     time.Duration
	}{
		{"retain", "p", time.Minute},
		{"app.report", "", time.Minute},
		{"app.report", "p", 0},
	} {
		if _, err := reconcile.Hold(t.Context(), f.Engine, test.job, test.instance, test.hold); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
