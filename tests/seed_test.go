package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

// start is the instant at which the clock of every fixture begins.
var start = time.UnixMilli(1_800_000_000_000)

// fixture is an engine with a clock that stands still, and a lane and a worker that no other test uses.
type fixture struct {
	*engine.Engine
	pool     *pgxpool.Pool
	url      string
	lane     id.LaneID
	name     string // the worker's and its instance's
	clock    *atomic.Int64
	ticks    bool           // whoever reads the clock moves it on by a millisecond
	after    *engine.Engine // claims after positions, where that is the fixture's way; see eachWay
	oneByOne bool           // and one by one
	together bool           // or with claims from other lanes
	also     string         // a query of further rows, as text, that [fixture.dump] tells
}

// newFixture is on the database that tests share: for whatever concerns only the rows of its own ids.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	return anotherFixture(t)
}

// anotherFixture is a further one in a test that has one.
func anotherFixture(t *testing.T) *fixture {
	t.Helper()
	return fixtureOn(t, pgtest.Pool(t), pgtest.URL(t)).sharesDatabase()
}

// cloneFixture has a database of its own: for what looks at all rows, or changes the schema.
func cloneFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	return newClone(t)
}

// newClone is a database that the subtests of a test share.
func newClone(t *testing.T) *fixture {
	t.Helper()
	url := pgtest.CloneURL(t)
	holdInvariants(t, url)
	return fixtureOn(t, openPool(t, url, nil), url)
}

func fixtureOn(t *testing.T, pool *pgxpool.Pool, url string) *fixture {
	t.Helper()
	name := "test-" + id.NewLeaseID().String()
	f := &fixture{pool: pool, url: url, lane: id.LaneID(name), name: name, clock: new(atomic.Int64)}
	f.clock.Store(start.UnixMilli())
	f.Engine = f.engineOn(t, pool, engine.Config{})
	return f
}

// openPool opens a pool that ends with the test.
func openPool(t *testing.T, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 8
	if change != nil {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// decades is how long the engines of fixtures keep events.
const decades = 30 * 365 * day

// engineOn returns a further engine with the fixture's clock.
func (f *fixture) engineOn(t *testing.T, pool *pgxpool.Pool, cfg engine.Config) *engine.Engine {
	t.Helper()
	cfg.Now = f.now
	if cfg.OutboxRetention == 0 {
		// The database stamps the commit of an event by its own clock, which is months before the fixture's.
		cfg.OutboxRetention = decades
	}
	eng, err := engine.New(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return eng
}

func (f *fixture) now() time.Time {
	if f.ticks {
		return time.UnixMilli(f.clock.Add(1))
	}
	return time.UnixMilli(f.clock.Load())
}

func (f *fixture) advance(d time.Duration) { f.clock.Add(d.Milliseconds()) }

// leaseTTL is how long the leases of [fixture.claim] live.
const leaseTTL = 10 * time.Second

func (f *fixture) worker() engine.ClaimSpec {
	return engine.ClaimSpec{Lane: f.lane, Worker: id.WorkerID(f.name), Instance: id.WorkerInstanceID(f.name), LeaseTTL: leaseTTL}
}

// key makes an idempotency key that no other test uses.
func (f *fixture) key(name string) id.IdempotencyKey { return id.IdempotencyKey(f.name + name) }

// create creates an execution on the fixture's lane.
func (f *fixture) create(t *testing.T, change ...func(*engine.ExecutionSpec)) id.ExecutionID {
	t.Helper()
	spec := engine.ExecutionSpec{Lane: f.lane, Kind: "test"}
	for _, c := range change {
		c(&spec)
	}
	created, err := f.CreateExecution(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if created.Duplicate {
		t.Fatalf("%s is a duplicate", created.ID)
	}
	return created.ID
}

// claim claims the one execution that is claimable on the fixture's lane.
func (f *fixture) claim(t *testing.T) engine.Claimed {
	t.Helper()
	claimed, err := f.Claim(t.Context(), f.worker(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(claimed) != 1 {
		t.Fatalf("claimed %d executions, want 1", len(claimed))
	}
	return claimed[0]
}

// start creates an execution and claims it.
func (f *fixture) start(t *testing.T, change ...func(*engine.ExecutionSpec)) engine.Claimed {
	t.Helper()
	x := f.create(t, change...)
	claimed := f.claim(t)
	if claimed.ID != x {
		t.Fatalf("claimed %s, want %s", claimed.ID, x)
	}
	return claimed
}

// startMany creates n executions and claims them.
func (f *fixture) startMany(t *testing.T, n int) []engine.Claimed {
	t.Helper()
	specs := make([]engine.ExecutionSpec, n)
	for i := range specs {
		specs[i] = engine.ExecutionSpec{Lane: f.lane, Kind: "test"}
	}
	if _, err := f.CreateExecutions(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	claimed, err := f.Claim(t.Context(), f.worker(), n)
	if err != nil {
		t.Fatal(err)
	}
	if len(claimed) != n {
		t.Fatalf("claimed %d executions, want %d", len(claimed), n)
	}
	return claimed
}

// columns are column values of a seeded row, by name.
type columns map[string]any

// seed inserts an execution as the reference creates them, with the given columns changed.
func (f *fixture) seed(t *testing.T, changed columns) id.ExecutionID {
	t.Helper()
	x := id.NewExecutionID(f.lane, id.Partitions{})
	f.insert(t, "ff_exec_core", columns{
		"partition_key": x.Partition(), "execution_id": x.UUID(), "lane_id": string(f.lane),
		"lifecycle_phase": "submitted", "ownership_state": "unowned", "eligibility_state": "eligible_now",
		"public_state": "waiting", "attempt_state": "pending", "created_at_ms": start.UnixMilli(),
		"raw_fields": fmt.Sprintf(`{"namespace":"default","execution_kind":"test","creator_identity":"","tags":{},
			"last_mutation_at":"%d","total_attempt_count":"0"}`, start.UnixMilli()),
	}, changed)
	return x
}

// seedAttempt inserts an attempt as the reference's claim leaves it, with the given columns changed.
func (f *fixture) seedAttempt(t *testing.T, x id.ExecutionID, index int32, changed columns) {
	t.Helper()
	f.insert(t, "ff_attempt", columns{
		"partition_key": x.Partition(), "execution_id": x.UUID(), "attempt_index": index,
		"worker_id": "reference", "worker_instance_id": "reference-1", "lease_epoch": int64(1),
		"started_at_ms": start.UnixMilli(),
	}, changed)
}

// claimedByReference is what the reference's claim makes of an execution.
var claimedByReference = columns{
	"lifecycle_phase": "active", "ownership_state": "leased", "eligibility_state": "not_applicable",
	"public_state": "running", "attempt_state": "running_attempt",
}

func (f *fixture) insert(t *testing.T, table string, defaults, changed columns) {
	t.Helper()
	row := maps.Clone(defaults)
	maps.Copy(row, changed)
	names := slices.Sorted(maps.Keys(row))
	places := make([]string, len(names))
	values := make([]any, len(names))
	for i, name := range names {
		places[i], values[i] = fmt.Sprintf("$%d", i+1), row[name]
	}
	f.exec(t, fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", table, strings.Join(names, ", "), strings.Join(places, ", ")), values...)
}

func (f *fixture) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	handmade.note(f.pool.Config().ConnConfig.Database, sql, args)
	if _, err := f.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// setExecution and setAttempt write what another program, or a defect of one, would have written.
func (f *fixture) setExecution(t *testing.T, x id.ExecutionID, assignments string) {
	t.Helper()
	f.exec(t, updateExecution(assignments), x.Partition(), x.UUID())
}

func (f *fixture) setAttempt(t *testing.T, x id.ExecutionID, index int32, assignments string) {
	t.Helper()
	f.exec(t, "UPDATE ff_attempt SET "+assignments+
		" WHERE partition_key = $1::smallint AND execution_id = $2 AND attempt_index = $3", x.Partition(), x.UUID(), index)
}

func updateExecution(assignments string) string {
	return "UPDATE ff_exec_core SET " + assignments + " WHERE partition_key = $1::smallint AND execution_id = $2"
}

// The states that transitions store: phase, ownership, eligibility, public state, attempt state, reason.
const (
	stateReady     = "runnable unowned eligible_now waiting pending_first_attempt waiting_for_worker"
	stateDelayed   = "runnable unowned not_eligible_until_time delayed pending_first_attempt waiting_for_delay"
	stateRunning   = "active leased not_applicable running running_attempt -"
	stateCompleted = "terminal unowned not_applicable completed attempt_terminal -"
	stateBackoff   = "runnable unowned not_eligible_until_time delayed pending_retry_attempt waiting_for_retry_backoff"
	stateRetry     = "runnable unowned eligible_now waiting pending_retry_attempt waiting_for_worker"
	stateFailed    = "terminal unowned not_applicable failed attempt_terminal -"
	stateReturned  = "runnable unowned eligible_now waiting attempt_interrupted waiting_for_worker"
	stateExpired   = "terminal unowned not_applicable expired attempt_terminal -"
	stateUnstarted = "terminal unowned not_applicable expired none -" // expired before its first attempt
)

// storedExecution is a row of ff_exec_core.
type storedExecution struct {
	State         string
	AttemptIndex  int32
	Priority      int32
	CreatedAtMs   int64
	StartedAtMs   *int64
	TerminalAtMs  *int64
	DeadlineAtMs  *int64
	DelayUntilMs  *int64
	LastDeadline  *int64 // ffx_execution_deadline_ms
	LastMutation  *int64
	AttemptCount  int32
	RetryCount    int32
	LeaseEpoch    int64
	ReclaimCount  int32
	Capabilities  []string
	Payload       []byte
	Result        []byte
	Policy        *string
	RawFields     string
	FlowID        *id.FlowID
	CancelReason  *string
	GateID        *id.BudgetID
	Admitted      *bool
	HasAttachment bool
}

// raw returns the text of a key of raw_fields, "" when it is not there.
func (s storedExecution) raw(t *testing.T, key string) string {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(s.RawFields), &fields); err != nil {
		t.Fatal(err)
	}
	if value, ok := fields[key]; ok {
		return fmt.Sprint(value)
	}
	return ""
}

func (f *fixture) stored(t *testing.T, x id.ExecutionID) storedExecution {
	t.Helper()
	return one[storedExecution](t, f.pool, `
		SELECT
			concat_ws(' ', lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state,
				coalesce(blocking_reason, '-')) AS state,
			attempt_index, priority, created_at_ms, started_at_ms, terminal_at_ms, deadline_at_ms,
			ffx_delay_until_ms AS delay_until_ms, ffx_execution_deadline_ms AS last_deadline,
			ffx_last_mutation_at_ms AS last_mutation, coalesce(ffx_attempt_count, 0) AS attempt_count,
			coalesce(ffx_retry_count, 0) AS retry_count, coalesce(ffx_lease_epoch, 0) AS lease_epoch,
			lease_reclaim_count AS reclaim_count, required_capabilities AS capabilities, payload, result,
			policy::text, raw_fields::text, flow_id, cancellation_reason AS cancel_reason, ffx_gate_id AS gate_id,
			ffx_admitted AS admitted,
			ffx_budget_ids IS NOT NULL OR ffx_quota_policy_id IS NOT NULL AS has_attachment
		FROM ff_exec_core WHERE partition_key = $1::smallint AND execution_id = $2::uuid`, x.Partition(), x.UUID())
}

// wantState fails the test when another state is stored.
func (f *fixture) wantState(t *testing.T, x id.ExecutionID, want string) {
	t.Helper()
	if got := f.stored(t, x).State; got != want {
		t.Errorf("%s is stored as\n\t%s, want\n\t%s", x, got, want)
	}
}

// storedAttempt is a row of ff_attempt.
type storedAttempt struct {
	AttemptIndex     int32
	WorkerID         *string
	WorkerInstanceID *string
	LeaseEpoch       int64
	LeaseExpiresAtMs *int64
	StartedAtMs      *int64
	TerminalAtMs     *int64
	Outcome          string // "" for NULL
	Type             string
	AttemptID        *id.AttemptID
	LeaseID          *id.LeaseID
	TimeoutAtMs      *int64
	DelayUntilMs     *int64
	RawFields        string
}

// attempts returns the attempts of an execution by index.
func (f *fixture) attempts(t *testing.T, x id.ExecutionID) []storedAttempt {
	t.Helper()
	return all[storedAttempt](t, f.pool, `
		SELECT
			attempt_index, worker_id, worker_instance_id, lease_epoch, lease_expires_at_ms, started_at_ms, terminal_at_ms,
			coalesce(outcome, '') AS outcome, coalesce(ffx_attempt_type, '') AS type, ffx_attempt_id AS attempt_id,
			ffx_lease_id AS lease_id, ffx_timeout_at_ms AS timeout_at_ms, ffx_delay_until_ms AS delay_until_ms, raw_fields::text
		FROM ff_attempt WHERE partition_key = $1::smallint AND execution_id = $2::uuid ORDER BY attempt_index`, x.Partition(), x.UUID())
}

// events returns the outbox rows of an execution as text, in the order they were written.
func (f *fixture) events(t *testing.T, x id.ExecutionID) []string {
	t.Helper()
	return texts(t, f.pool, `
		SELECT text FROM (
			SELECT event_id, concat_ws(' ', 'lease', event_type, ffx_revoked_by) AS text, 0 AS outbox
			FROM ff_lease_event WHERE partition_key = $1::smallint AND execution_id = ($2::uuid)::text
			UNION ALL
			SELECT event_id, 'completion ' || outcome, 1
			FROM ff_completion_event WHERE partition_key = $1::smallint AND execution_id = $2::uuid
		) AS e ORDER BY outbox, event_id`, x.Partition(), x.UUID())
}

// wantEvents fails the test when other events are stored.
func (f *fixture) wantEvents(t *testing.T, x id.ExecutionID, want ...string) {
	t.Helper()
	if got := f.events(t, x); !slices.Equal(got, want) {
		t.Errorf("events of %s:\n\t%q, want\n\t%q", x, got, want)
	}
}

// dump renders every row that tells of an execution: equal dumps mean that nothing was written.
func (f *fixture) dump(t *testing.T, x id.ExecutionID) string {
	t.Helper()
	rows := texts(t, f.pool, `
		SELECT to_jsonb(e)::text FROM ff_exec_core AS e WHERE partition_key = $1::smallint AND execution_id = $2::uuid
		UNION ALL SELECT to_jsonb(a)::text FROM ff_attempt AS a WHERE partition_key = $1::smallint AND execution_id = $2::uuid
		UNION ALL SELECT to_jsonb(l)::text FROM ff_lease_event AS l WHERE partition_key = $1::smallint AND execution_id = ($2::uuid)::text
		UNION ALL SELECT to_jsonb(c)::text FROM ff_completion_event AS c WHERE partition_key = $1::smallint AND execution_id = $2::uuid
		UNION ALL SELECT to_jsonb(o)::text FROM ff_operator_event AS o WHERE partition_key = $1::smallint AND execution_id = ($2::uuid)::text
		UNION ALL SELECT to_jsonb(d)::text FROM ffx_create_dedup AS d WHERE partition_key = $1::smallint AND execution_id = $2::uuid
		UNION ALL SELECT to_jsonb(g)::text FROM ff_claim_grant AS g WHERE partition_key = $1::smallint AND execution_id = $2::uuid
		ORDER BY 1`, x.Partition(), x.UUID())
	if f.also != "" {
		rows = append(rows, texts(t, f.pool, f.also)...)
	}
	return strings.Join(rows, "\n")
}

// wantUnchanged fails the test when x has changed since before was taken by [fixture.dump].
func (f *fixture) wantUnchanged(t *testing.T, x id.ExecutionID, before string) {
	t.Helper()
	was, is := strings.Split(before, "\n"), strings.Split(f.dump(t, x), "\n")
	for _, row := range was {
		if !slices.Contains(is, row) {
			t.Errorf("%s lost the row %s", x, row)
		}
	}
	for _, row := range is {
		if !slices.Contains(was, row) {
			t.Errorf("%s got the row %s", x, row)
		}
	}
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func one[T any](t *testing.T, on querier, sql string, args ...any) T {
	t.Helper()
	rows := all[T](t, on, sql, args...)
	if len(rows) != 1 {
		t.Fatalf("%d rows, want 1: %s %v", len(rows), sql, args)
	}
	return rows[0]
}

func all[T any](t *testing.T, on querier, sql string, args ...any) []T {
	t.Helper()
	return collect(t, pgx.RowToStructByName[T], on, sql, args...)
}

// texts returns the values of the only column.
func texts(t *testing.T, on querier, sql string, args ...any) []string {
	t.Helper()
	return collect(t, pgx.RowTo[string], on, sql, args...)
}

func collect[T any](t *testing.T, scan pgx.RowToFunc[T], on querier, sql string, args ...any) []T {
	t.Helper()
	rows, err := on.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	values, err := pgx.CollectRows(rows, scan)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return values
}
