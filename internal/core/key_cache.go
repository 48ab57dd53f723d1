package core

import (
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/id/wire"
)

const (
	// KeyCacheTTL is how long a process trusts the keys that it has read. A rotation elsewhere takes effect within it.
	KeyCacheTTL = 5 * time.Second

	// maxUnknownKeys is how many unknown key ids make a process read the keys again within a second.
	maxUnknownKeys = 10
)

// KeyCache remembers the keys that verify tokens, so that checking a token costs no statement. Before a token with an
// unknown key is refused, the keys are read again, but made-up ids cause at most [maxUnknownKeys] reads a second.
type KeyCache struct {
	mu         sync.Mutex
	generation int // raised by forget
	keys       map[string]VerifyingKey
	readAt     time.Time // zero: never

	second  time.Time // when the present second of unknown keys began
	unknown int       // unknown keys in that second
}

// VerifyingKey is a key of the cache.
type VerifyingKey struct {
	Secret wire.Secret
	Until  time.Time // the end of the grace, or a time after the end of the cached entry
}

// Get returns the key with an id, or nil. If read is true, the answer is unknown until the keys have been read again.
func (c *KeyCache) Get(kid string, now time.Time) (key *VerifyingKey, read bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := now.Sub(c.readAt); c.readAt.IsZero() || age < 0 || age >= KeyCacheTTL {
		return nil, true
	}
	if held, ok := c.keys[kid]; ok {
		if !now.Before(held.Until) {
			return nil, false
		}
		return &held, false
	}
	if age := now.Sub(c.second); age < 0 || age >= time.Second {
		c.second, c.unknown = now, 0
	}
	if c.unknown >= maxUnknownKeys {
		return nil, false // the keys have been read within the second
	}
	c.unknown++
	return nil, true
}

// Began returns a mark for keep. Take it before reading the keys.
func (c *KeyCache) Began() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generation
}

// Keep stores keys read from the given time on, unless a rotation was committed in the meantime.
func (c *KeyCache) Keep(keys map[string]VerifyingKey, readAt time.Time, mark int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation == mark {
		c.keys, c.readAt = keys, readAt
	}
}

// forget empties the cache after a change of the keys by this process.
func (c *KeyCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.keys, c.readAt, c.unknown = nil, time.Time{}, 0
}

// KeyGrace is how long a key retired by another program still verifies grants. The other program stores no end.
const KeyGrace = 24 * time.Hour
