package core

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
)

// LimitID identifies a limit.
type LimitID struct{ Namespace, Name string }

func (l LimitID) compare(other LimitID) int {
	return cmp.Or(cmp.Compare(l.Namespace, other.Namespace), cmp.Compare(l.Name, other.Name))
}

// maxKnownLimits is the number of limits remembered as declared by an engine.
const maxKnownLimits = 10_000

// knownLimitAge is how long an engine relies on a rule read before. Another version of the program may have declared
// another rule since.
const knownLimitAge = time.Minute

// KnownLimits are limits known to exist, with their declared rules. Declaring a limit again changes nothing, so a full
// set is simply cleared.
type KnownLimits struct {
	mu    sync.RWMutex
	known map[LimitID]knownLimit
}

type knownLimit struct {
	LimitRule
	since time.Time
}

// Get returns the rule of a limit, unless the caller has to read the rule.
func (l *KnownLimits) Get(limit LimitID, now time.Time) (LimitRule, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	k, known := l.known[limit]
	age := now.Sub(k.since)
	return k.LimitRule, known && age >= 0 && age < knownLimitAge
}

// Add records a rule after its commit.
func (l *KnownLimits) Add(limit LimitID, rule LimitRule, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = make(map[LimitID]knownLimit)
	}
	if len(l.known) >= maxKnownLimits {
		clear(l.known)
	}
	l.known[limit] = knownLimit{rule, now}
}

// Forget makes this process read a limit again.
func (l *KnownLimits) Forget(limit LimitID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, limit)
}

// The largest values of a [LimitRule].
const (
	MaxLimitUnits  = 1_000_000_000
	MinLimitWindow = 100 * time.Millisecond
	MaxLimitWindow = 31 * 24 * time.Hour
)

// LimitRule is the declared rule of a limit.
type LimitRule struct {
	Units    int64
	WindowMs int64 // 0: a limit of units running at once
	WhenFull string
	fraction bool // the window has a fraction of a millisecond
}

// Concurrency returns the rule for n units running at once.
func Concurrency(n int) LimitRule { return LimitRule{Units: int64(n), WhenFull: "wait"} }

// Rate returns the rule for n units started within a window.
func Rate(n int, window time.Duration) LimitRule {
	rule := LimitRule{Units: int64(n), WindowMs: window.Milliseconds(), WhenFull: "wait", fraction: window%time.Millisecond != 0}
	if window <= 0 {
		rule.WindowMs = -1
	}
	return rule
}

// Check refuses a rule with a mistake. The error names field and name.
func (r *LimitRule) Check(field, name string) error {
	if reason := r.Mistake(); reason != "" {
		return Invalid(field+" "+strconv.Quote(name), reason)
	}
	return nil
}

// Mistake returns the reason to refuse a rule, "" if there is none.
func (r *LimitRule) Mistake() string {
	switch {
	case r.Units < 1 || r.Units > MaxLimitUnits:
		return fmt.Sprintf("has %d units, not 1 to %d", r.Units, MaxLimitUnits)
	case r.fraction:
		return "has a window with a fraction of a millisecond"
	case r.WindowMs != 0 && (r.WindowMs < MinLimitWindow.Milliseconds() || r.WindowMs > MaxLimitWindow.Milliseconds()):
		return fmt.Sprintf("has a window that is not from %v to %v", MinLimitWindow, MaxLimitWindow)
	}
	switch r.WhenFull {
	case "wait", "cancel_new", "keep_newest":
	case "cancel_running":
		if r.WindowMs != 0 {
			return "cancels running executions, but a rate has no more room when they end"
		}
	default:
		return fmt.Sprintf("is %q when full, not wait, cancel_new, cancel_running or keep_newest", r.WhenFull)
	}
	return ""
}

// DeclareLimits declares limits, in the order of their namespaces and names.
func (c *Core) DeclareLimits(ctx context.Context, tx db.DBTX, rules map[LimitID]LimitRule) error {
	if len(rules) == 0 {
		return nil
	}
	params := db.DeclareLimitsParams{NowMs: c.NowMs()}
	for _, limit := range slices.SortedFunc(maps.Keys(rules), LimitID.compare) {
		rule := rules[limit]
		params.Namespaces, params.Names = append(params.Namespaces, limit.Namespace), append(params.Names, limit.Name)
		params.Units, params.WindowsMs = append(params.Units, rule.Units), append(params.WindowsMs, rule.WindowMs)
		params.WhenFull = append(params.WhenFull, rule.WhenFull)
	}
	return c.Q.DeclareLimits(ctx, tx, params)
}
