package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/explain"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

func (a *app) executionCommand() *cobra.Command {
	cmd := group("execution", "List, show, find and change executions", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(
		a.executionListCommand(), a.executionShowCommand(), a.executionFindCommand(), a.executionCancelCommand(), a.executionRetryCommand(), a.executionForkCommand(),
		a.executionDeleteCommand(), a.executionMoveCommand(), a.executionDelayCommand(),
		a.executionPriorityCommand(), a.executionRevokeCommand(), a.executionBlockCommand(), a.executionUnblockCommand(),
		a.executionSignalCommand(), a.executionResumeCommand(),
	)
	return cmd
}

func (a *app) executionShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show an execution with its attempts, steps, payload and result",
		Long: `show prints an execution, its upstreams, its attempts with the errors of failed ones, and its finished
steps. It prints the last 20 attempts and steps, or all of them as JSON.`,
		Example: `  ff execution show 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10
  ff execution show $ID --json | jq '.attempt_list[].failure'`,
		Args: oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.onExecution(ctx, args[0], func(eng *engine.Engine, execution id.ExecutionID) error {
				return a.showExecution(ctx, eng, execution, asJSON)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// executionView is the JSON of `ff execution show`.
type executionView struct {
	ID             id.ExecutionID    `json:"id"`
	Flow           *id.FlowID        `json:"flow"`
	Node           string            `json:"node,omitempty"` // its key in the flow
	Lane           id.LaneID         `json:"lane"`
	Namespace      id.Namespace      `json:"namespace"`
	BusinessKey    id.BusinessKey    `json:"business_key,omitzero"`
	Unique         string            `json:"unique,omitempty"`
	Sequence       *placeView        `json:"sequence,omitempty"`
	Tenant         string            `json:"tenant,omitempty"`
	Weight         int               `json:"weight,omitempty"`
	LimitWait      *limitWaitView    `json:"limit_wait,omitempty"`
	Kind           string            `json:"kind"`
	Priority       int               `json:"priority"`
	Tags           map[string]string `json:"tags"`
	Capabilities   []string          `json:"required_capabilities"`
	State          state.PublicState `json:"state"`
	Vector         vectorView        `json:"state_vector"`
	BlockingDetail string            `json:"blocking_detail,omitempty"`
	Dependencies   string            `json:"dependencies,omitempty"` // upstreams still waited for
	Cancellation   string            `json:"cancellation_reason,omitempty"`
	CancelledBy    string            `json:"cancelled_by,omitempty"`
	Failure        string            `json:"failure_reason,omitempty"`

	CreatedAt      string `json:"created_at"`
	StartedAt      string `json:"started_at,omitempty"`
	EndedAt        string `json:"ended_at,omitempty"`
	LastMutationAt string `json:"last_mutation_at"`
	DelayUntil     string `json:"delay_until,omitempty"`
	Deadline       string `json:"deadline,omitempty"`

	Progress *progressView `json:"progress"` // null if none was reported

	Attempts     int        `json:"attempts"`
	Retries      int        `json:"retries"`
	LeasesLost   int        `json:"leases_lost"`
	AttemptIndex *int       `json:"attempt_index"` // of the current attempt; null before the first claim
	Lease        *leaseView `json:"lease"`
	Waitpoint    string     `json:"waitpoint,omitempty"` // the waitpoint of a suspended execution

	Wait *openWaitView `json:"wait"` // null unless suspended
	Why  []causeView   `json:"why"`  // the nearest cause first

	AttemptList []attemptView `json:"attempt_list"`
	Steps       []stepView    `json:"steps,omitempty"`

	Payload *content `json:"payload"`
	Result  *content `json:"result"`
}

type vectorView struct {
	Phase       state.LifecyclePhase   `json:"lifecycle_phase"`
	Ownership   state.OwnershipState   `json:"ownership_state"`
	Eligibility state.EligibilityState `json:"eligibility_state"`
	Attempt     state.AttemptState     `json:"attempt_state"`
	Blocking    state.BlockingReason   `json:"blocking_reason"`
	Outcome     state.TerminalOutcome  `json:"terminal_outcome"`
}

type leaseView struct {
	ID        id.LeaseID          `json:"id"`
	Epoch     int64               `json:"epoch"`
	Attempt   int                 `json:"attempt_index"`
	Instance  id.WorkerInstanceID `json:"worker_instance"`
	ExpiresAt string              `json:"expires_at"`
}

// content is a payload or a result: the bytes as JSON if they are JSON, otherwise in Base64.
type content struct {
	Bytes  int             `json:"bytes"`
	JSON   json.RawMessage `json:"json,omitempty"`
	Base64 []byte          `json:"base64,omitempty"`
}

func newContent(raw []byte) *content {
	switch {
	case raw == nil:
		return nil
	case json.Valid(raw):
		return &content{Bytes: len(raw), JSON: raw}
	}
	return &content{Bytes: len(raw), Base64: raw}
}

func readExecution(ctx context.Context, eng *engine.Engine, execution id.ExecutionID) (*executionView, error) {
	s, err := eng.DescribeExecution(ctx, execution)
	if err != nil {
		return nil, err
	}
	why, err := explain.Execution(ctx, eng, execution)
	if err != nil {
		return nil, err
	}
	input, err := eng.ExecutionInput(ctx, execution)
	if err != nil {
		return nil, err
	}
	progress, err := eng.ExecutionProgress(ctx, execution)
	if err != nil {
		return nil, err
	}
	attempts, err := readAttempts(ctx, eng, execution)
	if err != nil {
		return nil, err
	}
	steps, err := readSteps(ctx, eng, execution)
	if err != nil {
		return nil, err
	}
	result, err := eng.ExecutionResult(ctx, execution)
	if _, ended := errors.AsType[*fferr.EndedError](err); err != nil && !ended && !errors.Is(err, fferr.ErrNotEnded) {
		return nil, err
	}
	view := &executionView{
		ID:           s.ID,
		Flow:         s.Flow,
		Node:         s.Node,
		Lane:         s.Lane,
		Namespace:    s.Namespace,
		BusinessKey:  s.BusinessKey,
		Unique:       s.Unique,
		Sequence:     newPlaceView(s.Sequence),
		Tenant:       s.Fair.Tenant,
		Weight:       s.Fair.Weight,
		LimitWait:    newLimitWaitView(s.LimitWait),
		Kind:         s.Kind,
		Priority:     s.Priority,
		Tags:         orEmpty(s.Tags),
		Capabilities: append([]string{}, s.RequiredCapabilities...),
		State:        s.State.Public,
		Vector: vectorView{
			Phase:       s.State.Phase,
			Ownership:   s.State.Ownership,
			Eligibility: s.State.Eligibility,
			Attempt:     s.State.Attempt,
			Blocking:    s.State.Blocking,
			Outcome:     s.State.Outcome,
		},
		BlockingDetail: s.BlockingDetail,
		Cancellation:   s.CancellationReason,
		CancelledBy:    s.CancelledBy,
		Failure:        s.FailureReason,
		CreatedAt:      timestamp(s.CreatedAt),
		StartedAt:      timestamp(s.StartedAt),
		EndedAt:        timestamp(s.EndedAt),
		LastMutationAt: timestamp(s.LastMutationAt),
		DelayUntil:     timestamp(s.DelayUntil),
		Deadline:       timestamp(s.Deadline),
		Attempts:       s.Attempts,
		Retries:        s.Retries,
		LeasesLost:     s.LeasesLost,
		Progress:       newProgressView(progress),
		Waitpoint:      optional(s.Waitpoint),
		Wait:           newOpenWaitView(s.Wait),
		Why:            newWhyView(&why).Causes,
		AttemptList:    attempts,
		Steps:          steps,
		Payload:        newContent(input.Payload),
		Result:         newContent(result),
	}
	if s.State.Blocking == state.WaitingForChildren {
		eligibility, err := eng.Eligibility(ctx, execution)
		if err != nil && !errors.Is(err, fferr.ErrCorruption) {
			return nil, err
		}
		view.Dependencies = eligibility.Reason
	}
	if s.Attempt != nil {
		view.AttemptIndex = &s.Attempt.Index
	}
	if l := s.Lease; l != nil {
		view.Lease = &leaseView{
			ID: l.ID, Epoch: l.Epoch, Attempt: l.Attempt, Instance: l.Instance, ExpiresAt: timestamp(l.ExpiresAt),
		}
	}
	return view, nil
}

func (v *executionView) print(to io.Writer) error {
	facts := []fact{
		{"execution", v.ID.String()},
		{"flow", optional(v.Flow)},
		{"node", v.Node},
		{"kind", v.Kind},
		{"lane", string(v.Lane)},
		{"namespace", string(v.Namespace)},
		{"business key", v.BusinessKey.String()},
		{"unique", v.Unique},
		{"sequence", v.Sequence.String()},
		{"tenant", v.tenant()},
		{"priority", fmt.Sprint(v.Priority)},
		{"capabilities", strings.Join(v.Capabilities, ", ")},
		{"tags", tagList(v.Tags)},
		{"state", string(v.State)},
		{"waits for", v.waitsFor()},
		{"why", shortened(v.why(), 65)},
		{"limit", v.LimitWait.String()},
	}
	facts = append(facts, v.Wait.facts()...)
	facts = append(facts, []fact{
		{"waitpoint", v.Waitpoint},
		{"dependencies", v.Dependencies},
		{"detail", v.BlockingDetail},
		{"failure", v.Failure},
		{"cancelled by", v.CancelledBy},
		{"cancel reason", v.Cancellation},
		{"created", v.CreatedAt},
		{"started", v.StartedAt},
		{"ended", v.EndedAt},
		{"delayed until", v.DelayUntil},
		{"deadline", v.Deadline},
		{"attempts", fmt.Sprintf("%d, %d retries, %d leases lost", v.Attempts, v.Retries, v.LeasesLost)},
		{"held by", v.holder()},
		{"lease", v.Lease.String()},
		{"progress", v.Progress.String()},
		{"payload", v.Payload.String()},
		{"result", v.Result.String()},
	}...)
	_, err := io.WriteString(to, renderFacts(facts)+renderAttempts(v.AttemptList)+renderSteps(v.Steps))
	return err
}

// tenant is the tenant with its weight, as "acme, weight 3".
func (v *executionView) tenant() string {
	if v.Weight > 1 {
		return fmt.Sprintf("%s, weight %d", v.Tenant, v.Weight)
	}
	return v.Tenant
}

func (v *executionView) waitsFor() string {
	if v.Vector.Blocking == state.NotBlocked {
		return ""
	}
	return string(v.Vector.Blocking)
}

// why is the nearest cause, of an execution that has not ended.
func (v *executionView) why() string {
	if v.State.Terminal() || len(v.Why) == 0 {
		return ""
	}
	return v.Why[0].sentence()
}

func (v *executionView) holder() string {
	if v.Lease == nil {
		return ""
	}
	return string(v.Lease.Instance)
}

func (l *leaseView) String() string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf("until %s, epoch %d", l.ExpiresAt, l.Epoch)
}

// String returns short content in full; --json prints the rest.
func (c *content) String() string {
	const short = 200
	switch {
	case c == nil:
		return ""
	case c.JSON != nil && c.Bytes <= short:
		return string(c.JSON)
	}
	return fmt.Sprintf("%d bytes", c.Bytes)
}

func optional[T fmt.Stringer](value *T) string {
	if value == nil {
		return ""
	}
	return (*value).String()
}
