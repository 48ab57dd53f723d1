package engine

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// ReceivedSignal is a signal received by an execution for one of its waits.
type ReceivedSignal struct {
	ID            id.SignalID
	Name          string
	Key           id.WaitpointKey // of the waitpoint
	Payload       []byte
	Source        string
	SourceType    string
	Category      string
	CorrelationID string
	At            time.Time
	Trace         string // trace context of the sender, a W3C traceparent
	Matched       bool   // helped to satisfy the condition of a wait

	place    int64    // in the order of arrival; 0 if another program stored the signal
	timedOut []string // of a timeout: the keys of the wait
}

// storedSignal is the stored form of a signal. Only ids and names are required.
type storedSignal struct {
	ID            string   `json:"signal_id"`
	Name          string   `json:"signal_name"`
	Category      string   `json:"signal_category"`
	SourceType    string   `json:"source_type"`
	Source        string   `json:"source_identity"`
	CorrelationID string   `json:"correlation_id"`
	AcceptedAt    int64    `json:"accepted_at"`
	PayloadHex    *string  `json:"payload_hex"`
	Trace         string   `json:"ffx_trace,omitempty"`
	Place         int64    `json:"ffx_place,omitempty"`
	Keys          []string `json:"ffx_keys,omitempty"`
}

// stored returns the stored form of the signal.
func (s ReceivedSignal) stored() storedSignal {
	stored := storedSignal{
		ID: s.ID.String(), Name: s.Name, Category: s.Category, SourceType: s.SourceType, Source: s.Source,
		CorrelationID: s.CorrelationID, AcceptedAt: s.At.UnixMilli(), Trace: s.Trace,
	}
	if s.Payload != nil {
		payload := hex.EncodeToString(s.Payload)
		stored.PayloadHex = &payload
	}
	return stored
}

// ReceivedSignals returns the signals received for the latest wait of an execution, and unused signals of earlier
// waits, in order of arrival; a timeout comes last. The result stays the same until the next wait begins.
// [Step.Signals] returns the signals of earlier waits and of turns. [Engine.ListWaitpoints] counts the signals kept
// for a later wait.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrCorruption]. An unknown execution has none.
func (e *Engine) ReceivedSignals(ctx context.Context, x id.ExecutionID) ([]ReceivedSignal, error) {
	const op = "read received signals"
	if err := e.c.CheckExecution(x); err != nil {
		return nil, core.Wrap(op, err)
	}
	row, err := e.c.Q.GetSuspension(ctx, e.c.Reader(), db.GetSuspensionParams{PartitionKey: x.Partition(), ExecutionID: x.UUID()})
	switch {
	case core.IsNoRow(err):
		return nil, nil
	case err != nil:
		return nil, core.Wrap(op, err)
	}
	var satisfied []string
	if err := json.Unmarshal(row.SatisfiedSet, &satisfied); err != nil {
		return nil, core.Wrap(op, core.Corrupt("ff_suspension_current.satisfied_set", err))
	}
	signals, err := readSignals(row.MemberMap, func(signal string) bool { return slices.Contains(satisfied, signal) })
	if err != nil {
		return nil, core.Wrap(op, core.Corrupt("ff_suspension_current.member_map", err))
	}
	return signals, nil
}

// readSignals decodes stored signals by waitpoint key. It skips signals without an id or a name.
func readSignals(document []byte, matched func(signal string) bool) ([]ReceivedSignal, error) {
	var stored map[string][]storedSignal
	if err := json.Unmarshal(document, &stored); err != nil {
		return nil, err
	}
	var signals []ReceivedSignal
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		for _, s := range stored[key] {
			signal, err := id.ParseSignalID(s.ID)
			if err != nil || s.Name == "" {
				continue
			}
			received := ReceivedSignal{
				ID: signal, Name: s.Name, Key: id.WaitpointKey(key), Source: s.Source, SourceType: s.SourceType, Category: s.Category,
				CorrelationID: s.CorrelationID, At: time.UnixMilli(s.AcceptedAt), Matched: matched(s.ID), Trace: s.Trace,
				place: s.Place, timedOut: s.Keys,
			}
			if key == core.TimeoutKey {
				received.place = math.MaxInt64 // nothing arrives later
			}
			if s.PayloadHex != nil {
				received.Payload, _ = hex.DecodeString(*s.PayloadHex)
			}
			signals = append(signals, received)
		}
	}
	// By place, because a clock may have been set back in between. Signals of one waitpoint are stored in order of
	// arrival.
	slices.SortStableFunc(signals, func(a, b ReceivedSignal) int {
		return cmp.Or(cmp.Compare(a.place, b.place), a.At.Compare(b.At))
	})
	return signals, nil
}

// TimedOut reports whether the signal is the timeout of a wait at one of the waitpoints.
func (s ReceivedSignal) TimedOut(keys []id.WaitpointKey) bool {
	return slices.ContainsFunc(keys, func(key id.WaitpointKey) bool { return slices.Contains(s.timedOut, string(key)) })
}
