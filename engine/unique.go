package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Limits of [Unique].
const (
	MaxUniqueFields = 16          // fields
	MaxUniqueField  = 255         // bytes of a field's name
	MinUniquePeriod = time.Second // the shortest period
)

// Unique makes work unique: while one execution has a key, a creation with the same key makes no second execution. The
// key always has the namespace and the kind. The zero value allows one unfinished execution of the kind.
//
// Uniqueness holds across processes. Members of flows, called executions and executions of schedules can't be unique.
type Unique struct {
	// ByArgs adds the payload to the key: as JSON, in any order of names, spacing or form of numbers; by its bytes if
	// not JSON.
	ByArgs bool

	// Fields adds only these fields of a JSON payload, in any order. Each must be present. At most [MaxUniqueFields]
	// names of [MaxUniqueField] bytes.
	Fields []string

	ByLane bool // adds the lane to the key

	// Period adds the period of the due time to the key. Periods count from the Unix epoch, in UTC. The due time is
	// [ExecutionSpec.DelayUntil], or the database's present time. Whole milliseconds, at least [MinUniquePeriod].
	// Default 0: all times.
	Period time.Duration

	// While is how long an execution has its key. Default [WhileUnfinished], with ReplaceWaiting [WhileWaiting].
	While UniqueWhile

	// IfTaken decides about a creation while an execution has its key. Default [KeepExisting].
	IfTaken UniquePolicy

	// Within limits the due time of a waiting execution under repeated creations: at most this long after its
	// creation. Whole milliseconds; only with [ReplaceWaiting]. Default 0: no limit.
	Within time.Duration
}

// UniqueWhile is how long an execution has its key.
type UniqueWhile string

const (
	WhileWaiting    UniqueWhile = "waiting"    // until a worker claims it
	WhileUnfinished UniqueWhile = "unfinished" // until it ends
	WhileUnfailed   UniqueWhile = "unfailed"   // until it fails for good, expires or is cancelled
	WhileKept       UniqueWhile = "kept"       // until retention deletes it
)

// UniquePolicy decides about a creation while an execution has its key. The creation's policy counts.
type UniquePolicy string

const (
	// KeepExisting changes nothing: the creation is a duplicate.
	KeepExisting UniquePolicy = "keep"

	// ReplaceWaiting gives an execution that has not started the payload, limits and due time of the creation. With a
	// delay, the execution starts once no creation has come for the delay, or at the limit of [Unique.Within].
	// Requires [WhileWaiting], so a creation after the start makes the next execution.
	ReplaceWaiting UniquePolicy = "replace"

	// CancelExisting cancels the execution, as by [Engine.CancelExecution], and creates the new one in the same
	// transaction. If the execution has ended and still has its key, nothing changes.
	CancelExisting UniquePolicy = "cancel"
)

// uniqueWork is the uniqueness of a creation.
type uniqueWork struct {
	*Unique
	key uniqueKey
}

func (u *Unique) while() UniqueWhile {
	switch {
	case u.While != "":
		return u.While
	case u.IfTaken == ReplaceWaiting:
		return WhileWaiting
	}
	return WhileUnfinished
}

// lasts returns the stored form of how long an execution has its key, "" if u is nil.
func (u *Unique) lasts() UniqueWhile {
	if u == nil {
		return ""
	}
	return u.while()
}

func (u *Unique) byArgs() bool { return u.ByArgs || len(u.Fields) > 0 }

// check refuses invalid combinations and values.
func (u *Unique) check() error {
	switch u.while() {
	case WhileWaiting, WhileUnfinished, WhileUnfailed, WhileKept:
	default:
		return core.Invalid("Unique.While", fmt.Sprintf("is %q, not waiting, unfinished, unfailed or kept", u.While))
	}
	switch u.IfTaken {
	case "", KeepExisting, CancelExisting:
		if u.Within != 0 {
			return core.Invalid("Unique.Within", "has no effect without ReplaceWaiting: leave it out")
		}
	case ReplaceWaiting:
		if u.while() != WhileWaiting {
			return core.Invalid("Unique.While", "is not WhileWaiting, which ReplaceWaiting requires")
		}
	default:
		return core.Invalid("Unique.IfTaken", fmt.Sprintf("is %q, not keep, replace or cancel", u.IfTaken))
	}
	switch {
	case u.Period != 0 && (u.Period < MinUniquePeriod || u.Period%time.Millisecond != 0):
		return core.Invalid("Unique.Period", fmt.Sprintf("is %v, not whole milliseconds of at least %v", u.Period, MinUniquePeriod))
	case u.Within < 0 || u.Within%time.Millisecond != 0:
		return core.Invalid("Unique.Within", fmt.Sprintf("is %v, not whole milliseconds", u.Within))
	case len(u.Fields) > MaxUniqueFields:
		return core.Invalid("Unique.Fields", fmt.Sprintf("%d fields, limit %d", len(u.Fields), MaxUniqueFields))
	}
	for i, field := range u.Fields {
		if field == "" {
			return core.Invalid("Unique.Fields", "has an empty name")
		}
		if slices.Contains(u.Fields[:i], field) {
			return core.Invalid("Unique.Fields", fmt.Sprintf("has %q twice", field))
		}
		if err := core.CheckText("Unique.Fields", field, MaxUniqueField); err != nil {
			return err
		}
	}
	return nil
}
