// Package budgets decides whether reports of usage fit into a budget, and has the stored form of the policy and of the
// outcomes. The package uses no database.
package budgets

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Policy has the limits of a budget and the interval of resets. Limits are by dimension; 0 is no limit.
type Policy struct {
	Hard, Soft      map[string]int64
	ResetIntervalMs int64 // 0: never
	RetentionMs     int64 // 0: kept; else there are no resets
	OnHard, OnSoft  string
	Key, Namespace  string
	CancelOnBreach  bool // a breach cancels the executions admitted under the budget
}

// Keys of the library, only in policies that need one.
const (
	cancelKey = "ffx_cancel_on_breach"
	nameKey   = "ffx_key"
	spaceKey  = "ffx_namespace" // of the key
	keepKey   = "ffx_retention_ms"
)

// Encode returns the stored form of a policy.
func (p *Policy) Encode() ([]byte, error) {
	hard, soft := p.Hard, p.Soft
	if hard == nil {
		hard = map[string]int64{}
	}
	if soft == nil {
		soft = map[string]int64{}
	}
	keys := map[string]any{
		"hard_limits": hard, "soft_limits": soft, "reset_interval_ms": p.ResetIntervalMs,
		"on_hard_limit": p.OnHard, "on_soft_limit": p.OnSoft,
	}
	if p.CancelOnBreach {
		keys[cancelKey] = true
	}
	if p.RetentionMs > 0 {
		keys[keepKey] = p.RetentionMs
	}
	if p.Key != "" {
		keys[nameKey], keys[spaceKey] = p.Key, p.Namespace
	}
	return json.Marshal(keys)
}

// foreign are keys with limits read only by a scheduler of FlowFabric. A conversion rewrites readable ones.
var foreign = []string{"hard_limit", "hard"}

// Decode reads a stored policy. Keys may be absent. A limit other than a whole number from 0 on is an error, for a
// budget must not become unlimited by a mistake; one above the range of int64 is the largest int64.
func Decode(document string) (p Policy, err error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal([]byte(document), &keys); err != nil || keys == nil {
		return p, errors.New("is no object")
	}
	for _, key := range foreign {
		if _, found := keys[key]; found {
			return p, fmt.Errorf("has %s, which was not converted", key)
		}
	}
	if p.Hard, err = limits(keys, "hard_limits"); err != nil {
		return p, err
	}
	if p.Soft, err = limits(keys, "soft_limits"); err != nil {
		return p, err
	}
	if raw, found := keys["reset_interval_ms"]; found {
		if p.ResetIntervalMs, err = whole(raw); err != nil {
			return p, fmt.Errorf("reset_interval_ms %w", err)
		}
	}
	if raw, found := keys[keepKey]; found {
		if p.RetentionMs, err = whole(raw); err != nil {
			return p, fmt.Errorf("%s %w", keepKey, err)
		}
	}
	if raw, found := keys[cancelKey]; found {
		if err := json.Unmarshal(raw, &p.CancelOnBreach); err != nil {
			return p, fmt.Errorf("%s is no boolean", cancelKey)
		}
	}
	// Text for people: anything else is left out.
	_ = json.Unmarshal(keys[nameKey], &p.Key)
	_ = json.Unmarshal(keys[spaceKey], &p.Namespace)
	_ = json.Unmarshal(keys["on_hard_limit"], &p.OnHard)
	_ = json.Unmarshal(keys["on_soft_limit"], &p.OnSoft)
	return p, nil
}

func limits(keys map[string]json.RawMessage, key string) (map[string]int64, error) {
	raw, found := keys[key]
	if !found {
		return nil, nil
	}
	var of map[string]json.RawMessage
	if err := json.Unmarshal(raw, &of); err != nil || of == nil {
		return nil, fmt.Errorf("%s is no object", key)
	}
	limits := make(map[string]int64, len(of))
	for dimension, raw := range of {
		n, err := whole(raw)
		if err != nil {
			return nil, fmt.Errorf("%s of %q %w", key, dimension, err)
		}
		limits[dimension] = n
	}
	return limits, nil
}

// whole reads a number without a detour through a float.
func whole(raw json.RawMessage) (int64, error) {
	text := string(bytes.TrimSpace(raw))
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, errors.New("is not a whole number from 0 on")
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return math.MaxInt64, nil // out of range is the only error of digits
	}
	return n, nil
}

// Ephemeral reports whether a budget is deleted once unused.
func (p *Policy) Ephemeral() bool { return p.RetentionMs > 0 && p.ResetIntervalMs <= 0 }

// PeriodMs is the interval of the resets, or else the retention; 0 for neither.
func (p *Policy) PeriodMs() int64 {
	if p.Ephemeral() {
		return p.RetentionMs
	}
	return p.ResetIntervalMs
}

// NextLook returns the time of the next reset or possible deletion after a reset, in milliseconds; 0 for never.
func (p *Policy) NextLook(nowMs int64) int64 {
	if p.PeriodMs() <= 0 {
		return 0
	}
	return Add(nowMs, p.PeriodMs())
}

// NextScheduled is [Policy.NextLook] for a reset due at an earlier instant. The schedule keeps its phase, and missed
// periods are one.
func (p *Policy) NextScheduled(dueMs, nowMs int64) int64 {
	if p.ResetIntervalMs <= 0 {
		return 0
	}
	if dueMs > nowMs {
		return dueMs
	}
	return Add(dueMs, ((nowMs-dueMs)/p.ResetIntervalMs)*p.ResetIntervalMs+p.ResetIntervalMs)
}

// Add returns a + b, at most the largest int64. Neither may be negative.
func Add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
