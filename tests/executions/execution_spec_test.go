package executions

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// actedOn names, for each field of what callers give, the test that shows what it does, or the file that does it.
var actedOn = map[string]string{
	"ExecutionFilter.Partition":                 "TestListExecutions",
	"ExecutionFilter.Lane":                      "TestListExecutions_filters",
	"ExecutionFilter.Kind":                      "TestListExecutions_filters",
	"ExecutionFilter.State":                     "TestListExecutions_filters",
	"ExecutionFilter.Tag.Key":                   "TestListExecutions_filters",
	"ExecutionFilter.Tag.Value":                 "TestListExecutions_filters",
	"ExecutionFilter.CreatedFrom":               "TestListExecutions_filters",
	"ExecutionFilter.CreatedBefore":             "TestListExecutions_filters",
	"ExecutionFilter.Worker":                    "TestListExecutions_filters",
	"ExecutionFilter.Instance":                  "TestListExecutions_filters",
	"ExecutionFilter.Order":                     "TestListExecutions_filters",
	"ExecutionSpec.ID":                          "TestCreateExecution_stores_everything_given",
	"ExecutionSpec.Flow":                        "TestCreateExecution_of_a_flow",
	"ExecutionSpec.Namespace":                   "TestCreateExecution_stores_everything_given",
	"ExecutionSpec.Lane":                        "TestClaim_keeps_to_its_lane",
	"ExecutionSpec.Kind":                        "TestWorker_round_trip",
	"ExecutionSpec.Payload":                     "TestWorker_round_trip",
	"ExecutionSpec.PayloadEncoding":             "TestCreateExecution_stores_everything_given",
	"ExecutionSpec.Priority":                    "TestE30_claim_orders_over_all_partitions",
	"ExecutionSpec.Creator":                     "TestCreateExecution_stores_everything_given",
	"ExecutionSpec.IdempotencyKey":              "TestIdempotencyKey",
	"ExecutionSpec.Tags":                        "TestCreateExecution_stores_everything_given",
	"ExecutionSpec.Policy.Retry.MaxRetries":     "TestFailExecution_retry_decision",
	"ExecutionSpec.Policy.Retry.Backoff.First":  "TestFailExecution_schedules_a_retry",
	"ExecutionSpec.Policy.Retry.Backoff.Max":    "TestFailExecution_backoff",
	"ExecutionSpec.Policy.Retry.Backoff.Factor": "TestFailExecution_backoff",
	"ExecutionSpec.Policy.Retry.Backoff.Jitter": "TestI45_JitterAndCategoriesAreHonoured",
	"ExecutionSpec.Policy.Retry.Categories":     "TestFailExecution_retry_decision",
	"ExecutionSpec.Policy.AttemptTimeout":       "TestE14_attempts_time_out",
	"ExecutionSpec.Policy.Deadline":             "TestCreateExecution_start_and_deadline",
	"ExecutionSpec.Policy.DelayUntil":           "TestCreateExecution_start_and_deadline",
	"ExecutionSpec.Policy.MaxReclaims":          "TestPolicy_MaxReclaims",
	"ExecutionSpec.Policy.DedupWindow":          "TestIdempotencyKey",
	"ExecutionSpec.Policy.Retention":            "TestRetention_periods",
	"ExecutionSpec.Policy.Capabilities":         "TestE31_claim_passes_over_what_the_worker_cannot_do",
	"ExecutionSpec.DelayUntil":                  "TestCreateExecution_start_and_deadline",
	"ExecutionSpec.Deadline":                    "TestE15_E16_deadline_ends_every_phase",
	"ExecutionSpec.CreatedAt":                   "TestCreateExecution_stores_everything_given",
	"FlowFilter.Partition":                      "TestListFlows",
	"FlowFilter.State":                          "TestListFlows",
	"FlowFilter.Kind":                           "TestListFlows",
	"FlowFilter.Namespace":                      "TestListFlows",
	"FlowFilter.Tag.Key":                        "TestListFlows",
	"FlowFilter.Tag.Value":                      "TestListFlows",
	"FlowFilter.CreatedFrom":                    "TestListFlows",
	"FlowFilter.CreatedBefore":                  "TestListFlows",
	"FlowFilter.Order":                          "TestListFlows",
	"FlowSpec.ID":                               "TestCreateFlow_repeated",
	"FlowSpec.Kind":                             "TestCreateFlow_stores",
	"FlowSpec.Namespace":                        "TestCreateFlow_stores",
	"FlowSpec.Tags":                             "TestCreateFlow_stores",
	"FlowSpec.CreatedAt":                        "TestCreateFlow_records_created_at",
	"FlowSpec.Nodes.Key":                        "TestNodeID",
	"FlowSpec.Nodes.Spec":                       "TestCreateFlow_node_specs",
	"FlowSpec.Nodes.Execution":                  "TestCreateFlow_around_existing_executions",
	"FlowSpec.Nodes.When":                       "TestResolve_worked_values",
	"FlowSpec.Edges.From":                       "TestCreateFlow_shapes",
	"FlowSpec.Edges.To":                         "TestCreateFlow_shapes",
	"FlowSpec.Edges.ID":                         "TestCreateFlow_stores",
	"FlowSpec.Edges.Kind":                       "TestCreateFlow_stores",
	"FlowSpec.Edges.PassResult":                 "TestF34_PassResult",
	"FlowSpec.Edges.AllowStarted":               "TestCreateFlow_around_a_started_execution",
	"Growth.Flow":                               "TestGrowFlow_stores",
	"Growth.Nodes.Key":                          "TestGrowFlow_stores",
	"Growth.Nodes.Spec":                         "TestGrowFlow_stores",
	"Growth.Nodes.Execution":                    "TestGrowFlow_repeated",
	"Growth.Nodes.When":                         "TestF17_growth_from_what_has_ended",
	"Growth.Edges.From":                         "TestGrowFlow_stores",
	"Growth.Edges.To":                           "TestGrowFlow_stores",
	"Growth.Edges.ID":                           "TestGrowFlow_stores",
	"Growth.Edges.Kind":                         "TestGrowFlow_stores",
	"Growth.Edges.PassResult":                   "TestF34_PassResult_of_growth",
	"Growth.Edges.AllowStarted":                 "TestGrowFlow_children_of_a_running_member",
	"Growth.Revision":                           "TestGrowFlow_repeated",
	"EdgeStaging.Flow":                          "TestStageEdges_stores",
	"EdgeStaging.Edges.ID":                      "TestStageEdges_stores",
	"EdgeStaging.Edges.Upstream":                "TestStageEdges_stores",
	"EdgeStaging.Edges.Downstream":              "TestStageEdges_stores",
	"EdgeStaging.Edges.Kind":                    "TestStageEdges_stores",
	"EdgeStaging.Edges.PassResult":              "TestStageEdges_stores",
	"EdgeStaging.Edges.AllowStarted":            "TestApplyEdges_to_what_has_moved_on",
	"EdgeStaging.Revision":                      "TestStageEdges_repeated",
	"EdgeStaging.Apply":                         "TestStageEdges_repeated",
	"ClaimSpec.Lane":                            "TestClaim_keeps_to_its_lane",
	"ClaimSpec.Kinds":                           "TestN1_claims_take_the_kinds_asked_for",
	"ClaimSpec.Capabilities":                    "TestE31_claim_passes_over_what_the_worker_cannot_do",
	"ClaimSpec.Worker":                          "TestClaim_leases_a_fresh_execution",
	"ClaimSpec.Instance":                        "TestClaim_leases_a_fresh_execution",
	"ClaimSpec.LeaseTTL":                        "TestClaim_leases_a_fresh_execution",
	"RevokeSpec.ID":                             "TestRevokeLease_gives_the_execution_back",
	"RevokeSpec.Lease":                          "TestI11_each_name_of_a_lease_revokes_it",
	"RevokeSpec.Instance":                       "TestRevokeLease_of_another_lease",
	"RevokeSpec.Reason":                         "TestRevokeLease_gives_the_execution_back",
	"ExpiredLeaseFilter.AsOf":                   "TestI10_expired_leases_of_all_claims",
	"ExpiredLeaseFilter.Namespace":              "TestI10_expired_leases_of_all_claims",
	"CancelSpec.ID":                             "TestE25_cancel_ends_whatever_it_finds",
	"CancelSpec.Reason":                         "TestE25_cancel_ends_whatever_it_finds",
	"CancelSpec.Fence.Execution":                "TestCancelExecution_refuses_what_it_cannot_do",
	"CancelSpec.Fence.Attempt":                  "TestE25_cancel_by_a_holder_is_fenced",
	"CancelSpec.Fence.Epoch":                    "TestE25_cancel_by_a_holder_is_fenced",
	"CancelSpec.Source":                         "TestCancelExecution_refuses_what_it_cannot_do",
	"CancelFlowSpec.ID":                         "TestF1_F2_F3_F4_F7_members_by_policy",
	"CancelFlowSpec.Policy":                     "TestF1_F2_F3_F4_F7_members_by_policy",
	"CancelFlowSpec.Reason":                     "TestF1_F2_F3_F4_F7_members_by_policy",
	"FlowCancelRequest.ID":                      "TestF8_F9_requests_by_policy",
	"FlowCancelRequest.Policy":                  "TestF8_F9_requests_by_policy",
	"FlowCancelRequest.Reason":                  "TestF8_F9_requests_by_policy",
	"FlowCancelRequest.Grace":                   "TestF8_F9_requests_by_policy",
	"FlowCancelRequest.Requester":               "TestF8_F9_requests_by_policy",
	"GrantSpec.Execution":                       "TestE3_I31_a_granted_execution_is_claimed_by_its_grant",
	"GrantSpec.Lane":                            "TestGrants_of_bad_input",
	"GrantSpec.Capabilities":                    "TestE3_I31_a_granted_execution_is_claimed_by_its_grant",
	"GrantSpec.Worker":                          "TestI30_E36_forged_grants",
	"GrantSpec.Instance":                        "TestI30_E36_forged_grants",
	"GrantSpec.TTL":                             "TestE36_the_instant_a_grant_expires",
	"GrantSpec.CapabilityHash":                  "TestE3_I31_a_granted_execution_is_claimed_by_its_grant",
	"GrantSpec.RouteSnapshot":                   "TestE3_I31_a_granted_execution_is_claimed_by_its_grant",
	"GrantSpec.AdmissionSummary":                "TestE3_I31_a_granted_execution_is_claimed_by_its_grant",
	"WorkerSpec.Lane":                           "TestE30_E31_a_worker_is_granted_what_it_would_claim",
	"WorkerSpec.Capabilities":                   "TestE30_E31_a_worker_is_granted_what_it_would_claim",
	"WorkerSpec.Kinds":                          "TestE30_E31_a_worker_is_granted_what_it_would_claim",
	"WorkerSpec.Worker":                         "TestE30_E31_a_worker_is_granted_what_it_would_claim",
	"WorkerSpec.Instance":                       "TestE30_E31_a_worker_is_granted_what_it_would_claim",
	"WorkerSpec.TTL":                            "TestE30_E31_a_worker_is_granted_what_it_would_claim",
	"GrantedClaim.Grant.Execution":              "TestE3_I31_a_granted_execution_is_claimed_by_its_grant",
	"GrantedClaim.Grant.Lane":                   "TestGrants_of_bad_input",
	"GrantedClaim.Grant.Key":                    "TestI30_E36_forged_grants",
	"GrantedClaim.Worker":                       "TestI30_E36_forged_grants",
	"GrantedClaim.Instance":                     "TestI30_E36_forged_grants",
	"GrantedClaim.LeaseTTL":                     "TestE3_I31_a_granted_execution_is_claimed_by_its_grant",
	"GrantedClaim.ExpectedAttempt":              "TestE6_claim_by_a_grant_as_the_worker_wants_it",
	"GrantedClaim.LeaseID":                      "TestE6_claim_by_a_grant_as_the_worker_wants_it",
	"GrantedClaim.AttemptID":                    "TestE6_claim_by_a_grant_as_the_worker_wants_it",
	"GrantedClaim.AttemptTimeout":               "TestE6_claim_by_a_grant_as_the_worker_wants_it",
	"GrantedClaim.Deadline":                     "TestE6_claim_by_a_grant_as_the_worker_wants_it",
	"ResumedClaim.Grant.Execution":              "TestE46_resume_grants_by_state",
	"ResumedClaim.Grant.Lane":                   "TestE46_resume_grants_by_state",
	"ResumedClaim.Grant.Key":                    "TestI30_E36_forged_grants",
	"ResumedClaim.Grant.ExpiresAt":              "TestE36_unsigned_resume_grants",
	"ResumedClaim.Worker":                       "TestI30_E36_forged_grants",
	"ResumedClaim.Instance":                     "TestI30_E36_forged_grants",
	"ResumedClaim.LeaseTTL":                     "TestE46_resume_grants_by_state",
	"Reclaim.Grant.Execution":                   "TestE9_E12_reclaim_of_a_lost_lease",
	"Reclaim.Grant.Lane":                        "TestE9_E12_reclaim_of_a_lost_lease",
	"Reclaim.Grant.Key":                         "TestE36_reclaim_grants",
	"Reclaim.Worker":                            "TestE36_reclaim_grants",
	"Reclaim.Instance":                          "TestE36_reclaim_grants",
	"Reclaim.LeaseTTL":                          "TestE9_E12_reclaim_of_a_lost_lease",
	"Reclaim.MaxReclaims":                       "TestE12_reclaims_end_at_the_cap",
	"Reclaim.LeaseID":                           "TestE9_E12_reclaim_of_a_lost_lease",
	"Reclaim.AttemptID":                         "TestE9_E12_reclaim_of_a_lost_lease",
	"EligibleFilter.Lane":                       "TestE43_eligible_executions",
	"EligibleFilter.Partition":                  "TestE43_eligible_executions",
	"GrantedClaim.Grant.ExpiresAt":              "TestE36_the_instant_a_grant_expires",
	"Reclaim.Grant.ExpiresAt":                   "TestE36_reclaim_grants",
	"Config.UnsignedResumeGrants":               "TestE36_unsigned_resume_grants",
	"Config.Partitions.Flow":                    "TestReads_refuse_bad_input",
	"Config.Namespace":                          "TestN3_namespace_of_the_engine",
	"Config.MaxPayload":                         "TestMaxPayload",
	"Config.Retention":                          "TestE33_retention_empties_every_table",
	"Config.OutboxRetention":                    "TestTrimOutboxes_of_those_kept_for_ever",
	"Config.Listener":                           "TestA12_listener_at_an_address_of_its_own",
	"Config.NoListener":                         "TestA12_listener_that_is_turned_off",
	"Config.Log":                                "internal/notify/notifier.go",
	"Config.Now":                                "tests/seed_test.go",
}

// refused names the fields that nothing acts on, with those below them, as the errors name them.
var refused = map[string]string{
	"ExecutionSpec.QuotaPolicy": "QuotaPolicy",
	"Config.Partitions.Budget":  "Config.Partitions.Budget",
	"Config.Partitions.Quota":   "Config.Partitions.Quota",
}

// given are the types that callers fill in.
var given = []reflect.Type{
	reflect.TypeFor[engine.ExecutionSpec](), reflect.TypeFor[engine.FlowSpec](), reflect.TypeFor[engine.Growth](),
	reflect.TypeFor[engine.EdgeStaging](), reflect.TypeFor[engine.ClaimSpec](),
	reflect.TypeFor[engine.CancelSpec](), reflect.TypeFor[engine.RevokeSpec](),
	reflect.TypeFor[engine.ExpiredLeaseFilter](), reflect.TypeFor[engine.GrantSpec](),
	reflect.TypeFor[engine.WorkerSpec](), reflect.TypeFor[engine.GrantedClaim](),
	reflect.TypeFor[engine.ResumedClaim](), reflect.TypeFor[engine.Reclaim](),
	reflect.TypeFor[engine.EligibleFilter](), reflect.TypeFor[engine.Config](),
	reflect.TypeFor[engine.ExecutionFilter](), reflect.TypeFor[engine.FlowFilter](),
	reflect.TypeFor[engine.CancelFlowSpec](), reflect.TypeFor[engine.FlowCancelRequest](),
}

// fields returns the paths of all exported fields below a type that have none below them.
func fields(t reflect.Type, path string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	var paths []string
	if t.Kind() == reflect.Struct && strings.HasPrefix(t.PkgPath(), fixture.Module) && (path == t.Name() || !slices.Contains(given, t)) {
		for _, field := range reflect.VisibleFields(t) {
			if field.IsExported() {
				paths = append(paths, fields(field.Type, path+"."+field.Name)...)
			}
		}
	}
	if len(paths) == 0 {
		paths = []string{path}
	}
	return paths
}

// set gives the field at a path a value that is not its zero value.
func set(t *testing.T, v reflect.Value, path []string) {
	t.Helper()
	switch {
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		set(t, v.Elem(), path)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		set(t, v.Index(0), path)
	case len(path) > 0:
		set(t, v.FieldByName(path[0]), path[1:])
	case v.Kind() == reflect.String:
		v.SetString("x")
	case v.CanInt():
		v.SetInt(1)
	case v.CanUint():
		v.SetUint(1)
	case v.Kind() == reflect.Array:
		set(t, v.Index(0), nil)
	default:
		t.Fatal("no value for " + v.Type().String())
	}
}

// refusal returns under which name a field is refused.
func refusal(path string) (string, bool) {
	for prefix, name := range refused {
		if path == prefix || strings.HasPrefix(path, prefix+".") {
			return name, true
		}
	}
	return "", false
}

// Whatever a caller can say is acted on, or refused by name.
func TestN3_nothing_is_accepted_and_ignored(t *testing.T) {
	f := fixture.New(t)
	seen := make(map[string]bool)
	for _, root := range given {
		for _, path := range fields(root, root.Name()) {
			name, isRefused := refusal(path)
			_, acts := actedOn[path]
			seen[path] = true
			switch {
			case isRefused && acts, !isRefused && !acts:
				t.Errorf("%s has to be either acted on or refused", path)
			case isRefused && root.Name() == "Config":
				var cfg engine.Config
				set(t, reflect.ValueOf(&cfg), strings.Split(path, ".")[1:])
				_, err := engine.New(f.Pool, cfg)
				fixture.WantInputError(t, err, name)
			case isRefused:
				spec := engine.ExecutionSpec{Kind: "test", Lane: f.Lane}
				set(t, reflect.ValueOf(&spec), strings.Split(path, ".")[1:])
				_, err := f.CreateExecution(t.Context(), spec)
				fixture.WantInputError(t, err, name)
				results, err := f.CreateExecutions(t.Context(), []engine.ExecutionSpec{{Kind: "test", Lane: f.Lane}, spec})
				if err != nil || results[0].Err != nil {
					t.Fatalf("%+v, %v", results, err)
				}
				fixture.WantInputError(t, results[1].Err, name)
				_, err = f.CreateFlow(t.Context(), engine.FlowSpec{Nodes: []engine.Node{{Key: "a", Spec: spec}}})
				if fixture.WantInputError(t, err, `node "a"`); err != nil && !strings.Contains(err.Error(), name) {
					t.Errorf("%s: error %v does not name it", path, err)
				}
			}
		}
	}
	for path := range actedOn {
		if !seen[path] {
			t.Errorf("there is no field %s", path)
		}
	}
	tests := testNames(t)
	for path, place := range actedOn {
		if _, err := os.Stat(filepath.Join("../..", place)); err != nil && !tests[place] {
			t.Errorf("%s: there is no %s", path, place)
		}
	}
}

// testNames are the tests of all packages.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	for _, pattern := range []string{"../*/*_test.go", "../../*/*_test.go", "../../internal/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(source)) {
				if rest, ok := strings.CutPrefix(line, "func "); ok {
					name, _, _ := strings.Cut(rest, "(")
					names[name] = true
				}
			}
		}
	}
	return names
}

// What the reference stored is read, whatever it says: executions with such a policy are described, claimed and settled.
func TestN3_stored_policies_of_the_reference_are_read(t *testing.T) {
	f := fixture.New(t)
	stored := fmt.Sprintf(`{"priority":3,"retry_policy":{"max_retries":1,"backoff":{"type":"fixed","delay_ms":0}},
		"suspension_policy":{"default_timeout_ms":5,"timeout_behavior":"cancel"},"fallback_policy":{"tiers":[{"provider":"p","model":"m"}]},
		"max_replay_count":3,"budget_ids":[%q],"routing_requirements":{"required_capabilities":[],"preferred_locality":"here","isolation_level":"vm"},
		"stream_policy":{"durability_mode":"durable","retention_maxlen":5},"max_signals_per_execution":7}`, id.NewBudgetID())
	x := f.Create(t)
	f.Exec(t, fixture.UpdateExecution("policy = $3::text::jsonb"), x.Partition(), x.UUID(), stored)
	if got := f.Describe(t, x); got.State.Public != state.PublicWaiting {
		t.Errorf("described as %+v", got)
	}
	if failed := f.Fail(t, f.ClaimOne(t).Lease, engine.Failure{}); !failed.Retry {
		t.Errorf("failed with %+v, want a retry by the stored policy", failed)
	}
	if failed := f.Fail(t, f.ClaimOne(t).Lease, engine.Failure{}); failed.Retry {
		t.Errorf("failed with %+v, want no second retry", failed)
	}
	f.WantState(t, x, fixture.StateFailed)
}

func TestN3_namespace_of_the_engine(t *testing.T) {
	f := fixture.New(t)
	f.Engine = f.EngineOn(t, f.Pool, engine.Config{Namespace: "tenant"})
	if got := f.Describe(t, f.Create(t)).Namespace; got != "tenant" {
		t.Errorf("namespace %q, want that of the engine", got)
	}
}

func TestN4_a_kind_is_required(t *testing.T) {
	f := fixture.New(t)
	_, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane})
	fixture.WantInputError(t, err, "kind")
	results, err := f.CreateExecutions(t.Context(), []engine.ExecutionSpec{{Lane: f.Lane}, {Lane: f.Lane, Kind: "test"}})
	if err != nil || results[1].Err != nil {
		t.Fatal(results, err)
	}
	fixture.WantInputError(t, results[0].Err, "kind")
	_, err = f.CreateFlow(t.Context(), engine.FlowSpec{Nodes: []engine.Node{{Key: "a", Spec: engine.ExecutionSpec{Lane: f.Lane}}}})
	if fixture.WantInputError(t, err, `node "a"`); err != nil && !strings.Contains(err.Error(), "kind") {
		t.Errorf("error %v does not name the kind", err)
	}
	if got := f.CountOnLane(t); got != 1 {
		t.Errorf("%d executions, want 1", got)
	}
}

// A key holds within a partition: two lanes or flows of different partitions each have it, two of one share it.
func TestN6_a_key_holds_within_its_partition(t *testing.T) {
	f := fixture.New(t)
	here := id.Partitions{}.LanePartition(f.Lane)
	lane := func(same bool) id.LaneID {
		for i := 0; ; i++ {
			if lane := id.LaneID(fmt.Sprint(f.Lane, ".", i)); (id.Partitions{}.LanePartition(lane) == here) == same {
				return lane
			}
		}
	}
	flow := func(same bool) *id.FlowID {
		for {
			if flow := id.NewFlowID(); (id.Partitions{}.FlowPartition(flow) == here) == same {
				if _, err := f.CreateFlow(t.Context(), engine.FlowSpec{ID: flow}); err != nil {
					t.Fatal(err)
				}
				return &flow
			}
		}
	}
	for name, elsewhere := range map[string]func(spec *engine.ExecutionSpec, same bool){
		"lane": func(spec *engine.ExecutionSpec, same bool) { spec.Lane = lane(same) },
		"flow": func(spec *engine.ExecutionSpec, same bool) { spec.Flow = flow(same) },
	} {
		create := func(change func(*engine.ExecutionSpec)) engine.Created {
			t.Helper()
			spec := engine.ExecutionSpec{Lane: f.Lane, Kind: "test", IdempotencyKey: f.Key(name)}
			change(&spec)
			created, err := f.CreateExecution(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			return created
		}
		first := create(func(*engine.ExecutionSpec) {})
		if got, want := create(func(spec *engine.ExecutionSpec) { elsewhere(spec, true) }), (engine.Created{ID: first.ID, Duplicate: true}); got != want {
			t.Errorf("in another %s of the same partition: %+v, want %+v", name, got, want)
		}
		if got := create(func(spec *engine.ExecutionSpec) { elsewhere(spec, false) }); got.Duplicate || got.ID == first.ID {
			t.Errorf("in another %s of another partition: %+v, want an execution of its own", name, got)
		}
	}
}
