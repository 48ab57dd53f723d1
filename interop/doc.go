// Package interop has the operations of FlowFabric's own protocol, for schedulers and workers written for FlowFabric 0.15 on
// a converted database. Programs with this library's workers don't need the package. Each function takes the engine and is
// one transaction, or part of the caller's:
//
//	grant, err := interop.IssueClaimGrant(ctx, eng, interop.GrantSpec{…})
//
// A scheduler assigns work to workers: [EligibleExecutions] lists claimable executions, [IssueClaimGrant] and
// [ClaimForWorker] grant an execution, and [VerifyGrant] checks a grant's key. The worker claims by [ClaimExecution], or
// continues a suspended execution by [ClaimFromResumeGrant]. [IssueGrantAndClaim] grants and claims at once.
//
// Lost leases: [IssueReclaimGrant], and then [ReclaimExecution].
//
// Quota policies, FlowFabric's form of limits: [CreateQuotaPolicy], [GetQuotaPolicy], [SetQuotaPolicy] and
// [DeleteQuotaPolicy]. Executions name a policy in [engine.ExecutionSpec]. A program that admits work itself calls
// [CheckAdmission], and [ReleaseAdmission] afterwards.
//
// Edges of flows that are staged and applied later are methods of [engine.Engine]: StageEdges and ApplyEdges.
package interop
