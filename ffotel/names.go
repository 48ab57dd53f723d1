package ffotel

import (
	"strings"

	"github.com/flowfabric/flowfabric-go/worker"
)

// scope is the name of the tracer and the meter.
const scope = "github.com/flowfabric/flowfabric-go/ffotel"

// TraceparentTag is the tag of an execution with its creator's W3C traceparent, set by [Instrument].
const TraceparentTag = "flowfabric.traceparent"

// Spans. The kind follows the name. Parts of runs are spans, too: their form and name are the span's.
const (
	spanCreate  = "create"
	spanProcess = "process"
)

// Span is a kind of span.
type Span struct {
	Name        string // as in "process {kind}"
	Description string
}

// Spans returns the spans, parents first.
func Spans() []Span {
	return []Span{
		{spanCreate + " {kind}", "executions of a kind are created by one call; ends before the transaction commits"},
		{spanProcess + " {kind}", "a handler runs"},
		{string(worker.PartStep) + " {name}", "a step does its work, with all retries in the run; a stored result has no span"},
		{string(worker.PartTurn) + " {name}", "a turn does its work and commits"},
		{string(worker.PartCall) + " {name}", "a handler creates the executions it calls, and again when it stores their results"},
		{string(worker.PartSignal) + " {name}", "a wait for signals begins, and again when it has ended"},
	}
}

// Attributes of spans. The messaging names come from OpenTelemetry's semantic conventions 1.37.
const (
	attrSystem        = "messaging.system"
	attrOperation     = "messaging.operation.name"
	attrOperationType = "messaging.operation.type"
	attrDestination   = "messaging.destination.name"
	attrMessage       = "messaging.message.id"
	attrConversation  = "messaging.message.conversation_id"
	attrClient        = "messaging.client.id"
	attrErrorType     = "error.type"

	attrKind       = "flowfabric.kind"
	attrAttempt    = "flowfabric.attempt"
	attrResumed    = "flowfabric.resumed"
	attrSettlement = "flowfabric.settlement"
	attrClass      = "flowfabric.class"
	attrCategory   = "flowfabric.category"
	attrRetryAt    = "flowfabric.retry_at"
	attrContinues  = "flowfabric.continues"
	attrLink       = "flowfabric.link"
)

// Values of attributes.
const (
	system = "flowfabric"

	errorTypeOther = "_OTHER"

	linkCreator  = "creator"
	linkPrevious = "previous_run"
	linkSender   = "sender"
	linkUpstream = "upstream"

	other = "other" // the labels of a metric with too many sets
)

// Labels of metrics.
const (
	labelLane       = "flowfabric.lane"
	labelKind       = "flowfabric.kind"
	labelSettlement = "flowfabric.settlement"
	labelClass      = "flowfabric.class"
	labelForm       = "flowfabric.form"
	labelOutcome    = "flowfabric.outcome"
	labelJob        = "flowfabric.job"
	labelLimit      = "flowfabric.limit"
	labelNamespace  = "flowfabric.namespace"
	labelDimension  = "flowfabric.dimension"
	labelConsumer   = "flowfabric.consumer"
)

// MaxLabelSets is the number of label sets of a metric in a process. Further sets are counted in one set, whose labels are
// all "other".
const MaxLabelSets = 500

// Instrument kinds.
const (
	Histogram = "histogram"
	Counter   = "counter"
	Gauge     = "gauge"
)

// Metric is a metric or [RunGauges].
type Metric struct {
	Name        string
	Instrument  string // [Histogram], [Counter] or [Gauge]
	Unit        string // UCUM
	Description string
	Labels      []string
}

// Prometheus returns the metric's name as Prometheus has it. For a histogram, the series add _bucket, _sum and _count.
func (m Metric) Prometheus() string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	if m.Unit == "s" {
		name += "_seconds"
	}
	if m.Unit == "1" && m.Instrument == Gauge {
		name += "_ratio"
	}
	if m.Instrument == Counter {
		name += "_total"
	}
	return name
}

// The metrics.
var (
	metricWait  = Metric{"flowfabric.wait.duration", Histogram, "s", "from the time an execution could be claimed to the start of its handler", []string{labelLane, labelKind}}
	metricRun   = Metric{"flowfabric.run.duration", Histogram, "s", "running time of a handler", []string{labelLane, labelKind, labelSettlement}}
	metricStep  = Metric{"flowfabric.step.duration", Histogram, "s", "running time of a step or turn", []string{labelLane, labelKind, labelForm}}
	metricClaim = Metric{"flowfabric.claim.duration", Histogram, "s", "duration of a claim", []string{labelLane, attrErrorType}}

	metricCreated    = Metric{"flowfabric.executions.created", Counter, "{execution}", "executions created", []string{labelLane, labelKind}}
	metricSettled    = Metric{"flowfabric.executions.settled", Counter, "{run}", "runs of handlers by their settlement and the class of their error", []string{labelLane, labelKind, labelSettlement, labelClass}}
	metricLeasesLost = Metric{"flowfabric.leases.lost", Counter, "{lease}", "leases that a worker no longer held when it renewed them", nil}
	metricSignals    = Metric{"flowfabric.signals", Counter, "{signal}", "delivered signals", []string{labelOutcome}}
	metricJobsFailed = Metric{"flowfabric.jobs.failed", Counter, "{call}", "failed calls of background jobs", []string{labelJob}}

	metricWaiting   = Metric{"flowfabric.executions.waiting", Gauge, "{execution}", "executions that can be claimed, counted up to 10,000", []string{labelLane}}
	metricOldest    = Metric{"flowfabric.executions.oldest", Gauge, "s", "how long the oldest waiting execution has waited", []string{labelLane}}
	metricActive    = Metric{"flowfabric.executions.active", Gauge, "{execution}", "executions with a lease, counted up to 10,000 in all lanes", []string{labelLane}}
	metricPaused    = Metric{"flowfabric.lanes.paused", Gauge, "{lane}", "1 for a paused lane, otherwise 0", []string{labelLane}}
	metricFree      = Metric{"flowfabric.places.free", Gauge, "{place}", "handlers that the registered workers could run beside those they run", nil}
	metricLimited   = Metric{"flowfabric.executions.limited", Gauge, "{execution}", "executions that wait for a budget or a limit, counted up to 10,000 in all lanes", []string{labelLane}}
	metricUnits     = Metric{"flowfabric.limit.units", Gauge, "{unit}", "units of a limit, for each key", []string{labelNamespace, labelLimit}}
	metricUsed      = Metric{"flowfabric.limit.used", Gauge, "{unit}", "units in use of the limit's fullest key, counted up to 10,000 in all limits", []string{labelNamespace, labelLimit}}
	metricQueued    = Metric{"flowfabric.limit.waiting", Gauge, "{execution}", "executions waiting for the limit, counted up to 10,000 in all limits", []string{labelNamespace, labelLimit}}
	metricBudget    = Metric{"flowfabric.budget.left", Gauge, "1", "what is left of the budget closest to its hard limit", []string{labelDimension}}
	metricUsedUp    = Metric{"flowfabric.budgets.exhausted", Gauge, "{budget}", "budgets that have reached a hard limit", []string{labelDimension}}
	metricLag       = Metric{"flowfabric.consumer.lag", Gauge, "{event}", "events that a consumer of events has not handled yet: an upper bound", []string{labelConsumer}}
	metricRetention = Metric{"flowfabric.retention.behind", Gauge, "s", "how long ago the most overdue execution should have been deleted", nil}
)

// Metrics returns the metrics of [RunGauges].
func Metrics() []Metric {
	return []Metric{
		metricWait, metricRun, metricStep, metricClaim,
		metricCreated, metricSettled, metricLeasesLost, metricSignals, metricJobsFailed,
		metricWaiting, metricOldest, metricActive, metricLimited, metricPaused, metricFree, metricUnits, metricUsed, metricQueued,
		metricBudget, metricUsedUp, metricLag, metricRetention,
	}
}
