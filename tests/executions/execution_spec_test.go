package executions

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// actedOn names, for each field of callers' specs, the test that shows its effect, or the file that has it.
var actedOn = map[string]string{
	"ExecutionFilter.Examined":                  "TestListExecutionsExaminesFewOfAll",
	"ExecutionFilter.Partition":                 "TestListExecutions",
	"ExecutionFilter.Namespace":                 "TestListExecutionsFilters",
	"ExecutionFilter.Lane":                      "TestListExecutionsFilters",
	"ExecutionFilter.Kind":                      "TestListExecutionsFilters",
	"ExecutionFilter.State":                     "TestListExecutionsFilters",
	"ExecutionFilter.Tag.Key":                   "TestListExecutionsFilters",
	"ExecutionFilter.Tag.Value":                 "TestListExecutionsFilters",
	"ExecutionFilter.CreatedFrom":               "TestListExecutionsFilters",
	"ExecutionFilter.CreatedBefore":             "TestListExecutionsFilters",
	"ExecutionFilter.Worker":                    "TestListExecutionsFilters",
	"ExecutionFilter.Instance":                  "TestListExecutionsFilters",
	"ExecutionFilter.Order":                     "TestListExecutionsFilters",
	"ExecutionSpec.ID":                          "TestCreateExecutionStoresEveryField",
	"ExecutionSpec.Flow":                        "TestCreateExecutionInAFlow",
	"ExecutionSpec.Namespace":                   "TestCreateExecutionStoresEveryField",
	"ExecutionSpec.Lane":                        "TestClaimStaysInItsLane",
	"ExecutionSpec.Kind":                        "TestWorkerRoundTrip",
	"ExecutionSpec.Payload":                     "TestWorkerRoundTrip",
	"ExecutionSpec.PayloadEncoding":             "TestCreateExecutionStoresEveryField",
	"ExecutionSpec.Priority":                    "TestClaimOrdersAcrossPartitions_E30",
	"ExecutionSpec.Creator":                     "TestCreateExecutionStoresEveryField",
	"ExecutionSpec.BusinessKey.Name":            "TestBusinessKey",
	"ExecutionSpec.BusinessKey.Value":           "TestBusinessKey",
	"ExecutionSpec.Budgets":                     "TestGateWaitsForBudgets_B1_B2_B6",
	"ExecutionSpec.QuotaPolicy":                 "TestGateLimitsRunning_B3_B22",
	"ExecutionSpec.Limits.Name":                 "TestDeclaredLimitsMustExist",
	"ExecutionSpec.Limits.Key":                  "TestKeysLimitApart",
	"ExecutionSpec.Limits.Units":                "TestUnitsCount",
	"ExecutionSpec.Fair.Tenant":                 "TestTenantsTakeTurns",
	"ExecutionSpec.Fair.Weight":                 "TestWeightsHold",
	"ExecutionSpec.Sequence.Key":                "TestMembersRunInOrder",
	"ExecutionSpec.Sequence.OnFailure":          "TestFailureSkips",
	"ExecutionSpec.Unique.ByArgs":               "TestUniqueKeyHasItsParts",
	"ExecutionSpec.Unique.ByLane":               "TestUniqueKeyHasItsParts",
	"ExecutionSpec.Unique.Fields":               "TestUniqueKeyHasItsParts",
	"ExecutionSpec.Unique.IfTaken":              "TestCancelExisting",
	"ExecutionSpec.Unique.Period":               "TestUniquePeriod",
	"ExecutionSpec.Unique.While":                "TestUniqueWhile",
	"ExecutionSpec.Unique.Within":               "TestReplaceWaiting",
	"ExecutionSpec.IdempotencyKey":              "TestIdempotencyKey",
	"ExecutionSpec.Tags":                        "TestCreateExecutionStoresEveryField",
	"ExecutionSpec.Policy.Retry.MaxRetries":     "TestFailExecutionDecidesOnARetry",
	"ExecutionSpec.Policy.Retry.Backoff.First":  "TestFailExecutionSchedulesARetry",
	"ExecutionSpec.Policy.Retry.Backoff.Max":    "TestFailExecutionBackoff",
	"ExecutionSpec.Policy.Retry.Backoff.Factor": "TestFailExecutionBackoff",
	"ExecutionSpec.Policy.Retry.Backoff.Jitter": "TestJitterAndCategoriesAreHonoured_I45",
	"ExecutionSpec.Policy.Retry.Categories":     "TestFailExecutionDecidesOnARetry",
	"ExecutionSpec.Policy.AttemptTimeout":       "TestAttemptsTimeOut_E14",
	"ExecutionSpec.Policy.Deadline":             "TestCreateExecutionStoresStartAndDeadline",
	"ExecutionSpec.Policy.DelayUntil":           "TestCreateExecutionStoresStartAndDeadline",
	"ExecutionSpec.Policy.MaxReclaims":          "TestPolicyMaxReclaimsTakesTheSmallerCount",
	"ExecutionSpec.Policy.MaxReplays":           "TestReplayIsLimitedByThePolicyOfTheSpec",
	"ExecutionSpec.Policy.DedupWindow":          "TestIdempotencyKey",
	"ExecutionSpec.Policy.Retention":            "TestRetentionPeriods",
	"ExecutionSpec.Policy.Capabilities":         "TestClaimSkipsMissingCapabilities_E31",
	"ExecutionSpec.DelayUntil":                  "TestCreateExecutionStoresStartAndDeadline",
	"ExecutionSpec.Deadline":                    "TestDeadlineEndsEveryPhase_E15_E16",
	"ExecutionSpec.CreatedAt":                   "TestCreateExecutionStoresEveryField",
	"FlowFilter.Partition":                      "TestListFlows",
	"FlowFilter.State":                          "TestListFlows",
	"FlowFilter.Kind":                           "TestListFlows",
	"FlowFilter.Namespace":                      "TestListFlows",
	"FlowFilter.Tag.Key":                        "TestListFlows",
	"FlowFilter.Tag.Value":                      "TestListFlows",
	"FlowFilter.CreatedFrom":                    "TestListFlows",
	"FlowFilter.CreatedBefore":                  "TestListFlows",
	"FlowFilter.Examined":                       "TestListFlowsExaminesABoundedNumber",
	"FlowFilter.Order":                          "TestListFlows",
	"FlowSpec.ID":                               "TestCreateFlowRepeatedChangesNothing",
	"FlowSpec.BusinessKey.Name":                 "TestFlowWithBusinessKeys",
	"FlowSpec.BusinessKey.Value":                "TestFlowWithBusinessKeys",
	"FlowSpec.Kind":                             "TestCreateFlowStoresEveryRow",
	"FlowSpec.Namespace":                        "TestCreateFlowStoresEveryRow",
	"FlowSpec.Tags":                             "TestCreateFlowStoresEveryRow",
	"FlowSpec.CreatedAt":                        "TestCreateFlowRecordsCreatedAt",
	"FlowSpec.Retention":                        "TestMembersAreKeptUntilTheirFlowIsPurged",
	"FlowSpec.PruneMembersAfter":                "TestPrunedMembersStayKnown",
	"FlowSpec.Nodes.Key":                        "TestNodeID",
	"FlowSpec.Nodes.Spec":                       "TestCreateFlowStoresNodeSpecs",
	"FlowSpec.Nodes.Execution":                  "TestCreateFlowAroundExistingExecutions",
	"FlowSpec.Nodes.When":                       "TestResolveMatchesTheWorkedExamples",
	"FlowSpec.Edges.From":                       "TestCreateFlowShapes",
	"FlowSpec.Edges.To":                         "TestCreateFlowShapes",
	"FlowSpec.Edges.ID":                         "TestCreateFlowStoresEveryRow",
	"FlowSpec.Edges.Kind":                       "TestCreateFlowStoresEveryRow",
	"FlowSpec.Edges.PassResult":                 "TestPassResultBecomesThePayload_F34",
	"FlowSpec.Edges.AllowStarted":               "TestCreateFlowAroundAStartedExecution",
	"Growth.Flow":                               "TestGrowFlowStoresLikeCreateFlow",
	"Growth.Nodes.Key":                          "TestGrowFlowStoresLikeCreateFlow",
	"Growth.Nodes.Spec":                         "TestGrowFlowStoresLikeCreateFlow",
	"Growth.Nodes.Execution":                    "TestGrowFlowRepeatedChangesNothing",
	"Growth.Nodes.When":                         "TestGrowthCountsEndedUpstreams_F17",
	"Growth.Edges.From":                         "TestGrowFlowStoresLikeCreateFlow",
	"Growth.Edges.To":                           "TestGrowFlowStoresLikeCreateFlow",
	"Growth.Edges.ID":                           "TestGrowFlowStoresLikeCreateFlow",
	"Growth.Edges.Kind":                         "TestGrowFlowStoresLikeCreateFlow",
	"Growth.Edges.PassResult":                   "TestGrowthPassesResults_F34",
	"Growth.Edges.AllowStarted":                 "TestGrowFlowAddsChildrenToARunningMember",
	"Growth.Revision":                           "TestGrowFlowRepeatedChangesNothing",
	"EdgeStaging.Flow":                          "TestStageEdgesStoresRows",
	"EdgeStaging.Edges.ID":                      "TestStageEdgesStoresRows",
	"EdgeStaging.Edges.Upstream":                "TestStageEdgesStoresRows",
	"EdgeStaging.Edges.Downstream":              "TestStageEdgesStoresRows",
	"EdgeStaging.Edges.Kind":                    "TestStageEdgesStoresRows",
	"EdgeStaging.Edges.PassResult":              "TestStageEdgesStoresRows",
	"EdgeStaging.Edges.AllowStarted":            "TestApplyEdgesRefusesEndedDependents",
	"EdgeStaging.Revision":                      "TestStageEdgesRepeatedChangesNothing",
	"EdgeStaging.Apply":                         "TestStageEdgesRepeatedChangesNothing",
	"ClaimSpec.Lane":                            "TestClaimStaysInItsLane",
	"ClaimSpec.Kinds":                           "TestClaimFiltersByKind",
	"ClaimSpec.Capabilities":                    "TestClaimSkipsMissingCapabilities_E31",
	"ClaimSpec.Worker":                          "TestClaimLeasesANewExecution",
	"ClaimSpec.Instance":                        "TestClaimLeasesANewExecution",
	"ClaimSpec.LeaseTTL":                        "TestClaimLeasesANewExecution",
	"RevokeSpec.ID":                             "TestRevokeLeaseReturnsTheExecution",
	"RevokeSpec.Lease":                          "TestRevokeLeaseAcceptsEverySpelling_I11",
	"RevokeSpec.Instance":                       "TestRevokeLeaseIgnoresAnotherLease",
	"RevokeSpec.Reason":                         "TestRevokeLeaseReturnsTheExecution",
	"ExpiredLeaseFilter.AsOf":                   "TestListExpiredLeasesOfEveryClaim_I10",
	"ExpiredLeaseFilter.Namespace":              "TestListExpiredLeasesOfEveryClaim_I10",
	"CancelSpec.ID":                             "TestCancelEndsEveryPhase_E25",
	"CancelSpec.Reason":                         "TestCancelEndsEveryPhase_E25",
	"CancelSpec.Fence.Execution":                "TestCancelExecutionRefusesBadInput",
	"CancelSpec.Fence.Attempt":                  "TestCancelByAHolderIsFenced_E25",
	"CancelSpec.Fence.Epoch":                    "TestCancelByAHolderIsFenced_E25",
	"CancelSpec.Source":                         "TestCancelExecutionRefusesBadInput",
	"CancelFlowSpec.ID":                         "TestCancelFlowEndsMembersByPolicy_F1_F2_F3_F4_F7_E44",
	"CancelFlowSpec.Policy":                     "TestCancelFlowEndsMembersByPolicy_F1_F2_F3_F4_F7_E44",
	"CancelFlowSpec.Reason":                     "TestCancelFlowEndsMembersByPolicy_F1_F2_F3_F4_F7_E44",
	"FlowCancelRequest.ID":                      "TestCancelRequestsFollowThePolicy_F8_F9",
	"FlowCancelRequest.Policy":                  "TestCancelRequestsFollowThePolicy_F8_F9",
	"FlowCancelRequest.Reason":                  "TestCancelRequestsFollowThePolicy_F8_F9",
	"FlowCancelRequest.Grace":                   "TestCancelRequestsFollowThePolicy_F8_F9",
	"FlowCancelRequest.Requester":               "TestCancelRequestsFollowThePolicy_F8_F9",
	"GrantSpec.Execution":                       "TestGrantedExecutionIsClaimedByItsGrant_E3_I31",
	"GrantSpec.Lane":                            "TestGrantsRefuseBadInput",
	"GrantSpec.Capabilities":                    "TestGrantedExecutionIsClaimedByItsGrant_E3_I31",
	"GrantSpec.Worker":                          "TestForgedGrantsAreRefused_I30_E36",
	"GrantSpec.Instance":                        "TestForgedGrantsAreRefused_I30_E36",
	"GrantSpec.TTL":                             "TestGrantIsRefusedFromItsExpiryOn_E36",
	"GrantSpec.CapabilityHash":                  "TestGrantedExecutionIsClaimedByItsGrant_E3_I31",
	"GrantSpec.RouteSnapshot":                   "TestGrantedExecutionIsClaimedByItsGrant_E3_I31",
	"GrantSpec.AdmissionSummary":                "TestGrantedExecutionIsClaimedByItsGrant_E3_I31",
	"WorkerSpec.Lane":                           "TestWorkerIsGrantedWhatItWouldClaim_E30_E31",
	"WorkerSpec.Capabilities":                   "TestWorkerIsGrantedWhatItWouldClaim_E30_E31",
	"WorkerSpec.Kinds":                          "TestWorkerIsGrantedWhatItWouldClaim_E30_E31",
	"WorkerSpec.Worker":                         "TestWorkerIsGrantedWhatItWouldClaim_E30_E31",
	"WorkerSpec.Instance":                       "TestWorkerIsGrantedWhatItWouldClaim_E30_E31",
	"WorkerSpec.TTL":                            "TestWorkerIsGrantedWhatItWouldClaim_E30_E31",
	"GrantedClaim.Grant.Execution":              "TestGrantedExecutionIsClaimedByItsGrant_E3_I31",
	"GrantedClaim.Grant.Lane":                   "TestGrantsRefuseBadInput",
	"GrantedClaim.Grant.Key":                    "TestForgedGrantsAreRefused_I30_E36",
	"GrantedClaim.Worker":                       "TestForgedGrantsAreRefused_I30_E36",
	"GrantedClaim.Instance":                     "TestForgedGrantsAreRefused_I30_E36",
	"GrantedClaim.LeaseTTL":                     "TestGrantedExecutionIsClaimedByItsGrant_E3_I31",
	"GrantedClaim.ExpectedAttempt":              "TestClaimByGrantTakesTheWorkersOptions_E6",
	"GrantedClaim.LeaseID":                      "TestClaimByGrantTakesTheWorkersOptions_E6",
	"GrantedClaim.AttemptID":                    "TestClaimByGrantTakesTheWorkersOptions_E6",
	"GrantedClaim.AttemptTimeout":               "TestClaimByGrantTakesTheWorkersOptions_E6",
	"GrantedClaim.Deadline":                     "TestClaimByGrantTakesTheWorkersOptions_E6",
	"ResumedClaim.Grant.Execution":              "TestResumeGrantsByState_E46",
	"ResumedClaim.Grant.Lane":                   "TestResumeGrantsByState_E46",
	"ResumedClaim.Grant.Key":                    "TestForgedGrantsAreRefused_I30_E36",
	"ResumedClaim.Grant.ExpiresAt":              "TestUnsignedResumeGrants_E36",
	"ResumedClaim.Worker":                       "TestForgedGrantsAreRefused_I30_E36",
	"ResumedClaim.Instance":                     "TestForgedGrantsAreRefused_I30_E36",
	"ResumedClaim.LeaseTTL":                     "TestResumeGrantsByState_E46",
	"Reclaim.Grant.Execution":                   "TestReclaimOfALostLease_E9_E12",
	"Reclaim.Grant.Lane":                        "TestReclaimOfALostLease_E9_E12",
	"Reclaim.Grant.Key":                         "TestReclaimVerifiesItsGrant_E36",
	"Reclaim.Worker":                            "TestReclaimVerifiesItsGrant_E36",
	"Reclaim.Instance":                          "TestReclaimVerifiesItsGrant_E36",
	"Reclaim.LeaseTTL":                          "TestReclaimOfALostLease_E9_E12",
	"Reclaim.MaxReclaims":                       "TestReclaimsEndAtTheLimit_E12",
	"Reclaim.LeaseID":                           "TestReclaimOfALostLease_E9_E12",
	"Reclaim.AttemptID":                         "TestReclaimOfALostLease_E9_E12",
	"EligibleFilter.Lane":                       "TestListEligibleExecutions_E43",
	"EligibleFilter.Partition":                  "TestListEligibleExecutions_E43",
	"GrantedClaim.Grant.ExpiresAt":              "TestGrantIsRefusedFromItsExpiryOn_E36",
	"Reclaim.Grant.ExpiresAt":                   "TestReclaimVerifiesItsGrant_E36",
	"Config.UnsignedResumeGrants":               "TestUnsignedResumeGrants_E36",
	"AdmissionSpec.Jitter":                      "TestJitterIsRandom_B25",
	"Spec.Labels.ScopeType":                     "TestCreateAndRead_B1_B19",
	"Spec.Labels.ScopeID":                       "TestCreateAndRead_B1_B19",
	"Spec.Labels.Mode":                          "TestCreateAndRead_B1_B19",
	"Spec.Labels.OnHardLimit":                   "TestCreateAndRead_B1_B19",
	"Spec.Labels.OnSoftLimit":                   "TestCreateAndRead_B1_B19",
	"Spec.CancelOnBreach":                       "TestABreachCancelsWorkInFlight",
	"Spec.ID":                                   "TestCreateAndRead_B1_B19",
	"Spec.Key":                                  "TestBudgetsHaveKeys",
	"Spec.Namespace":                            "TestBudgetsHaveKeys",
	"Spec.Limits":                               "TestReportsAreHeldToTheirLimits_B39",
	"Spec.ResetEvery":                           "TestScheduledResetsKeepTheirPhase_B18_B36",
	"Spec.Retention":                            "TestUnusedBudgetsAreDeleted",
	"Usage.Budget":                              "TestReportsAreHeldToTheirLimits_B39",
	"Usage.Amounts":                             "TestReportsAreHeldToTheirLimits_B39",
	"Usage.InputTokens":                         "TestReportsHaveStandardFields_B9",
	"Usage.OutputTokens":                        "TestReportsHaveStandardFields_B9",
	"Usage.Wall":                                "TestReportsHaveStandardFields_B9",
	"Usage.Key":                                 "TestKeysBelongToTheirBudget_B11_B13",
	"ReserveSpec.Budgets":                       "TestATreeOfBudgetsIsReservedAsAWhole",
	"ReserveSpec.Amounts":                       "TestReservationsCountUntilTheyAreSettled",
	"ReserveSpec.Key":                           "TestRepetitionsOfReservations",
	"SettleSpec.Budgets":                        "TestATreeOfBudgetsIsReservedAsAWhole",
	"SettleSpec.Used":                           "TestReservationsCountUntilTheyAreSettled",
	"SettleSpec.Reserved":                       "TestSettlingAPartAndMoreThanReserved",
	"SettleSpec.Key":                            "TestRepetitionsOfReservations",
	"Spend.Budget":                              "TestReleaseGivesBackOnce_B16",
	"Spend.Execution":                           "TestReleaseGivesBackOnce_B16",
	"Spend.Amounts":                             "TestReleaseGivesBackOnce_B16",
	"Spend.Key":                                 "TestRepetitionsReturnTheFirstOutcome_B12",
	"Config.Partitions.Budget":                  "TestPrepareComparesThePartitions_M26",
	"Config.Partitions.Quota":                   "TestPrepareComparesThePartitions_M26",
	"Config.Partitions.Flow":                    "TestReadsRefuseBadInput",
	"Config.Namespace":                          "TestExecutionsTakeTheEnginesNamespace",
	"Config.MaxPayload":                         "TestMaxPayload",
	"Config.Streams.MaxPayload":                 "TestPayloadsHaveTheEnginesLimit",
	"Config.Streams.DurableMaxlen":              "TestDurableMaxlenKeepsTheNewest",
	"Config.Streams.BestEffort.TTL":             "TestBestEffortFramesAreTrimmed_S41_S42",
	"Config.Streams.BestEffort.Least":           "TestBestEffortFramesKeepAtMost",
	"Config.Streams.BestEffort.Most":            "TestBestEffortFramesKeepAtMost",
	"Config.Retention":                          "TestRetentionEmptiesEveryTable_E33",
	"Config.OutboxRetention":                    "TestTrimOutboxesKeepsForever",
	"Config.Listener":                           "TestListenerUsesItsOwnAddress",
	"Config.NoListener":                         "TestListenerCanBeTurnedOff",
	"Config.Log":                                "internal/notify/notifier.go",
	"Config.Now":                                "tests/internal/fixture/fixture.go",
	"Config.Middleware":                         "TestMiddlewareSeesEveryCreationOnce",
	"Config.Observer":                           "TestCreationsAreCounted",
}

// refused names the fields that nothing acts on, with those below them, as the errors name them.
var refused = map[string]string{}

// given are the types that callers fill in.
var given = []reflect.Type{
	reflect.TypeFor[engine.ExecutionSpec](), reflect.TypeFor[engine.FlowSpec](), reflect.TypeFor[engine.Growth](),
	reflect.TypeFor[engine.EdgeStaging](), reflect.TypeFor[engine.ClaimSpec](),
	reflect.TypeFor[engine.CancelSpec](), reflect.TypeFor[operator.RevokeSpec](),
	reflect.TypeFor[operator.ExpiredLeaseFilter](), reflect.TypeFor[interop.GrantSpec](),
	reflect.TypeFor[interop.WorkerSpec](), reflect.TypeFor[interop.GrantedClaim](),
	reflect.TypeFor[interop.ResumedClaim](), reflect.TypeFor[interop.Reclaim](),
	reflect.TypeFor[interop.EligibleFilter](), reflect.TypeFor[engine.Config](),
	reflect.TypeFor[engine.ExecutionFilter](), reflect.TypeFor[engine.FlowFilter](),
	reflect.TypeFor[engine.CancelFlowSpec](), reflect.TypeFor[engine.FlowCancelRequest](),
	reflect.TypeFor[interop.AdmissionSpec](), reflect.TypeFor[budget.Spec](), reflect.TypeFor[budget.Usage](), reflect.TypeFor[budget.Spend](),
	reflect.TypeFor[budget.ReserveSpec](), reflect.TypeFor[budget.SettleSpec](),
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

// Every option of a caller has an effect, or is refused by name.
func TestOptionsActOrAreRefused(t *testing.T) {
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

// All policies that the reference stored are read: executions with such a policy are described, claimed and settled.
func TestStoredPoliciesOfTheReferenceAreRead(t *testing.T) {
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

func TestExecutionsTakeTheEnginesNamespace(t *testing.T) {
	f := fixture.New(t)
	f.Engine = f.EngineOn(t, f.Pool, engine.Config{Namespace: "tenant"})
	if got := f.Describe(t, f.Create(t)).Namespace; got != "tenant" {
		t.Errorf("namespace %q, want that of the engine", got)
	}
}

func TestKindIsRequired(t *testing.T) {
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
