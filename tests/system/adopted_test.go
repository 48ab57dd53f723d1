package system

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// noise is text of so many bytes that does not compress, of characters of as many bytes as given.
func noise(t *testing.T, length, width int) string {
	t.Helper()
	random := make([]byte, length)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	first := map[int]rune{1: '!', 2: 0x100, 3: 0x4e00, 4: 0x1f300}[width]
	var text strings.Builder
	for i := 0; text.Len()+width <= length; i++ {
		text.WriteRune(first + rune(random[i]%90))
	}
	return text.String()
}

// taggedByReference are the columns of an execution that may be claimed, with a namespace and a tag.
func taggedByReference(namespace, tag string) fixture.Columns {
	return fixture.Columns{
		"lifecycle_phase": "runnable", "attempt_state": "pending_first_attempt",
		"raw_fields": map[string]any{
			"namespace": namespace, "execution_kind": "test", "creator_identity": "", "last_mutation_at": "1800000000000",
			"total_attempt_count": "0", "tags": map[string]string{"cairn.instance_id": tag},
		},
	}
}

// Some indexes hold the tag and the namespace of events, and their entries end at some 2.7 kB. FlowFabric stores longer ones
// on executions; their lanes, and all that ends or expires them, go on.
func TestAdoptedDatabaseStoresLongTags(t *testing.T) {
	f := fixture.ReferenceFixture(t)
	type row struct {
		execution            id.ExecutionID
		namespace, tag       string
		namespaceCut, tagCut int
	}
	var rows []row
	for _, c := range []row{
		{namespace: "short", tag: noise(t, 4000, 1), namespaceCut: 5, tagCut: 1024},
		{namespace: noise(t, 4000, 1), tag: "short", namespaceCut: 1024, tagCut: 5},
		{namespace: "x" + noise(t, 6000, 2), tag: "x" + noise(t, 6000, 3), namespaceCut: 1023, tagCut: 1024},
		{namespace: "xx" + noise(t, 6000, 4), tag: noise(t, 6000, 4), namespaceCut: 1022, tagCut: 1024},
		{namespace: noise(t, 1024, 1), tag: noise(t, 1024, 2), namespaceCut: 1024, tagCut: 1024},
		{namespace: noise(t, 1025, 1), tag: "x" + noise(t, 1024, 2), namespaceCut: 1024, tagCut: 1023},
	} {
		c.execution = f.Seed(t, taggedByReference(c.namespace, c.tag))
		rows = append(rows, c)
	}
	f.Adopt(t)
	wantEvents := func(t *testing.T, table string, r row) {
		t.Helper()
		for _, event := range fixture.All[struct{ Namespace, InstanceTag string }](t, f.Pool,
			"SELECT namespace, instance_tag FROM "+table+" WHERE partition_key = $1 AND execution_id::text = $2::text",
			r.execution.Partition(), r.execution.UUID().String()) {
			if event.Namespace != r.namespace[:r.namespaceCut] || event.InstanceTag != r.tag[:r.tagCut] {
				t.Errorf("%s carries %d and %d bytes, want %d and %d", table,
					len(event.Namespace), len(event.InstanceTag), r.namespaceCut, r.tagCut)
			}
		}
	}
	leases := make(map[id.ExecutionID]engine.Lease)
	for _, c := range f.ClaimN(t, 10) {
		leases[c.ID] = c.Lease
		if c.Tags["cairn.instance_id"] == "" {
			t.Errorf("claimed %+v without its tag", c)
		}
	}
	if len(leases) != len(rows) {
		t.Fatalf("claimed %d executions, want %d", len(leases), len(rows))
	}
	// All that a lease and its execution can end by.
	if err := f.CompleteExecution(t.Context(), leases[rows[0].execution], nil); err != nil {
		t.Error(err)
	}
	f.Fail(t, leases[rows[1].execution], engine.Failure{Class: policy.Permanent})
	if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{leases[rows[2].execution]}); err != nil {
		t.Error(err)
	}
	f.SetExecution(t, rows[3].execution, "deadline_at_ms = 1, ffx_execution_deadline_ms = 1")
	f.Advance(fixture.LeaseTTL)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 1)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 2)
	for _, r := range rows {
		for _, table := range []string{"ff_lease_event", "ff_completion_event"} {
			wantEvents(t, table, r)
		}
		if got := f.Describe(t, r.execution); string(got.Namespace) != r.namespace || got.Tags["cairn.instance_id"] != r.tag {
			t.Error("what is stored was cut")
		}
	}
	if got := len(f.ClaimN(t, 10)); got != 3 {
		t.Errorf("claimed %d, want those given back or expired", got)
	}
}

// This library refuses to store tags above a kilobyte, naming the tag and the limit.
func TestLongInstanceTagIsRefused(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t)
	before := f.Dump(t, x)
	const name = `tag "cairn.instance_id"`
	tags := map[string]string{"cairn.instance_id": strings.Repeat("x", 1025)}
	for field, create := range map[string]func(context.Context) error{
		name: func(ctx context.Context) error {
			return f.SetExecutionTag(ctx, x, "cairn.instance_id", tags["cairn.instance_id"])
		},
		name + " ": func(ctx context.Context) error {
			_, err := f.CreateExecution(ctx, engine.ExecutionSpec{Lane: f.Lane, Kind: "test", Tags: tags})
			return err
		},
		`node "a"`: func(ctx context.Context) error {
			_, err := f.CreateFlow(ctx, engine.FlowSpec{Nodes: []engine.Node{{Key: "a", Spec: engine.ExecutionSpec{Kind: "test", Tags: tags}}}})
			return err
		},
		"flow " + name: func(ctx context.Context) error {
			_, err := f.CreateFlow(ctx, engine.FlowSpec{Tags: tags})
			return err
		},
	} {
		err := create(t.Context())
		fixture.WantInputError(t, err, strings.TrimSpace(field))
		if text := err.Error(); !strings.Contains(text, name) || !strings.Contains(text, "limit 1024") {
			t.Errorf("%v does not name the tag and the limit", err)
		}
	}
	f.WantUnchanged(t, x, before)
	tags["cairn.instance_id"] = tags["cairn.instance_id"][:1024]
	f.Create(t, func(spec *engine.ExecutionSpec) { spec.Tags = tags })
	if err := f.SetExecutionTag(t.Context(), x, "cairn.instance_id", tags["cairn.instance_id"]); err != nil {
		t.Error(err)
	}
}
