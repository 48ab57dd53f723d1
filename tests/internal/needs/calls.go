// Package needs derives the rights of internal/rights from the statements: the queries each call of the library leads
// to, and the objects of the schema each query reads and writes, with the triggers and functions behind them.
package needs

// Capabilities lists the packages above engine whose functions take an engine.
var Capabilities = []string{"explain", "budget", "limit", "schedule", "stream", "operator", "interop"}

// Calls has the roles each call belongs to. A role has the rights of its calls and of a reader. Calls of packages other
// than engine carry the package's name.
var Calls = map[string][]string{
	// NeedNothing are calls without a statement on a table.
	"": {
		"Claimer.Halted", "Claimer.Wake",
		"Engine.Flush", "Engine.InTx", "Engine.Listen", "Engine.ListenLost",
		"Engine.NewClaimer", "Engine.NewExecutionID", "Engine.NodeID", "Engine.Pool",
		"Engine.Wake", "Engine.WithPool", "Engine.WithTx",
		"Upkeep.AdmissionsWait", "Upkeep.CallEnded", "Upkeep.Delayed", "Upkeep.Gated", "Upkeep.NextAdmission", "Upkeep.NextSchedule", "Upkeep.OverBudget",
		"Upkeep.OnEnded", "Upkeep.OnGated", "Upkeep.OnRescheduled", "Upkeep.Rescheduled", "Upkeep.TicksWait",
		"Upkeep.SequenceEnded", "Upkeep.Undispatched", "Upkeep.Unneeded",
		"events.Completions", "events.InstanceTags", "events.Leases", "events.LostLeases", "events.OperatorCalls", "events.ParseCursor", "events.Signals", "events.Stats", "schedule.Of",
		"operator.ReplayCompleted", "operator.ReplayFromStep", "operator.ReplayWithoutSteps",
		"stream.Check", "stream.ParsePosition",
	},
	"reader": {
		"Engine.Attempts", "Engine.AwaitExecution", "Engine.AwaitFlow", "Engine.DescribeEdge", "Engine.DescribeExecution", "Engine.DescribeFlow",
		"Engine.EdgesFrom", "Engine.EdgesInto", "Engine.Eligibility", "Engine.ExecutionFlow", "Engine.ExecutionInput", "Engine.ExecutionProgress",
		"Engine.ExecutionResult", "Engine.ExecutionState", "Engine.ExecutionTag", "Engine.Executions", "Engine.FindExecution", "Engine.FindExecutionByKey", "Engine.FindFlowByKey", "Engine.FlowEdges",
		"Engine.FlowGraph", "Engine.ReceivedSignals", "Engine.StepResults", "Engine.CalledResults", "Engine.Steps", "Engine.Waits", "Engine.ListWaits", "Engine.FlowMembers", "Engine.FlowProgress", "Engine.FlowTag", "Engine.Flows", "Engine.Lanes", "Engine.ListAttempts",
		"Engine.ListExecutions", "Engine.ListFlows", "Engine.ListLanes", "Engine.ListWorkers", "Engine.Now",
		"Engine.Prepare", "Engine.QueuedLanes", "interop.GetQuotaPolicy", "Engine.Roles", "Engine.UpstreamResults", "Engine.WaitingKinds", "Engine.Workers",
		"interop.EligibleExecutions",
		"operator.BlockedExecutions", "operator.DrainedWorkers", "operator.ExpiredLeases",
		"operator.Database", "operator.Jobs", "operator.ListLog", "operator.Log", "operator.PausedLanes", "operator.Retention",
		"limit.Describe", "limit.InUse", "limit.Keys", "limit.All",
		"schedule.Describe", "schedule.All",
		"Engine.DescribeSequence", "Engine.ListSequenceMembers", "Engine.SequenceMembers", "Engine.Sequences",
		"explain.Codes", "explain.Execution", "explain.Lanes",
		"budget.All", "budget.Get",
		"events.Consumers", "events.SetAside", "events.Subscribe",
		"stream.Count", "stream.Handler", "stream.Read", "stream.ReadSummary", "stream.Tail",
	},
	"creator": {
		"Engine.AddMembers", "Engine.ApplyEdges", "Engine.CancelExecution", "Engine.CancelExecutions", "Engine.CancelFlow",
		"budget.Create", "budget.RecordSpend", "budget.Release",
		"Engine.CreateExecution", "Engine.CreateExecutions", "Engine.CreateFlow", "Engine.GrowFlow", "Engine.LockFlows",
		"Engine.RequestFlowCancel", "Engine.SetExecutionTag", "Engine.SetFlowTag", "Engine.SetFlowTags", "Engine.SetGroupPolicy",
		"Engine.Resume", "Engine.Signal", "Engine.SignalEach", "Engine.StageEdges",
		"schedule.Backfill", "schedule.Declare", "schedule.Delete", "schedule.Pause",
		"schedule.Resume", "schedule.Put", "schedule.Trigger",
	},
	"worker": {
		"Claimer.Claim", "Claimer.CompleteAndClaim",
		"Engine.AckFlowCancel", "interop.CheckAdmission", "Engine.Claim", "Engine.ClaimEach", "Engine.CompleteExecution", "Engine.CompleteExecutions",
		"Engine.DelayExecution", "Engine.DelayExecutions", "Engine.FailExecution", "Engine.FailExecutions", "Engine.LockFlows",
		"Engine.CloseWaitpoint", "Engine.CreateWaitpoint", "Engine.ListWaitpoints", "Engine.SignalWaitpoint", "Engine.Suspend", "Engine.SuspendEach",
		"Engine.VerifyWaitpoint", "Engine.RegisterWorker", "Engine.HeartbeatWorker", "Engine.MarkWorkerDead",
		"interop.ReleaseAdmission", "Engine.ReleaseLeases", "Engine.RenewLease", "Engine.RenewLeases", "Engine.RecordStep", "Engine.RecordSteps", "Engine.InStep", "Engine.Call", "Engine.ReportProgress", "Engine.SetExecutionTag", "Engine.TakeSignal",
		"Engine.WaitForChildren", "Engine.WaitForChildrenEach",
		"interop.ClaimExecution", "interop.ClaimForWorker", "interop.ClaimFromResumeGrant", "interop.IssueClaimGrant",
		"interop.IssueGrantAndClaim", "interop.IssueReclaimGrant", "interop.ReclaimExecution", "interop.VerifyGrant",
		"Upkeep.AdmitWaiting", "Upkeep.AdvanceSequences", "Upkeep.CancelFlows", "Upkeep.CancelOverBudget", "Upkeep.CancelSiblings", "Upkeep.DispatchCompletions",
		"Upkeep.ExpireAttempts", "Upkeep.ExpireWaitpoints", "Upkeep.ExpireWaits", "Upkeep.ExpireDeadlines", "Upkeep.ExpireGrants", "Upkeep.ExpireLeases", "Upkeep.ForgetFairPlaces", "Upkeep.ForgetLimitKeys",
		"Upkeep.PromoteDelayed", "Upkeep.PruneCreationKeys", "Upkeep.PruneUsageKeys", "Upkeep.PurgeFlows", "Upkeep.ReleaseReservations", "Upkeep.RepairGroups", "Upkeep.ResetBudgets",
		"Upkeep.RepairQueue", "Upkeep.ResumeCallers", "Upkeep.Retain", "Upkeep.ReturnJobs", "Upkeep.RunSchedules", "Upkeep.SummariseFlows", "Upkeep.SweepWaits", "Upkeep.TakeJobs",
		"Upkeep.TrimOutboxes", "Upkeep.UnblockRoutes", "Upkeep.SweepWorkers", "Upkeep.PruneWorkerEvents",
		"budget.RecordSpend", "budget.Report", "budget.Reserve", "budget.Settle", "limit.Hold",
		"events.Handle", "events.HandleBatches", "events.HandleWith",
		"stream.Append", "stream.AppendBatch", "stream.AppendEach",
	},
	"operator": {
		"Engine.ListWaitpoints", "Engine.Resume", "Engine.Signal", "Engine.SignalEach",
		"Engine.CancelExecution", "Engine.CancelExecutions", "Engine.CancelFlow", "Engine.RequestFlowCancel",
		"budget.Create", "budget.Delete", "budget.Release", "budget.Report", "budget.Reset", "budget.Set",
		"interop.CreateQuotaPolicy", "interop.ReleaseAdmission", "limit.Declare", "limit.Hold", "limit.Reset", "limit.Set", "limit.Delete", "interop.SetQuotaPolicy", "interop.DeleteQuotaPolicy",
		"Engine.SetExecutionTag", "Engine.SetFlowTag", "Engine.SetFlowTags", "Engine.MarkWorkerDead",
		"operator.Block", "operator.CancelWhere", "operator.Prioritize", "operator.ContinueSequence", "operator.Delay", "operator.DeleteWhere", "operator.DrainWorker", "operator.DrainWorkers", "operator.Fork", "operator.KeepLeaseEvents", "operator.Keys",
		"operator.Move", "operator.MoveWhere", "operator.PauseLane", "operator.PrioritizeWhere", "operator.RecordAction", "operator.Replay", "operator.ReplayWhere", "operator.ResumeLane", "operator.ResumeWorker", "operator.ResumeWorkers", "operator.Revoke",
		"operator.ReissueToken", "operator.RotateKey", "operator.SeedKey", "operator.SetLaneRetention",
		"schedule.Backfill", "schedule.Declare", "schedule.Delete", "schedule.Pause",
		"schedule.Resume", "schedule.Put", "schedule.Trigger",
		"operator.Unblock", "operator.WaitpointToken",
		"events.ForgetSetAside", "events.MoveConsumer", "events.RemoveConsumer", "events.RetrySetAside",
	},
}
