package engine

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/policy"
)

// setPolicy checks the policy of an execution and sets its stored form: the document, and the columns that are read
// separately.
func (c *creation) setPolicy(p *policy.Execution) error {
	c.windowMs = policy.DefaultDedupWindow.Milliseconds()
	if p == nil {
		return nil
	}
	if err := p.Validate(); err != nil {
		return invalidPolicy("Policy", err)
	}
	stored := document.ExecutionOf(*p)
	text, err := json.Marshal(stored)
	if err != nil {
		return invalidBecause("Policy", err)
	}
	c.policy = string(text)
	if stored.Routing != nil {
		c.capabilities = stored.Routing.RequiredCapabilities.CSV()
	}
	if stored.DelayUntilMs != nil && c.delayUntilMs == 0 {
		c.delayUntilMs = *stored.DelayUntilMs
	}
	if stored.Timeout != nil && stored.Timeout.ExecutionDeadlineMs != nil {
		c.deadlineIn = int64(*stored.Timeout.ExecutionDeadlineMs)
	}
	if stored.RetentionMs != nil && *stored.RetentionMs > 0 {
		c.retentionMs = *stored.RetentionMs
	}
	if stored.DedupWindowMs != nil {
		c.windowMs = int64(*stored.DedupWindowMs)
	}
	return nil
}

// invalidPolicy names the invalid field of a policy, within the field that has the policy.
func invalidPolicy(field string, err error) error {
	if refused, ok := errors.AsType[*policy.FieldError](err); ok {
		return &InputError{Field: field + "." + refused.Field, Reason: refused.Problem, err: err}
	}
	return invalidBecause(field, err)
}

// groupOf checks the dependency policy of a node with fanIn inbound edges, and returns its document.
func groupOf(node *Node, fanIn int) (document.Group, error) {
	if fanIn > MaxInbound {
		return document.Group{}, invalid(fmt.Sprintf("node %q", node.Key), fmt.Sprintf("%d edges into it, limit %d", fanIn, MaxInbound))
	}
	field := fmt.Sprintf("node %q: When", node.Key)
	if err := node.When.Validate(); err != nil {
		return document.Group{}, invalidPolicy(field, err)
	}
	if k := node.When.Needs(fanIn); k > fanIn {
		return document.Group{}, invalid(field, fmt.Sprintf("a quorum of %d of %d", k, fanIn))
	}
	return document.GroupOf(node.When), nil
}
