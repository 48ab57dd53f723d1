package schedules

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// MaxRecent is the number of stored outcomes of a schedule.
const MaxRecent = 10

// recentSize is the size of a stored outcome: two instants, a letter, a partition and an id. Each tick writes
// the row of the schedule anyway. The outcomes are 350 bytes more, and a table would take a statement and an index.
const recentSize = 8 + 8 + 1 + 2 + 16

// WithRecent puts outcomes, the newest last, before stored ones.
func WithRecent(stored []byte, nowMs int64, acts []Act) []byte {
	acts = acts[max(0, len(acts)-MaxRecent):]
	recent := make([]byte, 0, MaxRecent*recentSize)
	for _, act := range slices.Backward(acts) {
		recent = binary.BigEndian.AppendUint64(recent, uint64(act.TickMs))
		recent = binary.BigEndian.AppendUint64(recent, uint64(nowMs))
		recent = append(recent, act.Outcome[0])
		recent = binary.BigEndian.AppendUint16(recent, uint16(act.Execution.Partition()))
		uuid := act.Execution.UUID()
		recent = append(recent, uuid[:]...)
	}
	return append(recent, stored[:min(len(stored), MaxRecent*recentSize-len(recent))]...)
}

// outcomes has the outcomes by their first letters.
var outcomes = map[byte]string{'c': Created, 's': Skipped, 'q': Queued, 'm': Missed, 'f': Failed, 't': Triggered}

// Recent is a stored outcome.
type Recent struct {
	Act
	AtMs int64
}

// ReadRecent reads stored outcomes, the newest first.
func ReadRecent(stored []byte) ([]Recent, error) {
	var recent []Recent
	for ; len(stored) >= recentSize; stored = stored[recentSize:] {
		outcome, known := outcomes[stored[16]]
		if !known {
			return nil, fmt.Errorf("outcome %q", stored[16])
		}
		r := Recent{Act{TickMs: int64(binary.BigEndian.Uint64(stored)), Outcome: outcome}, int64(binary.BigEndian.Uint64(stored[8:]))}
		if uuid := [16]byte(stored[19:recentSize]); uuid != [16]byte{} {
			r.Execution = id.ExecutionIDFromRow(int16(binary.BigEndian.Uint16(stored[17:])), uuid)
		}
		recent = append(recent, r)
	}
	if len(stored) > 0 {
		return nil, fmt.Errorf("%d bytes too many", len(stored))
	}
	return recent, nil
}

// FailedBefore reports whether the next tick of a schedule has failed already. A failed tick is tried again every minute.
func FailedBefore(row *db.FfxSchedule) bool {
	return row.LastOutcome == Failed && core.Deref(row.LastTickMs) == core.Deref(row.TickMs)
}
