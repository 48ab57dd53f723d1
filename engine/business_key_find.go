package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// FindExecutionByKey returns the execution with a business key.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrNotFound], also if a flow has the key.
func (e *Engine) FindExecutionByKey(ctx context.Context, name, value string) (id.ExecutionID, error) {
	const op = "find execution by key"
	holder, found, err := e.findHolder(ctx, id.BusinessKey{Name: name, Value: value})
	if err == nil && (!found || holder.flow != nil) {
		err = &fferr.NotFoundError{Entity: "execution", ID: id.BusinessKey{Name: name, Value: value}.String()}
	}
	return holder.execution, core.Wrap(op, err)
}

// FindFlowByKey returns the flow with a business key. A key of a member is not a key of its flow.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrNotFound], also if an execution has the key.
func (e *Engine) FindFlowByKey(ctx context.Context, name, value string) (id.FlowID, error) {
	const op = "find flow by key"
	holder, found, err := e.findHolder(ctx, id.BusinessKey{Name: name, Value: value})
	if err == nil && (!found || holder.flow == nil) {
		err = &fferr.NotFoundError{Entity: "flow", ID: id.BusinessKey{Name: name, Value: value}.String()}
	}
	return core.Deref(holder.flow), core.Wrap(op, err)
}

func (e *Engine) findHolder(ctx context.Context, key id.BusinessKey) (keyHolder, bool, error) {
	if err := checkBusinessKey(key); err != nil {
		return keyHolder{}, false, err
	}
	holders, err := e.listHolders(ctx, e.c.Reader(), []id.BusinessKey{key})
	holder, found := holders[key]
	return holder, found, err
}
