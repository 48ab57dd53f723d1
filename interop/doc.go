// Package interop has the operations of FlowFabric's own protocol, for schedulers and workers that were written for FlowFabric 0.15
// and share a database that was converted. Programs that use this library's workers need none of them. Each function takes the
// engine and is one transaction, or part of the caller's:
//
//	grant, err := interop.IssueClaimGrant(ctx, eng, interop.GrantSpec{…})
//
// A scheduler that decides which worker runs what: [EligibleExecutions] lists what can be claimed, [IssueClaimGrant] and
// [ClaimForWorker] grant it, and [VerifyGrant] checks a grant's key. The worker claims by [ClaimExecution], or continues a
// suspended execution by [ClaimFromResumeGrant]. [IssueGrantAndClaim] does both at once.
//
// Lost leases: [IssueReclaimGrant], and then [ReclaimExecution].
//
// Quota policies, FlowFabric's form of limits: [CreateQuotaPolicy], [GetQuotaPolicy], [SetQuotaPolicy] and [DeleteQuotaPolicy].
// Executions name one in [engine.ExecutionSpec]. A program that admits work by itself asks [CheckAdmission], and gives the place
// back by [ReleaseAdmission].
//
// Edges of flows that are staged and applied later are methods of [engine.Engine]: StageEdges and ApplyEdges.
package interop
