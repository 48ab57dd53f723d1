package main

import (
	"fmt"
	"strings"
)

// rule is an alert. Its expression has the metrics' names in braces.
type rule struct {
	name, expr, lasts, severity, summary, action string
}

var rules = []rule{
	{
		"FlowFabricLaneStalls", "max by (flowfabric_lane) ({flowfabric.executions.oldest}) > 600 unless max by (flowfabric_lane) ({flowfabric.lanes.paused}) > 0", "5m", "warning",
		"Lane {{ $labels.flowfabric_lane }} has executions that have waited for {{ $value | humanizeDuration }}.",
		"Ask `ff why ID` for one of them: ff execution list --lane {{ $labels.flowfabric_lane }}.",
	},
	{
		"FlowFabricExecutionsFail", `sum by (flowfabric_lane, flowfabric_kind) (increase({flowfabric.executions.settled}{flowfabric_settlement="failed"}[10m])) > 0`, "1m", "warning",
		"Executions of kind {{ $labels.flowfabric_kind }} failed for good.",
		"Read the errors with ff execution list --state failed, then replay them with ff execution retry.",
	},
	{
		"FlowFabricNoPlaces", "max({flowfabric.places.free}) == 0 and sum({flowfabric.executions.waiting}) > 0", "15m", "warning",
		"All places of the workers have been taken for 15 minutes, and executions wait.",
		"Start more workers, or raise worker.Config.Concurrency.",
	},
	{
		"FlowFabricLeasesLost", "sum(increase({flowfabric.leases.lost}[10m])) > 10", "5m", "warning",
		"Workers lose leases: {{ $value }} in ten minutes.",
		"Look for workers without processor time, and for a database that answers slowly.",
	},
	{
		"FlowFabricClaimsSlow", "histogram_quantile(0.99, sum by (le) (rate({flowfabric.claim.duration}_bucket[10m]))) > 1", "10m", "warning",
		"One claim in a hundred takes more than a second.",
		"Look at the load of the database, and for long transactions, which keep dead rows.",
	},
	{
		"FlowFabricJobsFail", "sum by (flowfabric_job) (increase({flowfabric.jobs.failed}[10m])) > 3", "5m", "warning",
		"The background job {{ $labels.flowfabric_job }} fails.",
		"ff job list prints its error.",
	},
	{
		"FlowFabricGaugesMissing", "absent({flowfabric.places.free})", "10m", "critical",
		"No process reports the gauges: no instrumented worker runs, or none reaches the database.",
		"Look at the workers' logs, and ask ff worker list.",
	},
	{
		"FlowFabricConsumerLags", "max by (flowfabric_consumer) ({flowfabric.consumer.lag}) > 100000", "15m", "warning",
		"The consumer {{ $labels.flowfabric_consumer }} is {{ $value }} events behind.",
		"ff consumer list says whether its handler fails.",
	},
	{
		"FlowFabricRetentionBehind", "max({flowfabric.retention.behind}) > 3600", "15m", "warning",
		"Ended executions are deleted {{ $value | humanizeDuration }} late, so the tables grow.",
		"Ask ff retention show and ff job list.",
	},
	{
		"FlowFabricBudgetExhausted", "max by (flowfabric_dimension) ({flowfabric.budgets.exhausted}) > 0", "1m", "info",
		"{{ $value }} budgets of {{ $labels.flowfabric_dimension }} are used up, and their executions wait.",
		"ff budget list has their use and next reset.",
	},
}

// Alerts returns the rules for Prometheus.
func Alerts() []byte {
	var text strings.Builder
	text.WriteString("# Alert rules for FlowFabric, written by go generate. Change the thresholds to yours.\ngroups:\n  - name: flowfabric\n    rules:\n")
	for _, r := range rules {
		fmt.Fprintf(&text, "      - alert: %s\n        expr: %q\n        for: %s\n        labels:\n          severity: %s\n        annotations:\n          summary: %q\n          description: %q\n",
			r.name, expression(r.expr), r.lasts, r.severity, r.summary, r.action)
	}
	return []byte(text.String())
}
