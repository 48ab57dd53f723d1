package system

import (
	"encoding/json"
	"fmt"
	"strings"
)

func instantOf(value any) string {
	ms, _ := value.(json.Number)
	n, _ := ms.Int64()
	return instant(n)
}

// waitOf renders a suspension.
func waitOf(stored map[string]any) string {
	if stored == nil {
		return ""
	}
	received, used := 0, len(stored["satisfied_set"].([]any))
	for _, signals := range stored["member_map"].(map[string]any) {
		received += len(signals.([]any))
	}
	text := "over"
	if since := stored["ffx_open_since_ms"]; since != nil {
		text = "open since " + instantOf(since)
	}
	if until := stored["timeout_at_ms"]; until != nil {
		text += " until " + instantOf(until)
	}
	return fmt.Sprintf("%s, %d received, %d used", text, received, used)
}

// waitpointsOf renders open waitpoints.
func waitpointsOf(stored []map[string]any) string {
	var points []string
	for _, point := range stored {
		text := fmt.Sprint(point["state"], " ", point["waitpoint_key"])
		if point["token"] != "" {
			text += ", signed"
		}
		if expires := point["expires_at_ms"]; expires != nil {
			text += ", until " + instantOf(expires)
		}
		if kept, ok := point["condition"].(map[string]any); ok {
			text += fmt.Sprintf(", %d kept", len(kept["buffered_signals"].([]any)))
		}
		points = append(points, text)
	}
	return strings.Join(points, "; ")
}

// signalsOf renders the events of signals.
func signalsOf(outbox []map[string]any) []string {
	var events []string
	for _, event := range outbox {
		events = append(events, fmt.Sprint("signal ", event["ffx_effect"], " at ", instantOf(event["delivered_at_ms"])))
	}
	return events
}
