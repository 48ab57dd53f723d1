package views

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Every literal that a program stores, and one that none does.

var phaseLiterals = []string{"submitted", "runnable", "pending", "eligible", "blocked", "active", "suspended", "terminal", "cancelled", "completed"}

var ownershipLiterals = []string{"unowned", "released", "leased", "lease_expired_reclaimable", "lease_revoked", "who knows"}

var eligibilityLiterals = []string{
	"eligible_now", "pending_claim", "not_eligible_until_time", "blocked_by_dependencies", "blocked_by_budget", "blocked_by_quota",
	"blocked_by_route", "blocked_by_lane_state", "blocked_by_operator", "not_applicable", "cancelled", "blocked",
}

var publicLiterals = []string{
	"waiting", "delayed", "rate_limited", "waiting_children", "active", "running", "claimed", "suspended", "resumable", "completed",
	"failed", "cancelled", "expired", "skipped", "who knows",
}

var attemptLiterals = []string{
	"none", "pending_first_attempt", "pending", "pending_claim", "initial", "running_attempt", "running", "attempt_interrupted",
	"pending_retry_attempt", "pending_replay_attempt", "attempt_terminal", "cancelled", "terminal_failed", "who knows",
}

var outcomeLiterals = []string{
	"", "success", "failed", "failure", "retry", "interrupted", "waiting_children", "attempt_interrupted", "lease_expired_reclaimable",
	"interrupted_reclaimed", "cancelled", "expired", "skipped", "who knows",
}

// chance makes rows as no program writes them, one like the other each time.
type chance struct{ *rand.Rand }

// of is one of some values; the last, which is wrong, is rare.
func of[T any](c chance, values []T) T {
	if c.IntN(40) == 0 {
		return values[len(values)-1]
	}
	return values[c.IntN(len(values)-1)]
}

// instant is an instant in milliseconds, or nil: few different ones, so that some are equal.
func (c chance) instant() any {
	return of(c, []any{nil, nil, fixture.Start.UnixMilli(), fixture.Start.UnixMilli() + 60_000, fixture.Start.UnixMilli() + 3_600_123, int64(0), int64(math.MaxInt64)})
}

// value is a JSON value of a key that holds a text.
func (c chance) value(texts ...string) any {
	return of(c, append(asAny(texts), "", nil, 7, true, []any{"x"}))
}

func asAny(texts []string) []any {
	values := make([]any, len(texts))
	for i, text := range texts {
		values[i] = text
	}
	return values
}

// document is an object with some of the keys.
func (c chance) document(t *testing.T, keys map[string]func() any) string {
	t.Helper()
	if c.IntN(50) == 0 {
		return of(c, []string{`[1]`, `"text"`, `7`, `null`})
	}
	object := make(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if value := keys[key](); c.IntN(3) > 0 {
			object[key] = value
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// number is a count or an instant as documents hold them.
func (c chance) number() any {
	return of(c, []any{
		"0", "2", 3, fixture.Start.UnixMilli(), fmt.Sprint(fixture.Start.UnixMilli() + 60_000), "+4", "-1", -1, "-0", "", "many", 1.5, "1e3", nil, true,
		"007", "9223372036854775807", "9223372036854775808", "99999999999999999999999", " 1",
	})
}

func (c chance) executionFields(t *testing.T) string {
	return c.document(t, map[string]func() any{
		"namespace":            func() any { return c.value("default", "acme") },
		"execution_kind":       func() any { return c.value("test", "mail") },
		"last_mutation_at":     c.number,
		"total_attempt_count":  c.number,
		"retry_count":          c.number,
		"delay_until":          c.number,
		"blocking_detail":      func() any { return c.value("budget 7 is used up") },
		"terminal_outcome":     func() any { return c.value("success", "failed", "cancelled", "expired", "skipped", "none") },
		"last_failure_message": func() any { return c.value("attempt_timeout", "execution_deadline", "suspension_timeout", "boom") },
		"failure_reason":       func() any { return c.value("boom") },
		"current_waitpoint_id": func() any { return of(c, []any{"", nil, 7, c.uuid(), "nonsense"}) },
		"tags": func() any {
			return of(c, []any{map[string]any{}, map[string]any{"app.a": "1", "app.b": 2, "app.c": nil}, map[string]any{"app.a": "é"}, []any{"app.a"}, nil, "x"})
		},
	})
}

// uuid is an id in one of the forms that ids are read in.
func (c chance) uuid() string {
	text := id.NewWaitpointID().String()
	return of(c, []string{
		text, strings.ToUpper(text), strings.ReplaceAll(text, "-", ""), "urn:uuid:" + text, "{" + text + "}", "{" + strings.ReplaceAll(text, "-", "") + "}",
	})
}

// Rows as no program writes them: each column anything that it can hold, of the documents every shape.
func TestViewsReadRandomRows(t *testing.T) {
	f := fixture.NewCloned(t)
	c := chance{rand.New(rand.NewPCG(11, 18))}
	const n = 600
	for range n {
		lane := of(c, []string{string(f.Lane), "a b~", strings.Repeat("x", 65)})
		row := fixture.Columns{
			"lane_id": lane, "lifecycle_phase": of(c, phaseLiterals), "ownership_state": of(c, ownershipLiterals),
			"eligibility_state": of(c, eligibilityLiterals), "public_state": of(c, publicLiterals), "attempt_state": of(c, attemptLiterals),
			"blocking_reason": of(c, []any{nil, "", "none", "waiting_for_retry_backoff", "waiting_for_retry_backoff", "waiting_for_budget", "paused_by_flow_cancel", "who knows"}),
			"attempt_index":   c.IntN(4), "priority": c.IntN(9) - 1, "created_at_ms": fixture.Start.UnixMilli() + c.Int64N(1e9),
			"terminal_at_ms": c.instant(), "deadline_at_ms": c.instant(), "started_at_ms": c.instant(), "lease_reclaim_count": c.IntN(4) - 1,
			"cancellation_reason": of(c, []any{nil, "", "suspension_timeout_cancel", "because"}),
			"cancelled_by":        of(c, []any{nil, "operator_override", "engine"}),
			"raw_fields":          c.executionFields(t), "required_capabilities": of(c, [][]string{{}, {"gpu"}, {"a", "b"}}),
			"ffx_last_mutation_at_ms": c.instant(), "ffx_attempt_count": of(c, []any{nil, 0, 2, -1}), "ffx_retry_count": of(c, []any{nil, 0, 2, -1}),
			"ffx_lease_epoch": of(c, []any{nil, 1, 2, 0}), "ffx_delay_until_ms": c.instant(),
			"ffx_execution_deadline_ms": of(c, []any{nil, 0, fixture.Start.UnixMilli() + 60_000, -fixture.Start.UnixMilli(), int64(math.MinInt64 + 1)}),
			"ffx_quota_policy_id":       of(c, []any{nil, id.NewQuotaPolicyID(), nil}),
		}
		if c.IntN(3) == 0 {
			row["flow_id"] = id.NewFlowID()
		}
		if c.IntN(9) == 0 {
			row["ffx_budget_ids"] = []string{id.NewBudgetID().String(), id.NewBudgetID().String()}
		}
		x := f.Seed(t, row)
		if c.IntN(3) == 0 {
			f.Insert(t, "ff_suspension_current", fixture.Columns{
				"partition_key": x.Partition(), "execution_id": x.UUID(), "suspension_id": id.NewSuspensionID(), "suspended_at_ms": 1,
				"condition": `{}`, "ffx_primary_waitpoint_id": of(c, []any{id.NewWaitpointID(), nil, nil}),
			}, nil)
		}
		for index := range int32(c.IntN(5)) {
			if c.IntN(4) == 0 {
				continue
			}
			f.SeedAttempt(t, x, index, fixture.Columns{
				"outcome": of(c, asAny(outcomeLiterals)), "worker_id": of(c, []any{"w", nil, ""}),
				"worker_instance_id": of(c, []any{"w-1", "", nil}), "lease_epoch": of(c, []int{1, 2, -1}),
				"lease_expires_at_ms": c.instant(), "started_at_ms": c.instant(), "terminal_at_ms": c.instant(), "ffx_timeout_at_ms": c.instant(),
				"ffx_attempt_id": of(c, []any{nil, id.NewAttemptID(), nil}), "ffx_lease_id": of(c, []any{nil, id.NewLeaseID(), nil}),
				"ffx_attempt_type": of(c, []any{nil, "initial", "retry", "who knows"}),
				"raw_fields": c.document(t, map[string]func() any{
					"attempt_id": func() any { return of(c, []any{"", nil, 7, c.uuid(), c.uuid(), "nonsense"}) },
					"lease_id":   func() any { return of(c, []any{"", nil, 7, c.uuid(), c.uuid(), "nonsense"}) },
				}),
			})
		}
		// One unreadable value at a time: which of several a read names is chance.
		fields := map[string]func() any{
			"cancel_reason": func() any { return of(c, []any{"because", "", nil}) }, "cancellation_policy": func() any { return of(c, []any{"cancel_all", nil}) },
			"flow_kind": func() any { return of(c, []any{"import", nil}) }, "namespace": func() any { return of(c, []any{"acme", nil}) },
			"node_count": func() any { return of(c, []any{3, "4", "0"}) }, "edge_count": func() any { return of(c, []any{5, "6", "0"}) },
			"last_mutation_at_ms": func() any { return of(c, []any{fixture.Start.UnixMilli(), fmt.Sprint(fixture.Start.UnixMilli()), 0}) },
			"app.tenant":          func() any { return c.value("a") }, "App.tenant": func() any { return "no tag" }, "a-b.c": func() any { return "no tag" },
			"x_1.y.z": func() any { return "é" },
		}
		if c.IntN(4) == 0 {
			key := of(c, []string{"cancel_reason", "cancellation_policy", "flow_kind", "namespace", "node_count", "edge_count", "last_mutation_at_ms", "app.tenant"})
			fields[key] = func() any { return of(c, []any{map[string]any{}, true, -1, "-1", "x", []any{}}) }
		}
		flow := id.NewFlowID()
		f.Insert(t, "ff_flow_core", fixture.Columns{
			"partition_key": id.Partitions{}.FlowPartition(flow), "flow_id": flow, "public_flow_state": of(c, []string{"open", "cancelled", "running", "odd"}),
			"created_at_ms": fixture.Start.UnixMilli(), "terminal_at_ms": c.instant(), "graph_revision": c.IntN(9), "raw_fields": c.document(t, fields),
		}, nil)
	}
	if v := compareViews(t, f, math.MaxInt32); v.executions != n || v.flows != n || v.attempts < n ||
		v.corrupt < n/20 || v.corrupt > n/2 || v.corruptFlows < n/20 || v.corruptFlows > n/2 {
		t.Errorf("compared %+v", v)
	}
}
