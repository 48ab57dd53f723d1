package claims

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The same of any sequence of writes, of this library's and others', after each of them.
func TestQueueFollowsAnySequenceOfWrites(t *testing.T) {
	shared := fixture.NewCloned(t)
	const others = `execution_id IN (
		SELECT execution_id FROM (SELECT execution_id, row_number() OVER (ORDER BY created_at_ms) AS n FROM ff_exec_core) AS r
		WHERE n % $1::integer = 0)`
	fixture.Check(t, func(r *rapid.T) {
		shared.Clear(t)
		f := fixture.FlowsOn(fixture.On(t, shared.Pool, shared.Url))
		lanes := []id.LaneID{f.Lane, f.Lane + "-other"}
		var held []engine.Lease // some of them stale
		take := func() []engine.Lease {
			n := min(len(held), rapid.IntRange(1, 3).Draw(r, "leases"))
			taken := slices.Clone(held[:n])
			held = slices.Delete(held, 0, n)
			return taken
		}
		may := func(label string) bool { return rapid.IntRange(0, 4).Draw(r, label) == 0 }
		spec := func() engine.ExecutionSpec {
			s := engine.ExecutionSpec{Kind: "test", Lane: rapid.SampledFrom(lanes).Draw(r, "lane"), Priority: rapid.IntRange(0, 2).Draw(r, "priority")}
			s.Policy = &policy.Execution{Retry: &policy.Retry{Backoff: policy.Fixed(time.Duration(rapid.IntRange(0, 1).Draw(r, "backoff")) * time.Second)}}
			if may("timeout") {
				s.Policy.AttemptTimeout = 2 * time.Second
			}
			if may("delay") {
				s.DelayUntil = f.Time().Add(time.Second)
			}
			if may("deadline") {
				s.Deadline = f.Time().Add(3 * time.Second)
			}
			if may("capability") {
				s.Policy.Capabilities = []string{"gpu"}
			}
			return s
		}
		specs := func() []engine.ExecutionSpec {
			all := make([]engine.ExecutionSpec, rapid.IntRange(1, 4).Draw(r, "executions"))
			for i := range all {
				all[i] = spec()
			}
			return all
		}
		check := func(err error) {
			if err != nil {
				r.Fatal(err)
			}
		}
		operations := map[string]func(){
			"create": func() { _, err := f.CreateExecutions(t.Context(), specs()); check(err) },
			"create in a transaction": func() {
				tx, err := f.Pool.Begin(t.Context())
				check(err)
				defer func() { _ = tx.Rollback(t.Context()) }()
				_, err = f.WithTx(tx).CreateExecutions(t.Context(), specs())
				check(err)
				fixture.ExecIn(t, tx, rapid.SampledFrom([]string{"COMMIT", "ROLLBACK"}).Draw(r, "end"))
			},
			"create a flow": func() { f.Draw(t, nil, "a>c", "b>c", "c>d") },
			"claim": func() {
				worker := f.Worker()
				worker.Lane = rapid.SampledFrom(lanes).Draw(r, "lane")
				if may("capable") {
					worker.Capabilities = id.Capabilities{"gpu"}
				}
				claimed, err := f.Claim(t.Context(), worker, rapid.IntRange(1, 5).Draw(r, "n"))
				check(err)
				for _, c := range claimed {
					held = append(held, c.Lease)
				}
			},
			"complete": func() {
				var completions []engine.Completion
				for _, l := range take() {
					completions = append(completions, engine.Completion{Lease: l})
				}
				_, err := f.CompleteExecutions(t.Context(), completions)
				check(err)
			},
			"fail": func() {
				var failures []engine.AttemptFailure
				for _, l := range take() {
					failures = append(failures, engine.AttemptFailure{Lease: l, Failure: rapid.SampledFrom([]engine.Failure{{}, fixture.ForGood}).Draw(r, "failure")})
				}
				_, err := f.FailExecutions(t.Context(), failures)
				check(err)
			},
			"block": func() {
				all := fixture.All[struct {
					PartitionKey int16
					ExecutionID  id.ExecutionUUID
				}](t, f.Pool, "SELECT partition_key, execution_id FROM ff_exec_core ORDER BY created_at_ms, execution_id")
				if len(all) == 0 {
					return
				}
				row := rapid.SampledFrom(all).Draw(r, "execution")
				x := id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID)
				if reason := rapid.SampledFrom(append(fixture.BlockReasons, "")).Draw(r, "reason"); reason != "" {
					_, err := operator.Block(t.Context(), f.Fixture.Engine, x, reason, "")
					check(err)
				} else if err := operator.Unblock(t.Context(), f.Fixture.Engine, x, ""); !errors.Is(err, fferr.ErrNotEligible) {
					check(err)
				}
			},
			"unblock routes": func() {
				f.Exec(t, `INSERT INTO ff_worker_registry (partition_key, namespace, worker_instance_id, worker_id, lanes, capabilities_csv,
					last_heartbeat_ms, liveness_ttl_ms, registered_at_ms) VALUES (1, 'n', 'i', 'w', $1, 'gpu', $2, 1000, 0)
					ON CONFLICT (partition_key, namespace, worker_instance_id) DO UPDATE SET lanes = excluded.lanes, last_heartbeat_ms = excluded.last_heartbeat_ms`,
					lanes[:1], f.Time().UnixMilli())
				_, err := upkeep.Of(f.Engine).UnblockRoutes(t.Context(), 2)
				check(err)
			},
			"release": func() { _, err := f.ReleaseLeases(t.Context(), take()); check(err) },
			"advance": func() {
				f.Advance(time.Duration(rapid.SampledFrom([]int{1000, 2000, 10_000}).Draw(r, "ms")) * time.Millisecond)
				background(t, f.Fixture)
			},
			"another's write": func() {
				assignments := rapid.SampledFrom([]string{
					fixture.ForeignClaim, fixture.ForeignCancel, foreignBlock, fixture.ForeignReady, fixture.ForeignReady + ", priority = 5", "priority = -1 - priority",
					"priority = -2147483648", "required_capabilities = '{gpu}'", "lane_id = '" + string(lanes[1]) + "'", "created_at_ms = created_at_ms - 1",
					"ffx_lease_epoch = coalesce(ffx_lease_epoch, 0) + 1", "ffx_lease_epoch = coalesce(ffx_lease_epoch, 0) + 1, " + foreignBlock,
				}).Draw(r, "assignments")
				f.Exec(t, "UPDATE ff_exec_core SET "+assignments+" WHERE "+others, rapid.IntRange(1, 3).Draw(r, "every"))
			},
			"another's creation": func() {
				f.Seed(t, fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": rapid.SampledFrom([]string{"pending_first_attempt", "attempt_interrupted"}).Draw(r, "attempt state")})
			},
			"delete": func() { f.Exec(t, "DELETE FROM ff_exec_core WHERE "+others, rapid.IntRange(2, 4).Draw(r, "every")) },
			"repair": func() {
				// A claim of another program that gave no lease, and other writes it left half-done. The queue itself
				// was whole.
				leaseless := len(fixture.Texts(t, f.Pool, `SELECT execution_id::text FROM ff_exec_core AS e
					WHERE lifecycle_phase = 'active' AND NOT EXISTS (
						SELECT FROM ff_attempt AS a
						WHERE a.partition_key = e.partition_key AND a.execution_id = e.execution_id AND lease_expires_at_ms IS NOT NULL
					)`))
				if repaired := f.Repair(t, 3); repaired < leaseless {
					r.Errorf("repaired %d, want %d at least", repaired, leaseless)
				}
				// The second round may have to point executions that the first returned to their first attempt, and
				// the third to block those with open dependencies.
				f.Repair(t, 3)
				f.Repair(t, 3)
				if again := f.Repair(t, 3); again != 0 {
					r.Errorf("the fourth repair still finds %d", again)
				}
			},
		}
		names := make([]string, 0, len(operations))
		for name := range operations {
			names = append(names, name)
		}
		slices.Sort(names)
		var done []string
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 20).Draw(r, "operations") {
			f.Advance(time.Millisecond)
			operations[name]()
			done = append(done, name)
			f.WantQueue(t, r, strings.Join(done, ", "))
			if r.Failed() {
				return
			}
		}
	})
}
