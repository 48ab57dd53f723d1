package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// grantNext grants the next execution; the zero id: there is none.
func grantNext(t *testing.T, f *fixture.Fixture, change ...func(*interop.WorkerSpec)) id.ExecutionID {
	t.Helper()
	spec := f.WorkerSpec()
	for _, c := range change {
		c(&spec)
	}
	grant, found, err := interop.ClaimForWorker(t.Context(), f.Engine, spec)
	if err != nil || found == grant.Execution.IsZero() {
		t.Fatalf("granted %v, %t, %v", grant, found, err)
	}
	if found {
		if err := interop.VerifyGrant(t.Context(), f.Engine, grant); err != nil {
			t.Error(err)
		}
		if grant.Lane != f.Lane || !grant.ExpiresAt.Equal(f.Time().Add(fixture.GrantTTL)) {
			t.Errorf("granted %v", grant)
		}
		f.WantState(t, grant.Execution, fixture.StateGranted)
	}
	return grant.Execution
}

// A worker is granted the execution that it would claim. In the reference a first row that it cannot run ends a
// partition, and ten end the search.
func TestWorkerIsGrantedWhatItWouldClaim_E30_E31(t *testing.T) {
	f := fixture.GrantFixture(t)
	var difficult []id.ExecutionID
	for range 250 {
		difficult = append(difficult, f.Create(t, func(spec *engine.ExecutionSpec) {
			spec.Policy, spec.Priority = &policy.Execution{Capabilities: id.NewCapabilities("gpu")}, 9
		}))
	}
	low := f.Create(t)
	f.Advance(time.Millisecond)
	high := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Priority = 5 })
	other := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Kind, spec.Priority = "other", 7 })
	kinds := func(spec *interop.WorkerSpec) { spec.Kinds = []string{"test"} }
	for _, want := range []id.ExecutionID{high, low, {}} {
		if got := grantNext(t, f, kinds); got != want {
			t.Errorf("granted %s, want %s", got, want)
		}
	}
	if got := grantNext(t, f); got != other {
		t.Errorf("granted %s, want %s", got, other)
	}
	if got := grantNext(t, f, func(spec *interop.WorkerSpec) { spec.Capabilities = id.NewCapabilities("gpu") }); !slices.Contains(difficult, got) {
		t.Errorf("granted %s", got)
	}
	if got := grantNext(t, f, func(spec *interop.WorkerSpec) { spec.Lane += "-another" }); !got.IsZero() {
		t.Errorf("granted %s", got)
	}
}

// Locked rows and stale queue entries are skipped, however many there are.
func TestGrantsSkipLockedRows_E3(t *testing.T) {
	const held = 230 // pages
	f := fixture.GrantFixture(t)
	for range held {
		f.Create(t)
	}
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT FROM ff_exec_core FOR UPDATE")
	f.Advance(time.Millisecond)
	stale := f.Create(t)
	f.Advance(time.Millisecond)
	free := f.Create(t)
	f.Issue(t, stale)
	f.Exec(t, "INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities, kind) SELECT lane_id, -priority, created_at_ms, execution_id, partition_key, '{}'::text[], 'test' FROM ff_exec_core WHERE execution_id = $1", stale.UUID())
	if got := grantNext(t, f); got != free {
		t.Errorf("granted %s, want %s", got, free)
	}
	if got := grantNext(t, f); !got.IsZero() {
		t.Errorf("granted %s", got)
	}
	if claimed, err := f.Claim(t.Context(), f.Worker(), 10); len(claimed) != 0 || err != nil {
		t.Errorf("claimed %v, %v", claimed, err)
	}
	fixture.Commit(t, tx)
	if got := grantNext(t, f); got.IsZero() {
		t.Error("nothing is granted, though all are free")
	}
}

// Two schedulers at once never grant one execution twice.
func TestConcurrentGrantsNeverOverlap(t *testing.T) {
	f := fixture.GrantFixture(t)
	first, second := f.Create(t), f.Create(t, func(spec *engine.ExecutionSpec) { spec.Priority = 0 })
	f.SetExecution(t, first, "priority = 5")
	tx := f.BeginTx(t)
	grant, found, err := interop.ClaimForWorker(t.Context(), f.WithTx(tx), f.WorkerSpec())
	if !found || err != nil || grant.Execution != first {
		t.Fatalf("granted %v, %t, %v", grant, found, err)
	}
	if got := grantNext(t, f); got != second {
		t.Errorf("granted %s, want %s", got, second)
	}
	if got := grantNext(t, f); !got.IsZero() {
		t.Errorf("granted %s", got)
	}
	fixture.Commit(t, tx)

	// It has read the claimable executions before the other one granted them.
	third, fourth := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Priority = 5 }), f.Create(t)
	late := f.StoppedBefore(t, "TakeEligible")
	granted := fixture.Async(t, func(ctx context.Context) id.ExecutionID {
		grant, _, err := interop.ClaimForWorker(ctx, late.Rival.Engine, f.WorkerSpec())
		if err != nil {
			t.Error(err)
		}
		return grant.Execution
	})
	late.AwaitStop(t)
	if got := grantNext(t, f); got != third {
		t.Errorf("granted %s, want %s", got, third)
	}
	late.Resume()
	if got := granted(); got != fourth {
		t.Errorf("granted %s, want %s", got, fourth)
	}
}

// A locked grant keeps no worker waiting.
func TestLockedOldGrantDelaysNoWorker_E4(t *testing.T) {
	f := fixture.GrantFixture(t)
	first := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Priority = 5 })
	second := f.Create(t)
	f.SeedGrant(t, first) // of another path
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT FROM ff_claim_grant FOR UPDATE")
	if got := grantNext(t, f); got != second {
		t.Errorf("granted %s, want %s", got, second)
	}
	fixture.Commit(t, tx)
	if got := grantNext(t, f); got != first || f.CountGrants(t, first) != 1 {
		t.Errorf("granted %s, and it has %d grants", got, f.CountGrants(t, first))
	}
}

// A call for one execution queues for its rows.
func TestSingleGrantQueuesForItsRows_E3(t *testing.T) {
	f := fixture.GrantFixture(t)
	x := f.Create(t)
	for _, c := range []struct {
		name string
		call func(ctx context.Context, g *engine.Engine) error
	}{
		{"issue", func(ctx context.Context, g *engine.Engine) error {
			_, err := interop.IssueClaimGrant(ctx, g, f.GrantSpec(x))
			return err
		}},
		{"claim", func(ctx context.Context, g *engine.Engine) error {
			_, err := interop.ClaimExecution(ctx, g, f.Using(interop.ClaimGrant{Execution: x}))
			return err
		}},
	} {
		waiting := f.Rival(t)
		tx := f.BeginTx(t)
		fixture.LockExecution(t, tx, x)
		called := fixture.Async(t, func(ctx context.Context) error { return c.call(ctx, waiting.Engine) })
		waiting.AwaitBlocked(t, f)
		fixture.Commit(t, tx)
		if err := called(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// The executions that may be granted, in the order of claims.
func TestListEligibleExecutions_E43(t *testing.T) {
	f := fixture.GrantFixture(t)
	var want []id.ExecutionID
	for priority := range 3 {
		for range 4 {
			want = append(want, f.Create(t, func(spec *engine.ExecutionSpec) { spec.Priority = 2 - priority }))
			f.Advance(time.Millisecond)
		}
	}
	granted := want[5]
	f.Issue(t, granted)
	f.Exec(t, "INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities, kind) SELECT lane_id, -priority, created_at_ms, execution_id, partition_key, '{}'::text[], 'test' FROM ff_exec_core WHERE execution_id = $1", granted.UUID())
	want = slices.Delete(want, 5, 6)
	filter := interop.EligibleFilter{Lane: f.Lane}
	listed := func(filter interop.EligibleFilter) []id.ExecutionID {
		return fixture.Listed(t, interop.EligibleExecutions(t.Context(), f.Engine, filter))
	}
	if got := listed(filter); !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
	partition := int(want[0].Partition())
	if got := listed(interop.EligibleFilter{Lane: f.Lane, Partition: &partition}); !slices.Equal(got, slices.DeleteFunc(slices.Clone(want), func(x id.ExecutionID) bool { return int(x.Partition()) != partition })) {
		t.Errorf("of one partition %v", got)
	}
	// A solo execution's partition is its lane's: another one has nothing.
	empty := (partition + 1) % 256
	if got := listed(interop.EligibleFilter{Lane: f.Lane, Partition: &empty}); len(got) != 0 {
		t.Errorf("of another partition %v", got)
	}
	for name, filter := range map[string]interop.EligibleFilter{
		"no lane":      {},
		"no partition": {Lane: f.Lane, Partition: new(256)},
	} {
		if err := fixture.Unlisted(t, interop.EligibleExecutions(t.Context(), f.Engine, filter)); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Executions of the same priority and age are on both sides of a page's end.
func TestEligibleExecutionsOfSeveralPages(t *testing.T) {
	f := fixture.New(t)
	created, err := f.CreateExecutions(t.Context(), slices.Repeat([]engine.ExecutionSpec{{Kind: "test", Lane: f.Lane}}, engine.MaxPage+1))
	if err != nil {
		t.Fatal(err)
	}
	var want []id.ExecutionID
	for _, c := range created {
		want = append(want, c.Value.ID)
	}
	slices.SortFunc(want, func(a, b id.ExecutionID) int { return a.UUID().Compare(b.UUID()) })
	if got := fixture.Listed(t, interop.EligibleExecutions(t.Context(), f.Engine, interop.EligibleFilter{Lane: f.Lane})); !slices.Equal(got, want) {
		t.Errorf("listed %d: %v, want %d: %v", len(got), got, len(want), want)
	}
}

// Input that no grant can be issued or used with is refused with the name of its field, before anything is read.
func TestGrantsRefuseBadInput(t *testing.T) {
	f := fixture.GrantFixture(t)
	x := f.Create(t, func(spec *engine.ExecutionSpec) {
		spec.Policy = &policy.Execution{Capabilities: id.NewCapabilities("a", "b")}
	})
	before := f.Dump(t, x)
	long := string(slices.Repeat([]byte{'x'}, interop.MaxGrantNote+1))
	issue := func(change func(*interop.GrantSpec)) func() error {
		return func() error {
			spec := f.GrantSpec(x)
			change(&spec)
			_, err := interop.IssueClaimGrant(t.Context(), f.Engine, spec)
			return err
		}
	}
	claim := func(change func(*interop.GrantedClaim)) func() error {
		return func() error {
			spec := f.Using(interop.ClaimGrant{Execution: x})
			change(&spec)
			_, err := interop.ClaimExecution(t.Context(), f.Engine, spec)
			return err
		}
	}
	for _, c := range []struct {
		field string
		call  func() error
	}{
		{"execution id", issue(func(s *interop.GrantSpec) { s.Execution = id.ExecutionID{} })},
		{"lane", issue(func(s *interop.GrantSpec) { s.Lane = "é" })},
		{"lane", issue(func(s *interop.GrantSpec) { s.Lane, s.Capabilities = "another", id.NewCapabilities("a", "b") })},
		{"capabilities", issue(func(s *interop.GrantSpec) { s.Capabilities = id.Capabilities{"a,b"} })},
		{"capabilities", issue(func(s *interop.GrantSpec) { s.Capabilities = id.Capabilities{"b"} })},
		{"grant TTL", issue(func(s *interop.GrantSpec) { s.TTL = 0 })},
		{"grant TTL", issue(func(s *interop.GrantSpec) { s.TTL = engine.MaxLeaseTTL + 1 })},
		{"CapabilityHash", issue(func(s *interop.GrantSpec) { s.CapabilityHash = long })},
		{"RouteSnapshot", issue(func(s *interop.GrantSpec) { s.RouteSnapshot = "\x00" })},
		{"AdmissionSummary", issue(func(s *interop.GrantSpec) { s.AdmissionSummary = "\xff" })},
		{"execution id", claim(func(s *interop.GrantedClaim) { s.Grant.Execution = id.ExecutionID{} })},
		{"lane", claim(func(s *interop.GrantedClaim) { s.Grant.Lane = "another" })},
		{"lease TTL", claim(func(s *interop.GrantedClaim) { s.LeaseTTL = 0 })},
		{"ExpectedAttempt", claim(func(s *interop.GrantedClaim) { s.ExpectedAttempt = new(-1) })},
		{"AttemptTimeout", claim(func(s *interop.GrantedClaim) { s.AttemptTimeout = -1 })},
		{"Deadline", claim(func(s *interop.GrantedClaim) { s.Deadline = time.Unix(0, 0) })},
		{"MaxReclaims", func() error {
			spec := f.Reclaiming(interop.ReclaimGrant{Execution: x})
			spec.MaxReclaims = new(-1)
			_, err := interop.ReclaimExecution(t.Context(), f.Engine, spec)
			return err
		}},
		{"lane", func() error {
			_, err := interop.IssueGrantAndClaim(t.Context(), f.Engine, x, "another", fixture.LeaseTTL)
			return err
		}},
		{"lane", func() error {
			_, err := interop.IssueGrantAndClaim(t.Context(), f.Engine, x, "\n", fixture.LeaseTTL)
			return err
		}},
		{"lease TTL", func() error { _, err := interop.IssueGrantAndClaim(t.Context(), f.Engine, x, "", 0); return err }},
		{"grant TTL", func() error {
			spec := f.WorkerSpec()
			spec.TTL = 0
			_, _, err := interop.ClaimForWorker(t.Context(), f.Engine, spec)
			return err
		}},
		{"execution id", func() error { return interop.VerifyGrant(t.Context(), f.Engine, interop.ClaimGrant{}) }},
		{"batch", func() error { _, err := upkeep.Of(f.Engine).ExpireGrants(t.Context(), 0); return err }},
	} {
		if err := c.call(); err == nil {
			t.Errorf("%s: accepted", c.field)
		} else if input, ok := errors.AsType[*fferr.InputError](err); !ok || input.Field != c.field {
			t.Errorf("%s: %v", c.field, err)
		}
	}
	f.WantUnchanged(t, x, before)
	missing := id.NewExecutionID(f.Lane, id.Partitions{})
	for n, err := range []error{
		issue(func(s *interop.GrantSpec) { s.Execution = missing })(), claim(func(s *interop.GrantedClaim) { s.Grant.Execution = missing })(),
	} {
		if !errors.Is(err, fferr.ErrNotFound) {
			t.Error(n, err)
		}
	}
	if text := fmt.Sprint(issue(func(s *interop.GrantSpec) { s.Capabilities = nil })()); text != "issue claim grant: invalid input: capabilities: lack a,b" {
		t.Error(text)
	}
}
