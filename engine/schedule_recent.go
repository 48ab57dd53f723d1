package engine

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// MaxRecentTicks is the number of outcomes that a schedule keeps: see [Schedule.Recent].
const MaxRecentTicks = 10

// recentSize is the size of a stored outcome: two instants, a letter, a partition and an id. They stand in the row of the
// schedule, which each tick writes anyway: 350 bytes more, where a table of their own would take a statement and an index.
const recentSize = 8 + 8 + 1 + 2 + 16

// withRecent puts outcomes, the newest last, before stored ones.
func withRecent(stored []byte, nowMs int64, acts []tickAct) []byte {
	acts = acts[max(0, len(acts)-MaxRecentTicks):]
	recent := make([]byte, 0, MaxRecentTicks*recentSize)
	for _, act := range slices.Backward(acts) {
		recent = binary.BigEndian.AppendUint64(recent, uint64(act.tickMs))
		recent = binary.BigEndian.AppendUint64(recent, uint64(nowMs))
		recent = append(recent, act.outcome[0])
		recent = binary.BigEndian.AppendUint16(recent, uint16(act.execution.Partition()))
		uuid := act.execution.UUID()
		recent = append(recent, uuid[:]...)
	}
	return append(recent, stored[:min(len(stored), MaxRecentTicks*recentSize-len(recent))]...)
}

// recentOutcomes has the outcomes by their first letters.
var recentOutcomes = map[byte]TickOutcome{
	'c': TickCreated, 's': TickSkipped, 'q': TickQueued, 'm': TickMissed, 'f': TickFailed, 't': TickTriggered,
}

// recentFrom reads stored outcomes.
func recentFrom(stored []byte) ([]Tick, error) {
	var ticks []Tick
	for ; len(stored) >= recentSize; stored = stored[recentSize:] {
		outcome, known := recentOutcomes[stored[16]]
		if !known {
			return nil, fmt.Errorf("outcome %q", stored[16])
		}
		tick := Tick{
			ScheduledFor: time.UnixMilli(int64(binary.BigEndian.Uint64(stored))),
			At:           time.UnixMilli(int64(binary.BigEndian.Uint64(stored[8:]))),
			Outcome:      outcome,
		}
		if uuid := [16]byte(stored[19:recentSize]); uuid != [16]byte{} {
			tick.Execution = id.ExecutionIDFromRow(int16(binary.BigEndian.Uint16(stored[17:])), uuid)
		}
		ticks = append(ticks, tick)
	}
	if len(stored) > 0 {
		return nil, fmt.Errorf("%d bytes too many", len(stored))
	}
	return ticks, nil
}

// failedBefore reports whether the next tick of a schedule has failed already: it is tried again every minute.
func failedBefore(row *db.FfxSchedule) bool {
	return row.LastOutcome == tickFailed && core.Deref(row.LastTickMs) == core.Deref(row.TickMs)
}
