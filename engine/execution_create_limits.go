package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// limitID identifies a limit.
type limitID struct{ namespace, name string }

func (l limitID) compare(other limitID) int {
	return cmp.Or(cmp.Compare(l.namespace, other.namespace), cmp.Compare(l.name, other.name))
}

// maxKnownLimits is the number of limits that an engine remembers as declared.
const maxKnownLimits = 10_000

// knownLimitAge is how long an engine relies on a rule that it has read. Another version of the program may have declared another
// one since.
const knownLimitAge = time.Minute

// knownLimits are limits that the database has, with their declared rules. Declaring one again changes nothing, so a full set is
// simply cleared.
type knownLimits struct {
	mu    sync.RWMutex
	known map[limitID]knownLimit
}

type knownLimit struct {
	limitRule
	since time.Time
}

func (l *knownLimits) get(limit limitID, now time.Time) (limitRule, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	k, known := l.known[limit]
	age := now.Sub(k.since)
	return k.limitRule, known && age >= 0 && age < knownLimitAge
}

func (l *knownLimits) add(limit limitID, rule limitRule, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = make(map[limitID]knownLimit)
	}
	if len(l.known) >= maxKnownLimits {
		clear(l.known)
	}
	l.known[limit] = knownLimit{rule, now}
}

// forget makes this process read a limit again.
func (l *knownLimits) forget(limit limitID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, limit)
}

// findLimits compares the limits of creations with those that exist, which it reads unless this process knows them. It marks
// creations whose limits have to be declared, and calls refuse for those that name a limit which does not exist or is too
// small.
func (e *Engine) findLimits(ctx context.Context, creations []creation, refuse func(i int, err error)) error {
	var rules, unknown map[limitID]limitRule
	now := e.c.ProcessTime()
	for i := range creations {
		c := &creations[i]
		if c.refused {
			continue
		}
		for n := range c.limits {
			k := &c.limits[n]
			limit := limitID{c.namespace, k.Name}
			if _, seen := rules[limit]; seen {
				continue
			}
			if rules == nil {
				rules, unknown = make(map[limitID]limitRule), make(map[limitID]limitRule)
			}
			rule, known := e.limits.get(limit, now)
			if rules[limit] = rule; !known || k.declared != nil && rule != *k.declared {
				unknown[limit] = limitRule{}
			}
		}
	}
	if len(unknown) > 0 {
		if err := e.readLimits(ctx, unknown); err != nil {
			return err
		}
		maps.Copy(rules, unknown)
	}
	replaced := make(map[limitID]bool)
	for i := range creations {
		c := &creations[i]
		if c.refused {
			continue
		}
		for n := range c.limits {
			k := &c.limits[n]
			limit := limitID{c.namespace, k.Name}
			rule := rules[limit]
			if k.declared != nil {
				differs := rule != *k.declared
				c.undeclared = c.undeclared || differs
				if differs && rule.units > 0 && !replaced[limit] {
					replaced[limit] = true
					e.cfg.Log.WarnContext(ctx, "flowfabric: this process replaces the declaration of a limit",
						"limit", limit.name, "namespace", limit.namespace, "units", rule.units, "new_units", k.declared.units)
				}
				continue
			}
			err := k.fits(rule.units)
			if rule.units == 0 {
				err = core.Invalid("Limits "+strconv.Quote(k.Name), "does not exist: declare it with Operator.DeclareLimits")
			}
			if err != nil {
				refuse(i, err)
				break
			}
		}
	}
	return nil
}

// findAllLimits is findLimits for creations that are refused together.
func (e *Engine) findAllLimits(ctx context.Context, creations []creation) (refused error) {
	err := e.findLimits(ctx, creations, func(_ int, err error) { refused = cmp.Or(refused, err) })
	return cmp.Or(err, refused)
}

// readLimits reads the declared rules of limits. One that does not exist has no units. It remembers those that outlast the caller's
// transaction.
func (e *Engine) readLimits(ctx context.Context, into map[limitID]limitRule) error {
	var params db.ListLimitRulesParams
	for limit := range into {
		params.Namespaces, params.Names = append(params.Namespaces, limit.namespace), append(params.Names, limit.name)
	}
	rows, err := e.c.Q.ListLimitRules(ctx, e.c.Reader(), params)
	for i := range rows {
		row := &rows[i]
		limit := limitID{row.Namespace, row.Name}
		into[limit] = limitRule{units: row.DeclaredUnits, windowMs: row.DeclaredWindowMs, whenFull: WhenFull(row.WhenFull)}
		if row.Lasting {
			e.limits.add(limit, into[limit], e.c.ProcessTime())
		}
	}
	return err
}

// undeclaredOf returns the limits declared by marked creations, each once.
func undeclaredOf(creations []creation) map[limitID]limitRule {
	var rules map[limitID]limitRule
	for i := range creations {
		if !creations[i].undeclared {
			continue
		}
		for n := range creations[i].limits {
			if k := &creations[i].limits[n]; k.declared != nil {
				if rules == nil {
					rules = make(map[limitID]limitRule)
				}
				rules[limitID{creations[i].namespace, k.Name}] = *k.declared
			}
		}
	}
	return rules
}

// declare declares limits, in the order of their namespaces and names.
func (e *Engine) declare(ctx context.Context, tx db.DBTX, rules map[limitID]limitRule) error {
	if len(rules) == 0 {
		return nil
	}
	params := db.DeclareLimitsParams{NowMs: e.c.NowMs()}
	for _, limit := range slices.SortedFunc(maps.Keys(rules), limitID.compare) {
		rule := rules[limit]
		params.Namespaces, params.Names = append(params.Namespaces, limit.namespace), append(params.Names, limit.name)
		params.Units, params.WindowsMs = append(params.Units, rule.units), append(params.WindowsMs, rule.windowMs)
		params.WhenFull = append(params.WhenFull, string(rule.whenFull))
	}
	return e.c.Q.DeclareLimits(ctx, tx, params)
}
