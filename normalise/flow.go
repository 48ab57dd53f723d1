package normalise

import "github.com/flowfabric/flowfabric-go/state"

// EdgeState maps the edge_state of ff_edge.policy. Pass "" if it is missing.
func EdgeState(raw string) (state.EdgeState, error) {
	switch s := state.EdgeState(raw); s {
	case "":
		return state.EdgePending, nil
	case state.EdgePending, state.EdgeApplied, state.EdgeSatisfied, state.EdgeImpossible:
		return s, nil
	}
	return "", &UnknownLiteralError{Column: "edge_state", Literal: raw}
}

// EdgeGroupState maps the stored state of an edge group. An unknown state is pending.
func EdgeGroupState(raw string) state.EdgeGroupState {
	switch s := state.EdgeGroupState(raw); s {
	case state.EdgeGroupSatisfied, state.EdgeGroupImpossible, state.EdgeGroupCancelled:
		return s
	}
	return state.EdgeGroupPending
}

// FlowStatus maps public_flow_state of ff_flow_core and ff_flow_summary.
func FlowStatus(raw string) state.FlowStatus {
	switch state.FlowState(raw) {
	case state.FlowOpen, state.FlowRunning, state.FlowBlocked:
		return state.FlowStatusActive
	case state.FlowCompleted:
		return state.FlowStatusCompleted
	case state.FlowFailed:
		return state.FlowStatusFailed
	case state.FlowCancelled:
		return state.FlowStatusCancelled
	}
	return state.FlowStatusUnknown
}
