package flows

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestSetFlowTags(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := fixture.Chart(nil, "a>b")
	spec.Tags = map[string]string{"app.kept": "1"}
	flow := f.NewFlowOf(t, spec)
	f.Advance(time.Second)
	for range 2 {
		if err := f.SetFlowTags(t.Context(), flow, map[string]string{"app.set": "2", "app.deep.er": ""}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.SetFlowTag(t.Context(), flow, "app.set", "3"); err != nil {
		t.Fatal(err)
	}
	got := f.Describe(t, flow)
	if want := map[string]string{"app.kept": "1", "app.set": "3", "app.deep.er": ""}; !maps.Equal(got.Tags, want) || !got.LastMutationAt.Equal(f.Time()) {
		t.Errorf("tags %v at %v, want %v", got.Tags, got.LastMutationAt, want)
	}
	if got.Revision != 3 || got.Nodes != 2 || got.Edges != 1 {
		t.Errorf("a tag changed the structure: %+v", got)
	}
	for key, want := range map[string]string{"app.set": "3", "app.deep.er": ""} {
		if value, set, err := f.FlowTag(t.Context(), flow, key); value != want || !set || err != nil {
			t.Errorf("tag %s: %q, %t, %v", key, value, set, err)
		}
	}
	if value, set, err := f.FlowTag(t.Context(), flow, "app.other"); value != "" || set || err != nil {
		t.Errorf("a tag that is not set: %q, %t, %v", value, set, err)
	}
	setFlow(t, f, flow, `raw_fields = raw_fields || '{"app.number": 7}'`)
	if value, set, err := f.FlowTag(t.Context(), flow, "app.number"); value != "" || set || err != nil {
		t.Errorf("a value that is no text: %q, %t, %v", value, set, err)
	}
	// In any state of the flow.
	setFlow(t, f, flow, "public_flow_state = 'cancelled'")
	if err := f.SetFlowTag(t.Context(), flow, "app.set", "4"); err != nil {
		t.Error(err)
	}
	if err := f.SetFlowTags(t.Context(), flow, nil); err != nil {
		t.Error(err)
	}
}

func TestSetFlowTagsRefusesBadInput(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil)
	before := f.DumpFlow(t, flow)
	for _, key := range []string{"", "plain", "App.x", "app.", ".x", "app.X", "app.a b", "node_count", "flow_kind"} {
		fixture.WantInputError(t, f.SetFlowTag(t.Context(), flow, key, "v"), "flow tag key")
		fixture.WantInputError(t, f.SetFlowTags(t.Context(), flow, map[string]string{"app.good": "v", key: "v"}), "flow tag key")
		_, _, err := f.FlowTag(t.Context(), flow, key)
		fixture.WantInputError(t, err, "flow tag key")
	}
	for _, value := range []string{"\x00", strings.Repeat("x", 64<<10+1)} {
		fixture.WantInputError(t, f.SetFlowTag(t.Context(), flow, "app.a", value), `flow tag "app.a"`)
	}
	if after := f.DumpFlow(t, flow); after != before {
		t.Errorf("a refusal wrote\n%s, before\n%s", after, before)
	}
	missing := id.NewFlowID()
	fixture.WantNotFound(t, f.SetFlowTag(t.Context(), missing, "app.a", "v"), "flow", missing.String())
	fixture.WantNotFound(t, f.SetFlowTags(t.Context(), missing, nil), "flow", missing.String())
	_, _, err := f.FlowTag(t.Context(), missing, "app.a")
	fixture.WantNotFound(t, err, "flow", missing.String())
}

// In a caller's transaction a tag is seen there, comes with the commit, and goes with a roll-back; a refusal leaves the
// transaction usable.
func TestSetFlowTagInATransaction(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil)
	for _, commits := range []bool{false, true} {
		tx := f.BeginTx(t)
		bound := f.WithTx(tx)
		fixture.WantInputError(t, bound.SetFlowTag(t.Context(), flow, "plain", "v"), "flow tag key")
		if err := bound.SetFlowTag(t.Context(), id.NewFlowID(), "app.a", "v"); !errors.Is(err, fferr.ErrNotFound) {
			t.Error(err)
		}
		if err := bound.SetFlowTag(t.Context(), flow, "app.a", "v"); err != nil {
			t.Fatal(err)
		}
		tagged := func(e *engine.Engine) bool {
			_, set, err := e.FlowTag(t.Context(), flow, "app.a")
			if err != nil {
				t.Fatal(err)
			}
			return set
		}
		if !tagged(bound) || tagged(f.Engine) {
			t.Error("the tag is not the transaction's alone")
		}
		end := tx.Rollback
		if commits {
			end = tx.Commit
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
		if tagged(f.Engine) != commits {
			t.Errorf("tagged: %t, committed: %t", !commits, commits)
		}
	}
}

// A long lock on the flow costs the caller three waits, and nothing is written.
func TestSetFlowTagGivesUpOnALockedFlow(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil)
	tx := f.BeginTx(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	fixture.ExecIn(t, tx, "SELECT FROM ff_flow_core WHERE flow_id = $1 FOR UPDATE", flow)
	shortWait := f.EngineOn(t, fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["lock_timeout"] = "20ms"
	}), engine.Config{})
	if err := shortWait.SetFlowTag(t.Context(), flow, "app.a", "v"); !errors.Is(err, fferr.ErrContention) {
		t.Errorf("error %v, want %v", err, fferr.ErrContention)
	}
}
