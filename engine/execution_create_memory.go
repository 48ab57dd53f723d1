package engine

import (
	"slices"
	"sync"

	"github.com/flowfabric/flowfabric-go/internal/gate"
)

// unknownLanes returns the lanes of creations that this engine has not seen registered, sorted.
func (e *Engine) unknownLanes(creations []creation) []string {
	var lanes []string
	for i := range creations {
		if i > 0 && creations[i].lane == creations[i-1].lane {
			continue
		}
		if !e.lanes.has(creations[i].lane) && !slices.Contains(lanes, creations[i].lane) {
			lanes = append(lanes, creations[i].lane)
		}
	}
	slices.Sort(lanes)
	return lanes
}

func (e *Engine) rememberLanes(lanes []string) { e.lanes.add(lanes) }

// creationMemory has the lanes and the period that a process has registered, so that creations need not repeat that, and
// the heads of fair lanes.
type creationMemory struct {
	lanes   knownLanes
	fair    fairMemory
	periods shortestPeriod
	limits  knownLimits
	keyRows knownKeys
}

// maxKnownLanes is the number of lanes that an engine remembers as registered.
const maxKnownLanes = 10_000

// knownLanes is a set of registered lanes. Registering a lane again changes nothing, so a full set is simply cleared.
type knownLanes struct {
	mu    sync.RWMutex
	known map[string]struct{}
}

func (l *knownLanes) has(lane string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, known := l.known[lane]
	return known
}

func (l *knownLanes) add(lanes []string) {
	if len(lanes) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = make(map[string]struct{})
	}
	for _, lane := range lanes {
		if len(l.known) >= maxKnownLanes {
			clear(l.known)
		}
		l.known[lane] = struct{}{}
	}
}

// maxKnownKeys is the number of keys that an engine remembers to have a row.
const maxKnownKeys = 100_000

// knownKeys are keys of limits that had a row once. A job deletes idle ones. A full set is simply cleared.
type knownKeys struct {
	mu    sync.Mutex
	known map[gate.ID]struct{}
}

// unknown returns those of the keys that are not known, sorted.
func (k *knownKeys) unknown(of map[gate.ID]LimitKey) []gate.ID {
	k.mu.Lock()
	defer k.mu.Unlock()
	var unknown []gate.ID
	for g := range of {
		if _, known := k.known[g]; !known {
			unknown = append(unknown, g)
		}
	}
	slices.SortFunc(unknown, compareGates)
	return unknown
}

func (k *knownKeys) add(keys []gate.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil || len(k.known)+len(keys) > maxKnownKeys {
		k.known = make(map[gate.ID]struct{}, len(keys))
	}
	for _, g := range keys {
		k.known[g] = struct{}{}
	}
}

func (k *knownKeys) forget(keys []gate.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range keys {
		delete(k.known, g)
	}
}
