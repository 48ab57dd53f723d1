package engine

import (
	"encoding/json"

	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/policy"
)

// setPolicy checks the policy of an execution and sets its stored form.
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
		return core.InvalidBecause("Policy", err)
	}
	c.setDocument(string(text), &stored)
	return nil
}

// setStoredPolicy sets a policy in its stored form.
func (c *creation) setStoredPolicy(text string) error {
	stored, err := document.DecodeExecution([]byte(text))
	if err != nil {
		return core.InvalidBecause("Policy", err)
	}
	c.setDocument(text, &stored)
	return nil
}

// setDocument sets the document of a policy, and the separately stored columns.
func (c *creation) setDocument(text string, stored *document.Execution) {
	c.policy = text
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
}
