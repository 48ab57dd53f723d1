package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/condition"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// Condition decides when a suspended execution continues. Make one with [Received], [AnySignal], [AllOf], [AnyOf],
// [AtLeast], [OperatorOnly] or [TimeoutOnly]. Signals arrive at waitpoints with keys. The key for a named signal is
// its name, unless [Condition.At] changes it.
type Condition struct{ node condition.Node }

// Distinct decides which signals [AtLeast] counts.
type Distinct = condition.Distinct

// The values of [Distinct].
const (
	DistinctSignals = condition.Signals // every signal counts
	DistinctSources = condition.Sources // signals of one source count once
)

// Received waits for one signal of a name.
func Received(name string) Condition {
	return Condition{condition.Node{Kind: condition.Single, Keys: []string{name}, Name: name}}
}

// AnySignal waits for one signal of any name at the waitpoint with the given key.
func AnySignal(key id.WaitpointKey) Condition {
	return Condition{condition.Node{Kind: condition.Single, Keys: []string{string(key)}}}
}

// AllOf waits until every member is satisfied.
func AllOf(members ...Condition) Condition { return composite(condition.AllOf, members) }

// AnyOf waits until one member is satisfied. The same transaction closes the waitpoints of the other members.
func AnyOf(members ...Condition) Condition { return composite(condition.AnyOf, members) }

// AtLeast waits for n distinct signals of a name: with [DistinctSources], for example, for two of three reviewers.
func AtLeast(n int, distinct Distinct, name string) Condition {
	return Condition{condition.Node{Kind: condition.Count, N: n, By: distinct, Keys: []string{name}, Name: name}}
}

// OperatorOnly waits for [Engine.Resume].
func OperatorOnly() Condition { return Condition{condition.Node{Kind: condition.OperatorOnly}} }

// TimeoutOnly waits for the timeout, which must be set.
func TimeoutOnly() Condition { return Condition{condition.Node{Kind: condition.TimeoutOnly}} }

// At lets signals arrive at waitpoints with other keys, such as the keys of Job.Waitpoint. [Received] and [AnySignal]
// take one key. [AtLeast] takes several; with [DistinctSources], each key then counts once.
func (c Condition) At(keys ...id.WaitpointKey) Condition {
	c.node.Keys = nil
	for _, key := range keys {
		c.node.Keys = append(c.node.Keys, string(key))
	}
	return c
}

// Where also requires a SQL/JSON path to hold for the payload, when the signal arrives. A path with a boolean result
// holds if the result is true: "$.amount > 100". Any other path holds if there is a result: "$.amount ? (@ > 100)". No
// path holds for a payload that is not JSON or makes the path fail. Variables are refused.
func (c Condition) Where(path string) Condition {
	c.node.Where = path
	return c
}

func composite(kind condition.Kind, members []Condition) Condition {
	node := condition.Node{Kind: kind}
	for _, member := range members {
		node.Members = append(node.Members, member.node)
	}
	return Condition{node}
}

// OnTimeout is the effect of a wait's timeout.
type OnTimeout string

// The effects. An end by timeout acts on dependents and the flow like any other end.
const (
	ResumeOnTimeout   OnTimeout = "auto_resume_with_timeout_signal" // the default: the attempt continues
	FailOnTimeout     OnTimeout = "fail"
	CancelOnTimeout   OnTimeout = "cancel"
	ExpireOnTimeout   OnTimeout = "expire"
	EscalateOnTimeout OnTimeout = "escalate" // the wait goes on, also for an operator, and is listed as escalated
)

// MaxAsked limits [SuspendSpec.Asked], in bytes.
const MaxAsked = 1024

const maxPointer = 1024

// SuspendSpec describes the wait of a leased execution.
type SuspendSpec struct {
	Lease     Lease
	Condition Condition // required, unless Call is set

	// Call names a step of this execution, instead of a condition: the wait lasts until all executions created by
	// [Engine.Call] in the step have ended.
	Call string

	// ID identifies the wait, so the call may be repeated after an unknown outcome. Default: a new one.
	ID id.SuspensionID

	// Timeout limits the wait, from the call on, in whole milliseconds. Default: the policy's, or none.
	Timeout time.Duration

	// OnTimeout is the effect of the timeout. Default [ResumeOnTimeout].
	OnTimeout OnTimeout

	// ResumeDelay is the time between the end of the wait and the attempt's next claim.
	ResumeDelay time.Duration

	// Reason is the blocking reason shown by reads. Default [state.WaitingForSignal].
	Reason state.BlockingReason

	// Asked is the question shown to people by [Engine.Waits], at most [MaxAsked] bytes.
	Asked string

	// Pointer is free text for the handler's own continuation, at most 1,024 bytes.
	Pointer string

	// Step names the step to store with the result of the wait, StepSeq its position: see [StepRecord]. Package worker
	// sets both.
	Step    string
	StepSeq int
}

// Suspended is the result of a suspension.
type Suspended struct {
	ID        id.SuspensionID
	Satisfied bool // by early signals: the execution did not suspend, and keeps its lease
}

// storedReasons maps reasons of waits to the stored codes of suspensions.
var storedReasons = map[state.BlockingReason]string{
	state.WaitingForSignal:     "waiting_for_signal",
	state.WaitingForApproval:   "waiting_for_approval",
	state.WaitingForCallback:   "waiting_for_callback",
	state.WaitingForToolResult: "waiting_for_tool_result",
	state.PausedByPolicy:       "paused_by_policy",
	state.PausedByOperator:     "manual_pause",
	state.WaitingForBudget:     "paused_by_budget",
}

// Validate checks the wait, except for the lease and the syntax of SQL/JSON paths.
//
// Errors: [fferr.ErrInvalidInput].
func (s *SuspendSpec) Validate() error {
	spec := *s
	return core.Wrap("suspend execution", cmp.Or(spec.waitForCall(), spec.check()))
}

// callPointer precedes the name of a call in the pointer of a wait, for ffx_resume_caller.
const callPointer = "ffx_call:"

// waitForCall fills in the condition of a wait for a call.
func (s *SuspendSpec) waitForCall() error {
	switch {
	case s.Call == "":
		return nil
	case s.Condition.node.Kind != "" || s.Pointer != "":
		return core.Invalid("call", "has no effect beside a condition or a pointer")
	}
	s.Condition, s.Pointer = OperatorOnly(), callPointer+s.Call
	if s.Asked == "" {
		s.Asked = "call " + s.Call
	}
	return nil
}

func (s *SuspendSpec) check() error {
	if err := s.Condition.node.Check(); err != nil {
		return core.Invalid("condition", err.Error())
	}
	switch s.OnTimeout {
	case "", ResumeOnTimeout, FailOnTimeout, CancelOnTimeout, ExpireOnTimeout, EscalateOnTimeout:
	default:
		return core.Invalid("on timeout", fmt.Sprintf("is %.40q, which is no effect of a timeout", string(s.OnTimeout)))
	}
	switch {
	case s.Timeout < 0:
		return core.Invalid("timeout", "is negative")
	case s.Timeout > 0 && s.Timeout < time.Millisecond:
		return core.Invalid("timeout", "is shorter than a millisecond")
	case s.Timeout == 0 && s.Condition.node.Kind == condition.TimeoutOnly:
		return core.Invalid("timeout", "is missing, and nothing else ends the wait")
	case s.ResumeDelay < 0:
		return core.Invalid("resume delay", "is negative")
	case s.Reason != "" && storedReasons[s.Reason] == "":
		return core.Invalid("reason", fmt.Sprintf("%s is no reason of a wait", s.Reason))
	}
	if s.Step != "" || s.StepSeq != 0 {
		if err := checkStepPlace(s.Step, s.StepSeq); err != nil {
			return err
		}
	}
	if err := core.CheckText("asked", s.Asked, MaxAsked); err != nil {
		return err
	}
	return core.CheckText("pointer", s.Pointer, maxPointer)
}

// storedSuspension is the document for ffx_suspend.
type storedSuspension struct {
	SuspensionID    id.SuspensionID   `json:"suspension_id"`
	Condition       condition.Node    `json:"condition"`
	Waitpoints      []storedWaitpoint `json:"waitpoints"`
	TimeoutAtMs     *int64            `json:"timeout_at_ms"`
	TimeoutBehavior *OnTimeout        `json:"timeout_behavior"`
	ResumeDelayMs   int64             `json:"resume_delay_ms,omitempty"`
	Reason          string            `json:"reason"`
	BlockingReason  string            `json:"blocking_reason"`
	RequestedBy     string            `json:"requested_by"`
	Asked           string            `json:"asked,omitempty"`
	Pointer         string            `json:"pointer,omitempty"`
	Trace           string            `json:"trace,omitempty"`
	Step            *storedPlace      `json:"step,omitempty"`
}

// storedPlace is the step that stores the result of a wait.
type storedPlace struct {
	Name string `json:"name"`
	Seq  int    `json:"seq"`
}

type storedWaitpoint struct {
	ID    id.WaitpointID `json:"id"` // if new
	Key   string         `json:"key"`
	Names []string       `json:"names"`
}

// document renders the suspension, beginning at an instant.
func (s *SuspendSpec) document(nowMs int64, policyDocument []byte) (string, error) {
	stored := storedSuspension{
		SuspensionID: s.ID, Condition: s.Condition.node, ResumeDelayMs: s.ResumeDelay.Milliseconds(),
		RequestedBy: "worker", Asked: s.Asked, Pointer: s.Pointer, Trace: core.Trace(s.Lease.Trace), Waitpoints: []storedWaitpoint{},
	}
	if s.Step != "" {
		stored.Step = &storedPlace{s.Step, s.StepSeq}
	}
	reason := s.Reason
	if reason == "" {
		reason = state.WaitingForSignal
	}
	stored.Reason, stored.BlockingReason = storedReasons[reason], string(reason)
	for _, point := range s.Condition.node.Waitpoints() {
		stored.Waitpoints = append(stored.Waitpoints, storedWaitpoint{ID: id.NewWaitpointID(), Key: point.Key, Names: point.Names})
	}
	timeoutMs, effect := s.Timeout.Milliseconds(), s.OnTimeout
	if timeoutMs == 0 {
		timeoutMs, effect = policyTimeout(policyDocument, effect)
	}
	if effect == "" {
		effect = ResumeOnTimeout
	}
	if timeoutMs > 0 {
		at := core.AddTTL(nowMs, timeoutMs)
		stored.TimeoutAtMs, stored.TimeoutBehavior = &at, &effect
	}
	text, err := json.Marshal(stored)
	return string(text), err
}

// policyTimeout returns the timeout of a stored policy, 0 for none, and its effect unless the caller chose one. It is
// lenient, because other programs store some policies.
func policyTimeout(policyDocument []byte, chosen OnTimeout) (int64, OnTimeout) {
	var stored struct {
		Suspension struct {
			TimeoutMs int64     `json:"default_timeout_ms"`
			OnTimeout OnTimeout `json:"timeout_behavior"`
		} `json:"suspension_policy"`
	}
	if len(policyDocument) == 0 || json.Unmarshal(policyDocument, &stored) != nil || stored.Suspension.TimeoutMs <= 0 {
		return 0, chosen
	}
	if chosen == "" {
		chosen = FailOnTimeout
		if stored.Suspension.OnTimeout == CancelOnTimeout {
			chosen = CancelOnTimeout
		}
	}
	return stored.Suspension.TimeoutMs, chosen
}

// WaitpointKeys returns the keys of the condition's waitpoints.
func (c Condition) WaitpointKeys() []id.WaitpointKey {
	var keys []id.WaitpointKey
	for _, point := range c.node.Waitpoints() {
		keys = append(keys, id.WaitpointKey(point.Key))
	}
	return keys
}

// Renamed returns the condition with renamed waitpoint keys. Package worker numbers the keys of repeated waits.
func (c Condition) Renamed(rename func(key id.WaitpointKey) id.WaitpointKey) Condition {
	c.node = c.node.Renamed(func(key string) string { return string(rename(id.WaitpointKey(key))) })
	return c
}

// Ends reports whether a timeout ends the execution.
func (t OnTimeout) Ends() bool {
	return t == FailOnTimeout || t == ExpireOnTimeout || t == CancelOnTimeout
}
