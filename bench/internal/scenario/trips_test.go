package scenario

import (
	"context"
	"log/slog"
	"testing"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/bench/internal/report"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

// The proxy agrees with the engine's tests, which count statements: each call in an execution's life is one round trip,
// for any number of executions.
func TestRoundTripsOfALifeAreOneEach(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	create := func(context.Context, string) (string, error) { return pgtest.EmptyDatabase(t), nil }
	field, err := contender.Open(t.Context(), create, log, "ours", "river")
	if err != nil {
		t.Fatal(err)
	}
	defer field.Close()
	b := &Bench{Field: field, Report: &report.Report{}, Progress: t.Output(), Log: log}
	if err := roundTrips(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]report.Result)
	for _, result := range written(t, b.Report) {
		got[result.Name] = result
	}
	for _, name := range []string{
		"create one", "create one in the caller's transaction", "create 100", "create 1000", "create 10000", "claim 1", "claim 10",
		"claim 100", "complete one", "complete 100", "complete one in the caller's transaction", "complete one and claim the next",
		"renew 100", "cancel one that waits",
	} {
		if trips := got[name].Ours; trips == nil || *trips != 1 {
			t.Errorf("%s takes %s round trips, want one", name, report.Format(trips))
		}
	}
	// Begin, insert and commit, and a notification unless one was sent a moment before. Copied rows need no wait in between.
	for _, name := range []string{"create one", "create 100", "create 10000"} {
		if trips := got[name].Peer; trips == nil || *trips != 3 && *trips != 4 {
			t.Errorf("%s takes the peer %s round trips, want three or four", name, report.Format(trips))
		}
	}
}
