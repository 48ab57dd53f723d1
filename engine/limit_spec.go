package engine

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Limits of limits.
const (
	MaxLimits      = 4                   // limits of an execution
	MaxLimitName   = 512                 // bytes of a limit's name
	MaxLimitKey    = 512                 // bytes of a key
	MaxLimitUnits  = core.MaxLimitUnits  // units of a limit
	MinLimitWindow = core.MinLimitWindow // the shortest window
	MaxLimitWindow = core.MaxLimitWindow // the longest
	maxLimitPart   = 255                 // bytes of the name that a limit has in its kind
)

// WhenFull decides about executions beyond a limit. Cancelled ones have "limit" as [CancelSpec.Source].
type WhenFull string

const (
	// WaitForRoom, the default, lets executions wait, by priority, then in the order of creation.
	WaitForRoom WhenFull = "wait"

	// CancelNew cancels an execution arriving at a full limit.
	CancelNew WhenFull = "cancel_new"

	// CancelRunning requests the cancellation of the execution that was admitted first, and starts the new one after
	// its end. Only with [Concurrency].
	CancelRunning WhenFull = "cancel_running"

	// KeepNewest cancels all executions waiting for the key except the newest.
	KeepNewest WhenFull = "keep_newest"
)

// Limit limits the executions of a [Kind] by a key from the arguments. [Concurrency] and [Rate] make one; the methods
// return a changed copy.
//
//	Limits: []engine.Limit[SyncArgs]{
//		engine.Concurrency[SyncArgs](5).Per("tenant", func(a SyncArgs) string { return a.Tenant }),
//		engine.Rate[SyncArgs](100, time.Minute).Per("api-key", func(a SyncArgs) string { return a.Key }),
//	},
type Limit[In any] struct {
	rule  core.LimitRule
	name  string
	key   func(In) string
	units func(In) int
	set   bool // made by Concurrency or Rate
}

// Concurrency lets at most n units run at once, over all workers. An execution takes its units when it becomes
// claimable, and returns them when it ends, is delayed, or waits for a signal or a retry.
func Concurrency[In any](n int) Limit[In] {
	return Limit[In]{rule: core.Concurrency(n), name: "concurrency", set: true}
}

// Rate lets at most n units start within any window, over all workers. A retry is a start. window has whole
// milliseconds, from [MinLimitWindow] to [MaxLimitWindow].
func Rate[In any](n int, window time.Duration) Limit[In] {
	return Limit[In]{rule: core.Rate(n, window), name: "rate", set: true}
}

// Per limits each key separately. name, the same for all keys, names the limit in the kind: unique, at most 255 bytes,
// without a slash. A key has at most [MaxLimitKey] bytes, and may be empty. Without Per, all executions of the kind
// share one key, and the name is "concurrency" or "rate".
func (l Limit[In]) Per(name string, key func(In) string) Limit[In] {
	l.name, l.key = name, key
	return l
}

// Units lets an execution take more than one unit, at most the limit's units.
func (l Limit[In]) Units(units func(In) int) Limit[In] {
	l.units = units
	return l
}

// WhenFull decides about executions beyond the limit. Default [WaitForRoom].
func (l Limit[In]) WhenFull(w WhenFull) Limit[In] {
	l.rule.WhenFull = string(w)
	return l
}

// of returns the key for arguments.
func (l *Limit[In]) of(kind string, args In) LimitKey {
	k := LimitKey{Name: kind + "/" + l.name, declared: &l.rule}
	if l.key != nil {
		k.Key = l.key(args)
	}
	if l.units != nil {
		if k.Units = l.units(args); k.Units == 0 {
			k.Units = -1 // refused; 0 in a spec is the default
		}
	}
	return k
}

// checkLimits checks the limits of a kind.
func checkLimits[In any](limits []Limit[In]) error {
	if len(limits) > MaxLimits {
		return core.Invalid("Kind.Limits", fmt.Sprintf("are %d, limit %d", len(limits), MaxLimits))
	}
	for i := range limits {
		if err := limits[i].check(limits[:i]); err != nil {
			return err
		}
	}
	return nil
}

// check checks a limit of a kind against the limits before it.
func (l *Limit[In]) check(before []Limit[In]) error {
	switch {
	case !l.set:
		return core.Invalid("Kind.Limits", "has one that was not made by Concurrency or Rate")
	case l.name == "":
		return core.Invalid("Kind.Limits", "has one with an empty name: give Per a name")
	case strings.Contains(l.name, "/"):
		return core.Invalid("Kind.Limits "+strconv.Quote(l.name), "has a slash in its name")
	case slices.ContainsFunc(before, func(other Limit[In]) bool { return other.name == l.name }):
		return core.Invalid("Kind.Limits "+strconv.Quote(l.name), "is declared twice: give each a name of its own with Per")
	}
	if err := core.CheckText("Kind.Limits", l.name, maxLimitPart); err != nil {
		return err
	}
	return l.rule.Check("Kind.Limits", l.name)
}

// LimitKey is a limit of an execution, and the key to count under.
type LimitKey struct {
	// Name is the name of a limit declared by limit.Declare in the execution's namespace, or of a kind's limit: the
	// kind's name, a slash, and the name in [Limit.Per]. Required; at most [MaxLimitName] bytes.
	Name string

	Key string // at most [MaxLimitKey] bytes; may be empty

	// Units is how many units the execution takes, at most the number declared. Default 1. If an operator has set
	// fewer, the execution takes all units.
	Units int

	declared *core.LimitRule // by the kind; nil: the limit must exist
}

// units returns the units with their default.
func (k *LimitKey) units() int64 { return int64(cmp.Or(k.Units, 1)) }

// check checks a key.
func (k *LimitKey) check() error {
	if k.Name == "" {
		return core.Invalid("Limits", "has one without a name")
	}
	if err := core.CheckText("Limits", k.Name, MaxLimitName); err != nil {
		return err
	}
	if len(k.Key) > MaxLimitKey || id.CheckText("key", k.Key) != nil {
		return core.CheckText("Limits "+strconv.Quote(k.Name)+" key", k.Key, MaxLimitKey)
	}
	if k.Units < 0 || k.Units > MaxLimitUnits {
		return core.Invalid("Limits "+strconv.Quote(k.Name)+" units", fmt.Sprintf("are %d, not 1 to %d", max(k.Units, 0), MaxLimitUnits))
	}
	if k.declared == nil {
		return nil
	}
	if err := k.declared.Check("Limits", k.Name); err != nil {
		return err
	}
	return k.fits(k.declared.Units)
}

// fits refuses units beyond the limit: the execution could never start.
func (k *LimitKey) fits(units int64) error {
	if k.units() > units {
		return core.Invalid("Limits "+strconv.Quote(k.Name)+" units", fmt.Sprintf("are %d, but the limit has %d", k.units(), units))
	}
	return nil
}

// setLimits checks and sets the limits and the quota policy of a spec. A quota policy comes last.
func (c *creation) setLimits(spec *ExecutionSpec) error {
	if len(spec.Limits) > MaxLimits {
		return core.Invalid("Limits", fmt.Sprintf("are %d, limit %d", len(spec.Limits), MaxLimits))
	}
	c.limits, c.gates.limits = spec.Limits, make([]limitUse, 0, len(spec.Limits)+1)
	for i := range spec.Limits {
		k := &spec.Limits[i]
		if err := k.check(); err != nil {
			return err
		}
		for _, other := range spec.Limits[:i] {
			switch {
			case other.Name == k.Name && other.Key == k.Key:
				return core.Invalid("Limits "+strconv.Quote(k.Name), "is named twice with the same key")
			case other.Name == k.Name && other.declared != nil && k.declared != nil && *other.declared != *k.declared:
				return core.Invalid("Limits "+strconv.Quote(k.Name), "is declared twice: give each a name of its own with Per")
			}
		}
		c.gates.limits = append(c.gates.limits, limitUse{gate: gateOf(c.namespace, k.Name, k.Key), units: k.units()})
	}
	if spec.QuotaPolicy != nil {
		c.gates.limits = append(c.gates.limits, limitUse{gate: uuid.UUID(*spec.QuotaPolicy), units: 1})
	}
	return nil
}

// gateOf returns the id of a limit's key: the first bytes of SHA-256 over the namespace, the name and the key, each
// followed by a zero byte. None contains a zero byte.
func gateOf(namespace, name, key string) uuid.UUID {
	text := make([]byte, 0, 128)
	for _, part := range [...]string{namespace, name, key} {
		text = append(append(text, part...), 0)
	}
	digest := sha256.Sum256(text)
	return uuid.UUID(digest[:16])
}

// limitsField renders limits as a further field of a document; "" without limits.
func limitsField(limits []LimitKey) string {
	if len(limits) == 0 {
		return ""
	}
	field := append(make([]byte, 0, 64), `,"ffx_limits":[`...)
	for i := range limits {
		if i > 0 {
			field = append(field, ',')
		}
		field = appendQuoted(append(field, `{"name":`...), limits[i].Name)
		field = appendQuoted(append(field, `,"key":`...), limits[i].Key)
		if units := limits[i].units(); units > 1 {
			field = strconv.AppendInt(append(field, `,"units":`...), units, 10)
		}
		field = append(field, '}')
	}
	return string(append(field, ']'))
}

// rawLimit is a limit in the document of an execution and of a schedule.
type rawLimit struct {
	Name  string `json:"name"`
	Key   string `json:"key"`
	Units int    `json:"units,omitempty"`
}

// keysOf returns stored limits.
func keysOf(stored []rawLimit) []LimitKey {
	var limits []LimitKey
	for _, l := range stored {
		limits = append(limits, LimitKey{Name: l.Name, Key: l.Key, Units: max(l.Units, 1)})
	}
	return limits
}
