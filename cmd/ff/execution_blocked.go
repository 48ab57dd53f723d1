package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
)

// blockedView is a blocked execution in the JSON of `ff execution list --blocked`.
type blockedView struct {
	ID           id.ExecutionID       `json:"id"`
	Lane         id.LaneID            `json:"lane"`
	Kind         string               `json:"kind"`
	Reason       state.BlockingReason `json:"blocking_reason"`
	Detail       string               `json:"blocking_detail,omitempty"`
	Since        string               `json:"since"`
	Capabilities []string             `json:"required_capabilities"`
}

// listBlocked prints the executions blocked by an operator, for want of a capable worker, or with their lane.
func (a *app) listBlocked(ctx context.Context, eng *engine.Engine, f *listFlags) error {
	views := []blockedView{}
	for b, err := range operator.BlockedExecutions(ctx, eng, operator.BlockedFilter{Lane: id.LaneID(f.lane)}) {
		if err != nil {
			return asUsage(err)
		}
		if f.kind != "" && b.Kind != f.kind {
			continue
		}
		views = append(views, blockedView{
			ID: b.ID, Lane: b.Lane, Kind: b.Kind, Reason: b.Reason, Detail: b.Detail, Since: timestamp(b.Since),
			Capabilities: append([]string{}, b.Capabilities...),
		})
		if f.limit > 0 && len(views) == f.limit {
			break
		}
	}
	if f.asJSON {
		return a.writeJSON(map[string][]blockedView{"executions": views})
	}
	return printBlocked(a.stdout, views)
}

func printBlocked(to io.Writer, views []blockedView) error {
	if len(views) == 0 {
		_, err := io.WriteString(to, "No execution is blocked.\n")
		return err
	}
	t := newTable(table.Row{"ID", "LANE", "KIND", "SINCE", "REASON"})
	for _, v := range views {
		reason := string(v.Reason)
		if v.Detail != "" {
			reason = v.Detail
		}
		t.AppendRow(table.Row{
			v.ID.Short(), shortened(printable(string(v.Lane)), 20), shortened(printable(v.Kind), 20), v.Since, shortened(printable(reason), 60),
		})
	}
	_, err := fmt.Fprintln(to, t.Render())
	return err
}
