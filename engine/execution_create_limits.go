package engine

import (
	"cmp"
	"context"
	"maps"
	"strconv"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// findLimits compares the limits of creations with the existing limits, reading only limits unknown to this process.
// Creations with limits to declare are marked, and creations with a missing or too small limit are refused.
func (e *Engine) findLimits(ctx context.Context, creations []creation, refuse func(i int, err error)) error {
	var rules, unknown map[core.LimitID]core.LimitRule
	now := e.c.ProcessTime()
	for i := range creations {
		c := &creations[i]
		if c.refused {
			continue
		}
		for n := range c.limits {
			k := &c.limits[n]
			limit := core.LimitID{Namespace: c.namespace, Name: k.Name}
			if _, seen := rules[limit]; seen {
				continue
			}
			if rules == nil {
				rules, unknown = make(map[core.LimitID]core.LimitRule), make(map[core.LimitID]core.LimitRule)
			}
			rule, known := e.c.Limits.Get(limit, now)
			if rules[limit] = rule; !known || k.declared != nil && rule != *k.declared {
				unknown[limit] = core.LimitRule{}
			}
		}
	}
	if len(unknown) > 0 {
		if err := e.readLimits(ctx, unknown); err != nil {
			return err
		}
		maps.Copy(rules, unknown)
	}
	replaced := make(map[core.LimitID]bool)
	for i := range creations {
		c := &creations[i]
		if c.refused {
			continue
		}
		for n := range c.limits {
			k := &c.limits[n]
			limit := core.LimitID{Namespace: c.namespace, Name: k.Name}
			rule := rules[limit]
			if k.declared != nil {
				differs := rule != *k.declared
				c.undeclared = c.undeclared || differs
				if differs && rule.Units > 0 && !replaced[limit] {
					replaced[limit] = true
					e.cfg.Log.WarnContext(ctx, "flowfabric: this process replaces the declaration of a limit",
						"limit", limit.Name, "namespace", limit.Namespace, "units", rule.Units, "new_units", k.declared.Units)
				}
				continue
			}
			err := k.fits(rule.Units)
			if rule.Units == 0 {
				err = core.Invalid("Limits "+strconv.Quote(k.Name), "does not exist: declare it with limit.Declare")
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

// readLimits reads the declared rules of limits. A missing limit has no units. Rules that outlast the caller's transaction
// are remembered.
func (e *Engine) readLimits(ctx context.Context, into map[core.LimitID]core.LimitRule) error {
	var params db.ListLimitRulesParams
	for limit := range into {
		params.Namespaces, params.Names = append(params.Namespaces, limit.Namespace), append(params.Names, limit.Name)
	}
	rows, err := e.c.Q.ListLimitRules(ctx, e.c.Reader(), params)
	for i := range rows {
		row := &rows[i]
		limit := core.LimitID{Namespace: row.Namespace, Name: row.Name}
		into[limit] = core.LimitRule{Units: row.DeclaredUnits, WindowMs: row.DeclaredWindowMs, WhenFull: row.WhenFull}
		if row.Lasting {
			e.c.Limits.Add(limit, into[limit], e.c.ProcessTime())
		}
	}
	return err
}

// undeclaredOf returns the limits declared by marked creations, each once.
func undeclaredOf(creations []creation) map[core.LimitID]core.LimitRule {
	var rules map[core.LimitID]core.LimitRule
	for i := range creations {
		if !creations[i].undeclared {
			continue
		}
		for n := range creations[i].limits {
			if k := &creations[i].limits[n]; k.declared != nil {
				if rules == nil {
					rules = make(map[core.LimitID]core.LimitRule)
				}
				rules[core.LimitID{Namespace: creations[i].namespace, Name: k.Name}] = *k.declared
			}
		}
	}
	return rules
}
