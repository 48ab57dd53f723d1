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

// Unique makes work unique: while one execution has its key, a creation with the same key makes no second one. The key
// always has the namespace and the kind. The fields add to it, say how long an execution has it, and how a creation
// acts meanwhile. The zero value is one unfinished execution of the kind.
//
// An index guarantees it, however many processes create at the same time. Members of flows, called executions and
// executions of schedules can't be unique.
type Unique struct {
	// ByArgs makes the payload part of the key, as JSON whose order of names, spaces and form of numbers don't matter, or
	// by its bytes if it is no JSON. Fields are the names of those of its fields that count instead of all, in any order.
	// Each must be there, at most [MaxUniqueFields] of at most [MaxUniqueField] bytes; they need no ByArgs.
	ByArgs bool
	Fields []string

	ByLane bool // makes the lane part of the key

	// Period makes the period of the due time part of the key: it is divided from the Unix epoch on, so hours and days
	// begin in UTC. The due time is [ExecutionSpec.DelayUntil], or else the database's present time, which takes one more
	// query. Whole milliseconds, at least [MinUniquePeriod]. Default 0: all times.
	Period time.Duration

	// While is how long an execution has its key. Default [WhileUnfinished], with ReplaceWaiting [WhileWaiting].
	While UniqueWhile

	// IfTaken decides about a creation while an execution has its key. Default [KeepExisting].
	IfTaken UniquePolicy

	// Within limits how far repeated creations move the due time of a waiting execution: at most this long after its
	// creation. Whole milliseconds; with [ReplaceWaiting] alone. Default 0: no limit.
	Within time.Duration
}

// UniqueWhile is how long an execution has its key.
type UniqueWhile string

const (
	WhileWaiting    UniqueWhile = "waiting"    // until a worker has claimed it
	WhileUnfinished UniqueWhile = "unfinished" // until it has ended
	WhileUnfailed   UniqueWhile = "unfailed"   // until it has failed for good, expired or been cancelled
	WhileKept       UniqueWhile = "kept"       // until retention deletes it
)

// UniquePolicy decides about a creation while an execution has its key. The creation's counts, not the execution's.
type UniquePolicy string

const (
	// KeepExisting changes nothing: the creation is a duplicate of the execution.
	KeepExisting UniquePolicy = "keep"

	// ReplaceWaiting gives the execution the payload, the limits and the due time of the creation, if it has not started. With
	// [Unique.Within] and a delay, it starts once no creation has come for the delay, or at the limit. It requires
	// [WhileWaiting], so a creation after the start makes the next execution.
	ReplaceWaiting UniquePolicy = "replace"

	// CancelExisting cancels the execution, as [Engine.CancelExecution] does, and creates the new one, in one transaction.
	// It changes nothing if the execution has ended and still has its key.
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

// check refuses mistakes.
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
