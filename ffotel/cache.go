package ffotel

import (
	"maps"
	"sync"
	"sync/atomic"
)

// cache is a map for reading on the path of the work: get takes no lock, since add copies the map.
type cache[K comparable, V any] struct {
	entries atomic.Pointer[map[K]V]
	mu      sync.Mutex // held by add
}

func (c *cache[K, V]) get(key K) (value V, ok bool) {
	if entries := c.entries.Load(); entries != nil {
		value, ok = (*entries)[key]
	}
	return value, ok
}

// add returns the value of a key, and makes it if there is none. It returns false if the cache already has so many others.
func (c *cache[K, V]) add(key K, most int, value func() V) (added V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if added, ok = c.get(key); ok {
		return added, true
	}
	entries := make(map[K]V)
	if old := c.entries.Load(); old != nil {
		if len(*old) >= most {
			return added, false
		}
		maps.Copy(entries, *old)
	}
	added = value()
	entries[key] = added
	c.entries.Store(&entries)
	return added, true
}
