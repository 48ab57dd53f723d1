package executions

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestNewRefusesBadConfigurations(t *testing.T) {
	f := fixture.New(t)
	for _, c := range []struct {
		field string
		pool  *pgxpool.Pool
		cfg   engine.Config
	}{
		{"pool", nil, engine.Config{}},
		{"Config.Partitions", f.Pool, engine.Config{Partitions: id.Partitions{Flow: 257}}},
		{"Config.Partitions", f.Pool, engine.Config{Partitions: id.Partitions{Quota: 1 << 15}}},
		{"Config.Namespace", f.Pool, engine.Config{Namespace: "a\x00"}},
		{"Config.Namespace", f.Pool, engine.Config{Namespace: id.Namespace(strings.Repeat("n", 256))}},
		{"Config.MaxPayload", f.Pool, engine.Config{MaxPayload: -1}},
	} {
		e, err := engine.New(c.pool, c.cfg)
		fixture.WantInputError(t, err, c.field)
		if e != nil {
			t.Errorf("%s: got an engine", c.field)
		}
	}
}

func TestCreateExecutionRefusesBadInput(t *testing.T) {
	f := fixture.New(t)
	long := func(n int) string { return strings.Repeat("x", n) }
	const nul, broken = "a\x00b", "a\xffb"
	for _, c := range []struct {
		name, field string
		spec        engine.ExecutionSpec
	}{
		{"id of a partition that is not there", "execution id", engine.ExecutionSpec{Kind: "test", ID: id.ExecutionIDFromRow(256, id.NewExecutionUUID())}},
		{"id of a negative partition", "execution id", engine.ExecutionSpec{Kind: "test", ID: id.ExecutionIDFromRow(-1, id.NewExecutionUUID())}},
		{"lane too long", "lane", engine.ExecutionSpec{Kind: "test", Lane: id.LaneID(long(65))}},
		{"lane not ASCII", "lane", engine.ExecutionSpec{Kind: "test", Lane: "größe"}},
		{"lane with NUL", "lane", engine.ExecutionSpec{Kind: "test", Lane: nul}},
		{"namespace with NUL", "namespace", engine.ExecutionSpec{Kind: "test", Namespace: nul}},
		{"namespace not UTF-8", "namespace", engine.ExecutionSpec{Kind: "test", Namespace: broken}},
		{"namespace too long", "namespace", engine.ExecutionSpec{Kind: "test", Namespace: id.Namespace(long(256))}},
		{"payload too large", "payload", engine.ExecutionSpec{Kind: "test", Payload: make([]byte, engine.DefaultMaxPayload+1)}},
		{"kind with NUL", "kind", engine.ExecutionSpec{Kind: nul}},
		{"kind not UTF-8", "kind", engine.ExecutionSpec{Kind: broken}},
		{"no kind", "kind", engine.ExecutionSpec{}},
		{"kind too long", "kind", engine.ExecutionSpec{Kind: long(256)}},
		{"encoding with NUL", "payload encoding", engine.ExecutionSpec{Kind: "test", PayloadEncoding: nul}},
		{"encoding too long", "payload encoding", engine.ExecutionSpec{Kind: "test", PayloadEncoding: long(1025)}},
		{"creator not UTF-8", "creator", engine.ExecutionSpec{Kind: "test", Creator: broken}},
		{"creator too long", "creator", engine.ExecutionSpec{Kind: "test", Creator: long(1025)}},
		{"key with NUL", "idempotency key", engine.ExecutionSpec{Kind: "test", IdempotencyKey: nul}},
		{"key not UTF-8", "idempotency key", engine.ExecutionSpec{Kind: "test", IdempotencyKey: broken}},
		{"key too long", "idempotency key", engine.ExecutionSpec{Kind: "test", IdempotencyKey: id.IdempotencyKey(long(id.MaxCreateKey + 1))}},
		{"tag without a key", "tag key", engine.ExecutionSpec{Kind: "test", Tags: map[string]string{"": "v"}}},
		{"tag key with NUL", "tag key", engine.ExecutionSpec{Kind: "test", Tags: map[string]string{nul: "v"}}},
		{"tag key too long", "tag key", engine.ExecutionSpec{Kind: "test", Tags: map[string]string{long(257): "v"}}},
		{"tag with NUL", `tag "k"`, engine.ExecutionSpec{Kind: "test", Tags: map[string]string{"k": nul}}},
		{"tag not UTF-8", `tag "k"`, engine.ExecutionSpec{Kind: "test", Tags: map[string]string{"k": broken}}},
		{"tag too long", `tag "k"`, engine.ExecutionSpec{Kind: "test", Tags: map[string]string{"k": long(64<<10 + 1)}}},
		{"delay before time began", "delay until", engine.ExecutionSpec{Kind: "test", DelayUntil: time.UnixMilli(0)}},
		{"deadline before time began", "deadline", engine.ExecutionSpec{Kind: "test", Deadline: time.UnixMilli(-5)}},
		{"deadline that overflows", "deadline", engine.ExecutionSpec{Kind: "test", Deadline: time.UnixMilli(math.MaxInt64).Add(time.Millisecond)}},
		{"creation that overflows", "created at", engine.ExecutionSpec{Kind: "test", CreatedAt: time.Unix(math.MaxInt64-1<<40, 0)}},
		{"backoff that is none", "Policy.Retry.Backoff.Factor", engine.ExecutionSpec{Kind: "test", Policy: &policy.Execution{Retry: &policy.Retry{Backoff: policy.Backoff{Jitter: true}}}}},
		{"negative window", "Policy.DedupWindow", engine.ExecutionSpec{Kind: "test", Policy: &policy.Execution{DedupWindow: -time.Second}}},
		{"text of the policy with NUL", "Policy.Retry.Categories[0]", engine.ExecutionSpec{Kind: "test", Policy: &policy.Execution{Retry: &policy.Retry{Categories: []string{nul}}}}},
		{"capability with a comma", "Policy.Capabilities", requiring("a,b")},
		{"empty capability", "Policy.Capabilities", requiring("")},
		{"capability with NUL", "Policy.Capabilities", requiring(nul)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.spec.Lane == "" {
				c.spec.Lane = f.Lane
			}
			_, err := f.CreateExecution(t.Context(), c.spec)
			if fixture.WantInputError(t, err, c.field); err == nil {
				return
			}
			if got := err.Error(); strings.Contains(got, broken) || strings.Contains(got, long(60)) {
				t.Errorf("the error repeats the value: %s", got)
			}
			results, err := f.CreateExecutions(t.Context(), []engine.ExecutionSpec{c.spec})
			if err != nil || len(results) != 1 {
				t.Fatal(results, err)
			}
			fixture.WantInputError(t, results[0].Err, c.field)
		})
	}
	if got := f.CountOnLane(t); got != 0 {
		t.Errorf("%d executions were created", got)
	}
}

func requiring(tokens ...string) engine.ExecutionSpec {
	return engine.ExecutionSpec{Kind: "test", Policy: &policy.Execution{Capabilities: tokens}}
}

// A value at a bound is within it, and comes back as it was given.
func TestCreateExecutionAcceptsValuesAtTheirBounds(t *testing.T) {
	f := fixture.New(t)
	long := func(n int) string { return strings.Repeat("ä", n/2) + strings.Repeat("x", n%2) }
	given := engine.ExecutionSpec{
		Lane: f.Lane, Namespace: id.Namespace(long(255)), Kind: long(255), PayloadEncoding: long(1024), Creator: long(1024),
		Payload: make([]byte, engine.DefaultMaxPayload), IdempotencyKey: id.IdempotencyKey(f.Name + long(id.MaxCreateKey-len(f.Name))),
		Tags:     map[string]string{long(256): long(64 << 10), `quote " backslash \ line` + "\n": "\u2028\ufffd"},
		Deadline: time.UnixMilli(math.MaxInt64), DelayUntil: time.UnixMilli(math.MaxInt64), CreatedAt: time.UnixMilli(1),
	}
	created, err := f.CreateExecution(t.Context(), given)
	if err != nil {
		t.Fatal(err)
	}
	got := f.Describe(t, created.ID)
	if got.Namespace != given.Namespace || got.Kind != given.Kind || !got.Deadline.Equal(given.Deadline) ||
		!got.DelayUntil.Equal(given.DelayUntil) || !got.CreatedAt.Equal(given.CreatedAt) {
		t.Errorf("described as %+v", got)
	}
	for key, value := range given.Tags {
		if got.Tags[key] != value {
			t.Errorf("tag %.20q is %.20q, want %.20q", key, got.Tags[key], value)
		}
	}
	if input, err := f.ExecutionInput(t.Context(), created.ID); err != nil || len(input.Payload) != engine.DefaultMaxPayload {
		t.Errorf("payload of %d bytes, %v", len(input.Payload), err)
	}
}

// Durations that end after the last millisecond end with it.
func TestCreateExecutionDurationsSaturate(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t, func(spec *engine.ExecutionSpec) {
		spec.CreatedAt, spec.Policy = time.UnixMilli(math.MaxInt64), &policy.Execution{Deadline: time.Hour}
	})
	f.SetExecution(t, x, `policy = '{"timeout_policy":{"attempt_timeout_ms":18446744073709551615}}'`)
	c := f.ClaimOne(t)
	if got := f.Stored(t, c.ID); *got.DeadlineAtMs != math.MaxInt64 || *got.LastDeadline != math.MaxInt64 {
		t.Errorf("stored %+v", got)
	}
	if got := *f.StoredAttempts(t, c.ID)[0].TimeoutAtMs; got != math.MaxInt64 {
		t.Errorf("the attempt times out at %d", got)
	}
}

// The limit of payloads is the configuration's, for results too.
func TestMaxPayload(t *testing.T) {
	f := fixture.New(t)
	f.Engine = f.EngineOn(t, f.Pool, engine.Config{MaxPayload: 3})
	_, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane, Payload: []byte("four")})
	fixture.WantInputError(t, err, "payload")
	c := f.Start(t, func(spec *engine.ExecutionSpec) { spec.Payload = []byte("abc") })
	fixture.WantInputError(t, f.CompleteExecution(t.Context(), c.Lease, []byte("four")), "result")
	f.WantState(t, c.ID, fixture.StateRunning)
	if err := f.CompleteExecution(t.Context(), c.Lease, []byte("abc")); err != nil {
		t.Error(err)
	}
}

// In the reference, values that are negative or too large are cut to something else: another row is addressed.
func TestValuesOutOfRangeAreRefused_E39(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	before := f.Dump(t, c.ID)
	for _, l := range []struct {
		field  string
		change func(*engine.Lease)
	}{
		{"lease", func(l *engine.Lease) { l.Execution = id.ExecutionID{} }},
		{"lease", func(l *engine.Lease) { l.Execution = id.ExecutionIDFromRow(256, l.Execution.UUID()) }},
		{"lease", func(l *engine.Lease) { l.Execution = id.ExecutionIDFromRow(-1, l.Execution.UUID()) }},
		{"lease", func(l *engine.Lease) { l.Attempt = -1 }},
	} {
		for call, do := range fixture.HolderCalls {
			bad := c.Lease
			l.change(&bad)
			err := do(t, f.Engine, bad)
			fixture.WantInputError(t, err, l.field)
			if t.Failed() {
				t.Fatalf("%s of %+v", call, bad)
			}
		}
	}
	for _, ttl := range []time.Duration{-time.Second, time.Millisecond - 1, engine.MaxLeaseTTL + 1, math.MinInt64} {
		_, err := f.RenewLease(t.Context(), c.Lease, ttl)
		fixture.WantInputError(t, err, "lease TTL")
	}
	fields := wire.HandleFields{Execution: c.ID, Lane: f.Lane, WorkerInstance: "w", AttemptIndex: math.MaxInt32 + 1}
	_, err := engine.LeaseFromHandle(wire.EncodeHandle(wire.HandleFresh, fields))
	fixture.WantInputError(t, err, "handle: attempt index")
	fields.AttemptIndex, fields.LeaseEpoch = 0, math.MaxInt64+1
	_, err = engine.LeaseFromHandle(wire.EncodeHandle(wire.HandleFresh, fields))
	fixture.WantInputError(t, err, "handle: lease epoch")
	fields.LeaseEpoch, fields.LeaseTTLMs = 1, math.MaxUint64
	if l, err := engine.LeaseFromHandle(wire.EncodeHandle(wire.HandleFresh, fields)); err != nil || l.TTL != engine.MaxLeaseTTL {
		t.Errorf("lease %+v, %v", l, err)
	}
	f.WantUnchanged(t, c.ID, before)
}

func TestLeaseFromHandleRefusesBadInput(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	good := c.Lease.Handle(wire.HandleFresh)
	foreign := good
	foreign.Backend = wire.Valkey
	if _, err := engine.LeaseFromHandle(foreign); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("handle of other storage: %v, want invalid input", err)
	}
	cut := good
	cut.Opaque = cut.Opaque[:len(cut.Opaque)-1]
	if _, err := engine.LeaseFromHandle(cut); !errors.Is(err, fferr.ErrCorruption) {
		t.Errorf("handle cut short: %v, want corruption", err)
	}
}

func TestHoldersRefuseBadInput(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	before := f.Dump(t, c.ID)
	ctx := t.Context()
	progress := func(p engine.Progress) error { return f.ReportProgress(ctx, c.Lease, p) }
	fail := func(failure engine.Failure) error {
		_, err := f.FailExecution(ctx, c.Lease, failure)
		return err
	}
	for _, call := range []struct {
		field string
		err   error
	}{
		{"percent", progress(engine.Progress{Percent: new(-1)})},
		{"percent", progress(engine.Progress{Percent: new(101)})},
		{"message", progress(engine.Progress{Message: new("a\x00")})},
		{"message", progress(engine.Progress{Message: new("a\xff")})},
		{"message", progress(engine.Progress{Message: new(strings.Repeat("x", 1025))})},
		{"failure message", fail(engine.Failure{Message: "a\x00"})},
		{"failure message", fail(engine.Failure{Message: "a\xff"})},
		{"failure message", fail(engine.Failure{Message: strings.Repeat("x", engine.MaxFailureMessage+1)})},
		{"failure category", fail(engine.Failure{Category: "a\x00"})},
		{"failure category", fail(engine.Failure{Category: "a\xff"})},
		{"failure category", fail(engine.Failure{Category: strings.Repeat("x", engine.MaxFailureMessage+1)})},
		{"failure class", fail(engine.Failure{Class: "unlucky"})},
		{"result", f.CompleteExecution(ctx, c.Lease, make([]byte, engine.DefaultMaxPayload+1))},
		{"tag key", f.SetExecutionTag(ctx, c.ID, "plain", "v")},
		{"tag key", f.SetExecutionTag(ctx, c.ID, "", "v")},
		{"tag key", f.SetExecutionTag(ctx, c.ID, "App.Tenant", "v")},
		{"tag key", f.SetExecutionTag(ctx, c.ID, "app.a\x00", "v")},
		{`tag "app.a"`, f.SetExecutionTag(ctx, c.ID, "app.a", "v\x00")},
		{`tag "app.a"`, f.SetExecutionTag(ctx, c.ID, "app.a", strings.Repeat("x", 64<<10+1))},
	} {
		fixture.WantInputError(t, call.err, call.field)
	}
	f.WantUnchanged(t, c.ID, before)
}

func TestReadsRefuseBadInput(t *testing.T) {
	f := fixture.New(t)
	f.Engine = f.EngineOn(t, f.Pool, engine.Config{Partitions: id.Partitions{Flow: 16}})
	for _, x := range []id.ExecutionID{{}, id.ExecutionIDFromRow(16, id.NewExecutionUUID()), id.ExecutionIDFromRow(-1, id.NewExecutionUUID())} {
		for name, read := range map[string]func(context.Context) error{
			"describe": func(ctx context.Context) error { _, err := f.DescribeExecution(ctx, x); return err },
			"state":    func(ctx context.Context) error { _, err := f.ExecutionState(ctx, x); return err },
			"input":    func(ctx context.Context) error { _, err := f.ExecutionInput(ctx, x); return err },
			"result":   func(ctx context.Context) error { _, err := f.ExecutionResult(ctx, x); return err },
			"tag":      func(ctx context.Context) error { _, _, err := f.ExecutionTag(ctx, x, "app.a"); return err },
			"set tag":  func(ctx context.Context) error { return f.SetExecutionTag(ctx, x, "app.a", "v") },
		} {
			err := read(t.Context())
			fixture.WantInputError(t, err, "execution id")
			if t.Failed() {
				t.Fatalf("%s of %s", name, x)
			}
		}
	}
	_, _, err := f.ExecutionTag(t.Context(), id.ExecutionIDFromRow(1, id.NewExecutionUUID()), "plain")
	fixture.WantInputError(t, err, "tag key")
	for _, partition := range []int{-1, 16, 1 << 16} {
		_, err := f.ListExecutions(t.Context(), engine.ExecutionFilter{Partition: &partition}, "", 1)
		fixture.WantInputError(t, err, "partition")
	}
}

// A cursor is good for the listing it comes from, and for no other.
func TestListsRefuseBadInput(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t)) // whose rows can be read
	flow := f.Draw(t, nil, "a", "b")
	f.Create(t, func(spec *engine.ExecutionSpec) { spec.Lane += "2" })
	partition := new(int(fixture.PartitionOf(flow)))
	ctx := t.Context()
	lists := map[string]func(after string, limit int) (next string, err error){
		"executions": func(after string, limit int) (string, error) {
			page, err := f.ListExecutions(ctx, engine.ExecutionFilter{}, after, limit)
			return page.Next, err
		},
		"executions of a partition": func(after string, limit int) (string, error) {
			page, err := f.ListExecutions(ctx, engine.ExecutionFilter{Partition: partition}, after, limit)
			return page.Next, err
		},
		"lanes": func(after string, limit int) (string, error) {
			page, err := f.ListLanes(ctx, engine.LaneFilter{}, after, limit)
			return page.Next, err
		},
	}
	cursors := make(map[string]string)
	for name, list := range lists {
		var err error
		if cursors[name], err = list("", 1); err != nil || cursors[name] == "" {
			t.Fatalf("%s: cursor %q, %v", name, cursors[name], err)
		}
		_, err = list("", -1)
		fixture.WantInputError(t, err, "limit")
	}
	for name, list := range lists {
		bad := []string{"!", "AAAA", cursors[name] + "A", cursors[name][1:], cursors[name] + "\n", strings.ToLower(cursors[name]), "1"}
		for from, cursor := range cursors {
			if from != name {
				bad = append(bad, cursor)
			}
		}
		for _, cursor := range bad {
			_, err := list(cursor, 1)
			fixture.WantInputError(t, err, "after")
		}
		if _, err := list(cursors[name], 1); err != nil {
			t.Errorf("%s: its own cursor: %v", name, err)
		}
	}
}

// An unknown literal is reported with its column, and never taken for something else.
func TestReadsReportUnknownLiterals(t *testing.T) {
	f := fixture.New(t)
	for _, column := range []string{"lifecycle_phase", "ownership_state", "eligibility_state", "public_state", "attempt_state", "blocking_reason"} {
		x := f.Seed(t, fixture.Columns{column: "who knows"})
		_, err := f.DescribeExecution(t.Context(), x)
		fixture.WantCorruption(t, err, "ff_exec_core."+column)
		public, err := f.ExecutionState(t.Context(), x)
		if column == "public_state" {
			fixture.WantCorruption(t, err, "ff_exec_core.public_state")
		} else if err != nil || public == "" {
			t.Errorf("%s: public state %q, %v; want the stored one", column, public, err)
		}
	}
	x := f.Seed(t, fixture.Columns{"lane_id": "a\tb"})
	_, err := f.DescribeExecution(t.Context(), x)
	fixture.WantCorruption(t, err, "ff_exec_core.lane_id")
	// The first one in the order of the columns' table is named.
	x = f.Seed(t, fixture.Columns{"blocking_reason": "x", "attempt_state": "x", "ownership_state": "x"})
	_, err = f.DescribeExecution(t.Context(), x)
	fixture.WantCorruption(t, err, "ff_exec_core.ownership_state")
}

// Values in claims stay as they are stored: tags that are no texts are left out, an unknown attempt state is never
// claimed.
func TestClaimKeepsUnknownLiterals(t *testing.T) {
	f := fixture.New(t)
	x := f.Seed(t, fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "who knows"})
	f.SeedAttempt(t, x, 0, nil)
	before := f.Dump(t, x)
	f.WantNothingClaimable(t)
	f.WantUnchanged(t, x, before)
	y := f.Create(t)
	f.SetExecution(t, y, `raw_fields = raw_fields || '{"tags":{"app.a":"1","app.n":2,"app.o":{}}}'`)
	if c := f.ClaimOne(t); c.ID != y || len(c.Tags) != 1 || c.Tags["app.a"] != "1" {
		t.Errorf("claimed %+v", c)
	}
}
