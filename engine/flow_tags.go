package engine

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// SetFlowTag sets a tag of a flow, as [Engine.SetFlowTags] does.
func (e *Engine) SetFlowTag(ctx context.Context, flow id.FlowID, key, value string) error {
	return e.SetFlowTags(ctx, flow, map[string]string{key: value})
}

// SetFlowTags sets tags of a flow in any state: all or none. Other tags are kept, even if set concurrently. Without
// tags it only checks that the flow exists.
//
// Errors: [fferr.ErrInvalidInput] if a key has no namespace ("app.tenant"), or a value is above 64 KiB (1024 bytes for
// "cairn.instance_id"); [fferr.ErrNotFound]; [fferr.ErrContention] if the flow's row stays locked. Transaction: one;
// locks the flow's row. Safe to repeat.
func (e *Engine) SetFlowTags(ctx context.Context, flow id.FlowID, tags map[string]string) error {
	const op = "set flow tags"
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if err := id.CheckTagKey(key); err != nil {
			return core.Wrap(op, core.InvalidBecause("flow tag key", err))
		}
		if err := checkTagValue("flow tag", key, tags[key]); err != nil {
			return core.Wrap(op, err)
		}
	}
	if len(tags) == 0 {
		return core.Wrap(op, e.checkFlowExists(ctx, flow))
	}
	document, err := json.Marshal(tags)
	if err != nil {
		return core.Wrap(op, err)
	}
	n, err := core.InStatement(ctx, e.c, op, func(conn db.DBTX, _ *core.Notifications) (int64, error) {
		return e.c.Q.SetFlowTags(ctx, conn, db.SetFlowTagsParams{
			Tags: string(document), NowMs: e.c.NowMs(), PartitionKey: e.cfg.Partitions.FlowPartition(flow), FlowID: flow,
		})
	})
	if err == nil && n == 0 {
		err = core.Wrap(op, &fferr.NotFoundError{Entity: "flow", ID: flow.String()})
	}
	return err
}

// FlowTag returns the value of a tag. set is false for a missing tag.
//
// Errors: [fferr.ErrInvalidInput] if the key has no namespace; [fferr.ErrNotFound].
func (e *Engine) FlowTag(ctx context.Context, flow id.FlowID, key string) (value string, set bool, err error) {
	const op = "read flow tag"
	if err := id.CheckTagKey(key); err != nil {
		return "", false, core.Wrap(op, core.InvalidBecause("flow tag key", err))
	}
	row, err := e.c.Q.GetFlowTag(ctx, e.c.Reader(), db.GetFlowTagParams{
		TagKey: key, PartitionKey: e.cfg.Partitions.FlowPartition(flow), FlowID: flow,
	})
	switch {
	case core.IsNoRow(err):
		return "", false, core.Wrap(op, &fferr.NotFoundError{Entity: "flow", ID: flow.String()})
	case err != nil || !row.IsSet:
		return "", false, core.Wrap(op, err)
	}
	return row.TagValue, true, nil
}
