package budget

import (
	"context"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/budgets"
)

// A report whose context has ended is not counted, even if its caller has not run since.
func TestReportsOfCallersThatStopWaitingAreNotTaken(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	stays := &usageItem{waiting: usageWaiting{ctx: t.Context()}}
	queue := &usageQueue{count: budgets.NewWaiting(), waiting: []*usageItem{{waiting: usageWaiting{ctx: gone}}, stays}}
	m := usageMemory{queues: map[usagePlace]*usageQueue{{}: queue}}
	cancel()
	if got := m.take(usagePlace{}, queue); len(got) != 1 || got[0] != stays {
		t.Errorf("took %d reports", len(got))
	}
	if got := m.take(usagePlace{}, queue); got != nil || len(m.queues) > 0 {
		t.Errorf("took %d more, kept %d queues", len(got), len(m.queues))
	}
}
