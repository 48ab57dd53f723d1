package claims

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The slow path claims executions that another program left.
func TestSlowClaimTakesForeignRows(t *testing.T) {
	ms := func(after time.Duration) int64 { return fixture.Start.Add(after).UnixMilli() }
	interrupted := fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "attempt_interrupted", "public_state": "waiting"}
	fresh := fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "pending_first_attempt"}
	retry := fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "pending_retry_attempt"}
	replay := fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "pending_replay_attempt"}
	with := func(row fixture.Columns, more fixture.Columns) fixture.Columns {
		row = maps.Clone(row)
		maps.Copy(row, more)
		return row
	}
	type attempt struct {
		index int32
		row   fixture.Columns
	}
	for _, c := range []struct {
		name      string
		execution fixture.Columns
		attempts  []attempt

		index    int32
		epoch    int64
		kind     state.AttemptType
		resumed  bool
		rows     int
		counted  int32
		outcomes []string
	}{
		{
			"an unfinished attempt where the first one goes", fresh,
			[]attempt{{0, fixture.Columns{"lease_epoch": 4}}},
			0, 5, state.InitialAttempt, false, 1, 0,
			[]string{""},
		},
		{
			"a finished attempt where the first one goes", fresh,
			[]attempt{{0, fixture.Columns{"outcome": "failed", "terminal_at_ms": 1}}},
			1, 1, state.InitialAttempt, false, 2, 1,
			[]string{"failed", ""},
		},
		{
			"a finished attempt where the retry goes", with(retry, fixture.Columns{"ffx_lease_epoch": 6}),
			[]attempt{{0, fixture.Columns{"outcome": "failure", "terminal_at_ms": 1, "lease_epoch": 6}}},
			1, 7, state.RetryAttempt, false, 2, 1,
			[]string{"failure", ""},
		},
		{
			"attempts behind a finished one", with(retry, fixture.Columns{"attempt_index": 1}),
			[]attempt{{0, fixture.Columns{"outcome": "retry", "terminal_at_ms": 1}}, {1, fixture.Columns{"outcome": "failed"}}, {4, fixture.Columns{"outcome": "failed"}}},
			5, 1, state.RetryAttempt, false, 4, 1,
			[]string{"retry", "failed", "failed", ""},
		},
		{
			"a replayed attempt", with(replay, fixture.Columns{"ffx_lease_epoch": 2}),
			[]attempt{{0, fixture.Columns{"lease_epoch": 3, "started_at_ms": nil, "ffx_attempt_type": "initial"}}},
			0, 4, state.ReplayAttempt, false, 1, 0,
			[]string{""},
		},
		{
			"a replayed attempt with its end", with(replay, fixture.Columns{"ffx_lease_epoch": 2}),
			[]attempt{{0, fixture.Columns{"lease_epoch": 3, "outcome": "failed", "terminal_at_ms": 1}}},
			0, 4, state.ReplayAttempt, false, 1, 0,
			[]string{""},
		},
		{
			"an epoch raised by another program", with(interrupted, fixture.Columns{"ffx_lease_epoch": 2}),
			[]attempt{{0, fixture.Columns{"lease_epoch": 9, "outcome": "interrupted"}}},
			0, 10, state.InitialAttempt, true, 1, 0,
			[]string{""},
		},
		{
			"an epoch of ours above the attempt's", with(interrupted, fixture.Columns{"ffx_lease_epoch": 9}),
			[]attempt{{0, fixture.Columns{"lease_epoch": 2}}},
			0, 10, state.InitialAttempt, true, 1, 0,
			[]string{""},
		},
		{
			"a lease that ran out unswept", with(interrupted, fixture.Columns{"ffx_lease_epoch": 1}),
			[]attempt{{0, fixture.Columns{"lease_expires_at_ms": ms(0)}}},
			0, 2, state.InitialAttempt, true, 1, 0,
			[]string{""},
		},
		{
			"an interrupted attempt with an end", with(interrupted, fixture.Columns{"ffx_lease_epoch": 1}),
			[]attempt{{0, fixture.Columns{"terminal_at_ms": 1, "ffx_attempt_type": "retry"}}},
			0, 2, state.RetryAttempt, true, 1, 0,
			[]string{""},
		},
		{
			"a pointer above the interrupted attempt", with(interrupted, fixture.Columns{"attempt_index": 1, "ffx_lease_epoch": 1}),
			[]attempt{{0, nil}},
			0, 2, state.InitialAttempt, true, 1, 0,
			[]string{""},
		},
		{
			"rows above the pointer", with(interrupted, fixture.Columns{"ffx_lease_epoch": 1}),
			[]attempt{{0, fixture.Columns{"ffx_attempt_type": "initial"}}, {3, fixture.Columns{"lease_epoch": 8}}},
			0, 2, state.InitialAttempt, true, 2, 0,
			[]string{"", ""},
		},
		{"an interrupted execution without attempts", interrupted, nil, 0, 1, state.InitialAttempt, false, 1, 1, []string{""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, f *fixture.Fixture) {
				x := f.Seed(t, with(c.execution, fixture.Columns{"policy": `{"timeout_policy":{"attempt_timeout_ms":60000}}`}))
				for _, a := range c.attempts {
					f.SeedAttempt(t, x, a.index, a.row)
				}
				f.Advance(time.Second)
				got := f.ClaimOne(t)
				if got.ID != x || got.Lease.Attempt != int(c.index) || got.Lease.Epoch != c.epoch || got.Type != c.kind || got.Resumed != c.resumed {
					t.Errorf("claimed %+v, want attempt %d, epoch %d, %s, resumed %t", got, c.index, c.epoch, c.kind, c.resumed)
				}
				stored, attempts := f.Stored(t, x), f.StoredAttempts(t, x)
				if stored.State != fixture.StateRunning || stored.AttemptIndex != c.index || stored.LeaseEpoch != c.epoch || stored.AttemptCount != c.counted {
					t.Errorf("stored %+v", stored)
				}
				var outcomes []string
				var leased fixture.StoredAttempt
				for _, a := range attempts {
					outcomes = append(outcomes, a.Outcome)
					if a.AttemptIndex == c.index {
						leased = a
					}
				}
				if !slices.Equal(outcomes, c.outcomes) {
					t.Errorf("outcomes %q, want %q", outcomes, c.outcomes)
				}
				if leased.LeaseEpoch != c.epoch || leased.LeaseID == nil || *leased.LeaseID != got.Lease.ID || leased.AttemptID == nil ||
					*leased.AttemptID != got.Lease.AttemptID || leased.Type != string(c.kind) || leased.TerminalAtMs != nil || leased.StartedAtMs == nil ||
					leased.TimeoutAtMs == nil || *leased.TimeoutAtMs != f.Time().Add(time.Minute).UnixMilli() {
					t.Errorf("attempt %+v", leased)
				}
				f.WantEvents(t, x, "lease acquired")
				if err := f.ReportProgress(t.Context(), got.Lease, engine.Progress{}); err != nil {
					t.Error(err) // it judges the fence by the rows, as a completion need not
				}
				if err := f.CompleteExecution(t.Context(), got.Lease, nil); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The row that the fast path trips over hides neither the others nor those behind them.
func TestClaimPassesUnleasableRows(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		// Live leases of another program on executions that say they are claimable.
		for range 3 {
			x := f.Seed(t, fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "attempt_interrupted", "priority": 5})
			f.SeedAttempt(t, x, 0, fixture.Columns{"lease_expires_at_ms": fixture.Start.Add(time.Hour).UnixMilli()})
		}
		var want []id.ExecutionID
		for range 3 {
			want = append(want, f.Create(t))
		}
		if got := fixture.ExecutionsOf(f.ClaimN(t, 2)); !slices.Equal(got, want[:2]) {
			t.Errorf("claimed %v, want %v", got, want[:2])
		}
		if got := fixture.ExecutionsOf(f.ClaimN(t, 2)); !slices.Equal(got, want[2:]) {
			t.Errorf("claimed %v, want %v", got, want[2:])
		}
	})
}

// A running attempt of the reference looks finished: it keeps the end of the attempt that it leases again.
func TestLeasedAttemptHasNoEnd_E48_M37(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		x := f.Seed(t, fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "attempt_interrupted", "ffx_lease_epoch": 1})
		f.SeedAttempt(t, x, 0, fixture.Columns{"outcome": "interrupted", "terminal_at_ms": fixture.Start.UnixMilli()})
		f.ClaimOne(t)
		if got := f.StoredAttempts(t, x)[0]; got.TerminalAtMs != nil || got.Outcome != "" {
			t.Errorf("attempt %+v, want neither end nor outcome", got)
		}
	})
}
