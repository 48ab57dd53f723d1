package system

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// wholeRow is the whole content of the database about an execution, by column: "state" is the six columns of the
// state table, "0.outcome" a column of attempt 0, "raw.x" a key of the document, "events" every event in the order of
// its outbox. NULLs have no entry. Instants are counted from the start of the fixture's clock; ids are numbered in
// the order in which they appear, "A1" the first attempt, "L1" the first lease.
type wholeRow map[string]string

// with returns the row with changes: "-" removes a column, "now" is the instant given, "now+1s" one second later.
func (r wholeRow) with(change wholeRow, events []string, now time.Time) wholeRow {
	next := maps.Clone(r)
	if next == nil {
		next = wholeRow{}
	}
	for column, value := range change {
		if value == "-" {
			delete(next, column)
			continue
		}
		next[column] = atInstant(value, now)
	}
	var all []string
	if next["events"] != "" {
		all = strings.Split(next["events"], "; ")
	}
	for _, event := range events {
		all = append(all, atInstant(event, now))
	}
	if len(all) > 0 {
		slices.SortStableFunc(all, func(a, b string) int { return outboxOf(a) - outboxOf(b) })
		next["events"] = strings.Join(all, "; ")
	}
	return next
}

// outboxOf numbers the outboxes: one after the other is read.
func outboxOf(event string) int {
	switch what, _, _ := strings.Cut(event, " "); what {
	case "ended:":
		return 1
	case "priority_changed", "replayed":
		return 2
	case "signal":
		return 3
	}
	return 0
}

var instantPattern = regexp.MustCompile(`\bnow(\+[0-9a-z]+)?\b`)

// atInstant renders the instants in a text. One behind no duration stays as it is, so that the row differs in it.
func atInstant(text string, now time.Time) string {
	return instantPattern.ReplaceAllStringFunc(text, func(found string) string {
		var later time.Duration
		if _, offset, ok := strings.Cut(found, "+"); ok {
			var err error
			if later, err = time.ParseDuration(offset); err != nil {
				return found
			}
		}
		return instant(now.Add(later).UnixMilli())
	})
}

// instant renders milliseconds. The deadline of an ended execution is negative, and 0 is none.
func instant(ms int64) string {
	switch {
	case ms == 0:
		return "none"
	case ms < 0:
		return "ended " + instant(-ms)
	}
	return time.UnixMilli(ms).Sub(fixture.Start).String()
}

// subject is an execution that the state table follows.
type subject struct {
	x     id.ExecutionID
	lease engine.Lease // the newest
	grant interop.ClaimGrant
	flow  id.FlowID // of a member
	key   string    // of its node
	names map[string]string
}

// name numbers an id.
func (s *subject) name(letter, value string) string {
	if s.names[value] == "" {
		n := 1
		for _, known := range s.names {
			if strings.HasPrefix(known, letter) {
				n++
			}
		}
		s.names[value] = letter + strconv.Itoa(n)
	}
	return s.names[value]
}

// wholeRowOf reads the row of a subject, as others see it.
func wholeRowOf(t *testing.T, f *fixture.Fixture, s *subject) wholeRow {
	t.Helper()
	var stored struct {
		Execution             map[string]any
		Attempts              []map[string]any
		Queue, Grants, Groups []map[string]any
		Blocked               []string
		Untimed               bool
		Leases, Ends, Calls   []map[string]any
		Signals               []map[string]any
		Wait                  map[string]any
		Waitpoints            []map[string]any
	}
	found := fixture.Texts(t, f.Pool, `
		SELECT jsonb_build_object(
			'execution', to_jsonb(e),
			'attempts', (
				SELECT jsonb_agg(to_jsonb(a) ORDER BY a.attempt_index) FROM ff_attempt AS a
				WHERE a.partition_key = e.partition_key AND a.execution_id = e.execution_id),
			'queue', (
				SELECT jsonb_agg(to_jsonb(r)) FROM ffx_ready AS r
				WHERE r.partition_key = e.partition_key AND r.execution_id = e.execution_id),
			'untimed', EXISTS (
				SELECT FROM ff_attempt AS a
				WHERE
					a.partition_key = e.partition_key AND a.execution_id = e.execution_id
					AND a.lease_expires_at_ms IS NOT NULL
					AND NOT EXISTS (
						SELECT FROM ffx_lease_timer AS w
						WHERE e.execution_id = ANY (w.execution_ids) AND w.due_at_ms <= a.lease_expires_at_ms)),
			'grants', (
				SELECT jsonb_agg(to_jsonb(g) ORDER BY g.issued_at_ms, g.kind) FROM ff_claim_grant AS g
				WHERE g.partition_key = e.partition_key AND g.execution_id = e.execution_id),
			'blocked', (
				SELECT jsonb_agg(b.eligibility_state) FROM ffx_blocked AS b
				WHERE b.partition_key = e.partition_key AND b.execution_id = e.execution_id),
			'groups', (
				SELECT jsonb_agg(to_jsonb(g)) FROM ff_edge_group AS g
				WHERE g.partition_key = e.partition_key AND g.flow_id = e.flow_id AND g.downstream_eid = e.execution_id),
			'leases', (
				SELECT jsonb_agg(to_jsonb(l) ORDER BY l.event_id) FROM ff_lease_event AS l
				WHERE l.partition_key = e.partition_key AND l.execution_id = e.execution_id::text),
			'ends', (
				SELECT jsonb_agg(to_jsonb(c) ORDER BY c.event_id) FROM ff_completion_event AS c
				WHERE c.partition_key = e.partition_key AND c.execution_id = e.execution_id),
			'calls', (
				SELECT jsonb_agg(to_jsonb(o) ORDER BY o.event_id) FROM ff_operator_event AS o
				WHERE o.partition_key = e.partition_key AND o.execution_id = e.execution_id::text),
			'signals', (
				SELECT jsonb_agg(to_jsonb(v) ORDER BY v.event_id) FROM ff_signal_event AS v
				WHERE v.partition_key = e.partition_key AND v.execution_id = e.execution_id::text),
			'wait', (
				SELECT to_jsonb(s) FROM ff_suspension_current AS s
				WHERE s.partition_key = e.partition_key AND s.execution_id = e.execution_id),
			'waitpoints', (
				SELECT jsonb_agg(to_jsonb(w) ORDER BY w.waitpoint_key) FROM ff_waitpoint_pending AS w
				WHERE w.partition_key = e.partition_key AND w.execution_id = e.execution_id)
		)::text
		FROM ff_exec_core AS e WHERE e.partition_key = $1::smallint AND e.execution_id = $2::uuid`, s.x.Partition(), s.x.UUID())
	if len(found) == 0 {
		return wholeRow{}
	}
	decoder := json.NewDecoder(strings.NewReader(found[0]))
	decoder.UseNumber()
	if err := decoder.Decode(&stored); err != nil {
		t.Fatal(err)
	}
	row := make(wholeRow)
	e := stored.Execution
	var state []string
	for _, column := range []string{"lifecycle_phase", "ownership_state", "eligibility_state", "public_state", "attempt_state", "blocking_reason"} {
		literal, _ := e[column].(string)
		if literal == "" {
			literal = "-"
		}
		state = append(state, literal)
		delete(e, column)
	}
	row["state"] = strings.Join(state, " ")
	flatten(f, row, s, "", e)
	for _, attempt := range stored.Attempts {
		flatten(f, row, s, fmt.Sprint(attempt["attempt_index"], "."), attempt)
	}
	for i, entry := range stored.Queue {
		flatten(f, row, s, fmt.Sprintf("queue%s.", strings.Repeat("'", i)), entry)
	}
	for _, group := range stored.Groups {
		row["group"] = fmt.Sprintf("%v succeeded, %v failed, %v skipped, %v running",
			group["success_count"], group["fail_count"], group["skip_count"], group["running_count"])
	}
	row["blocked"] = strings.Join(stored.Blocked, ", ")
	if stored.Untimed {
		row["timer"] = "none in time"
	}
	var grants []string
	for _, grant := range stored.Grants {
		expires, _ := grant["expires_at_ms"].(json.Number).Int64()
		grants = append(grants, fmt.Sprintf("%s of %s until %s", grant["kind"], own(f, grant["worker_instance_id"]), instant(expires)))
	}
	row["grants"] = strings.Join(grants, ", ")
	row["wait"], row["waitpoints"] = waitOf(stored.Wait), waitpointsOf(stored.Waitpoints)
	row["events"] = strings.Join(slices.Concat(
		eventsOf(f, s, e, stored.Leases), eventsOf(f, s, e, stored.Ends), eventsOf(f, s, e, stored.Calls), signalsOf(stored.Signals),
	), "; ")
	maps.DeleteFunc(row, func(_, value string) bool { return value == "" })
	return row
}

// own renders the fixture's own name as "own".
func own(f *fixture.Fixture, value any) string {
	return strings.ReplaceAll(fmt.Sprint(value), f.Name, "own")
}

// flatten renders the columns of a stored row, those that only name the execution left out.
func flatten(f *fixture.Fixture, row wholeRow, s *subject, prefix string, stored map[string]any) {
	for column, value := range stored {
		switch column {
		case "partition_key", "execution_id", "attempt_index":
			if prefix != "" || column != "attempt_index" {
				continue
			}
		}
		name := strings.TrimPrefix(column, "ffx_")
		if _, other := stored[name]; other {
			name = column
		}
		row[prefix+name] = render(f, row, s, prefix, column, value)
	}
}

func render(f *fixture.Fixture, row wholeRow, s *subject, prefix, column string, value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case json.Number:
		if n, err := v.Int64(); err == nil && strings.HasSuffix(column, "_ms") {
			return instant(n)
		}
		return v.String()
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && strings.HasSuffix(column, "_at") {
			return instant(n)
		}
		switch column {
		case "ffx_attempt_id":
			return s.name("A", v)
		case "ffx_lease_id":
			return s.name("L", v)
		case "flow_id":
			return s.name("F", v)
		case "ffx_node_key":
			if v == s.key { // as every member
				return ""
			}
		}
		return own(f, v)
	case map[string]any:
		if column != "raw_fields" {
			break
		}
		for key, of := range v {
			row[prefix+"raw."+key] = render(f, row, s, prefix, key, of)
		}
		return ""
	case []any:
		if column != "ffx_lost_leases" {
			break
		}
		var lost []string
		for _, lease := range v {
			l := lease.(map[string]any)
			lost = append(lost, fmt.Sprintf("%v %v of %s", l["how"], l["epoch"], own(f, l["instance"])))
		}
		return strings.Join(lost, ", ")
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return strings.TrimPrefix(strings.TrimPrefix(string(text), "[]"), "{}")
}

// eventsOf renders the rows of an outbox.
func eventsOf(f *fixture.Fixture, s *subject, e map[string]any, outbox []map[string]any) []string {
	var events []string
	for _, event := range outbox {
		var parts []string
		if kind, ok := event["event_type"]; ok {
			parts = append(parts, fmt.Sprint(kind))
		} else {
			parts = append(parts, "ended: "+fmt.Sprint(event["outcome"]))
		}
		if lease, ok := event["lease_id"].(string); ok {
			parts = append(parts, s.name("L", lease))
		}
		if instance := event["ffx_worker_instance_id"]; instance != nil {
			parts = append(parts, "of "+own(f, instance))
		}
		if by := event["ffx_revoked_by"]; by != nil {
			parts = append(parts, "by "+fmt.Sprint(by))
		}
		if details, ok := event["details"].(map[string]any); ok {
			text, _ := json.Marshal(details)
			parts = append(parts, string(text))
		}
		occurred, _ := event["occurred_at_ms"].(json.Number).Int64()
		parts = append(parts, "at "+instant(occurred))
		if dispatched, ok := event["dispatched_at_ms"]; ok {
			switch at, _ := dispatched.(json.Number); {
			case at == "":
				parts = append(parts, "not dispatched")
			case at != event["occurred_at_ms"]:
				parts = append(parts, "dispatched at another time")
			}
		}
		if event["namespace"] != e["ffx_namespace"] || event["instance_tag"] != e["ffx_instance_tag"] {
			parts = append(parts, fmt.Sprintf("in %v of %v", event["namespace"], event["instance_tag"]))
		}
		if flow, ok := event["flow_id"]; ok && flow != e["flow_id"] {
			parts = append(parts, "of another flow")
		}
		events = append(events, strings.Join(parts, " "))
	}
	return events
}

// merged returns the row with the columns of another.
func (r wholeRow) merged(other wholeRow) wholeRow {
	merged := maps.Clone(r)
	if merged == nil {
		merged = wholeRow{}
	}
	maps.Copy(merged, other)
	return merged
}
