package core

import (
	"reflect"
	"sync"
)

// A Handle is the core of an engine, for the packages of this library. An engine embeds it, and its users can't reach
// it.
type Handle struct{ c *Core }

// NewHandle returns the handle of c.
func NewHandle(c *Core) Handle { return Handle{c} }

func (h Handle) core() *Core { return h.c }

// A Holder embeds a [Handle].
type Holder interface{ core() *Core }

// Of returns the core of an engine, bound to the same pool or transaction.
func Of(h Holder) *Core { return h.core() }

// memories are the in-process states of packages above the core, by type.
type memories struct {
	base   *Core
	byType sync.Map
}

// Base returns the core made by [New], on its own pool.
func (c *Core) Base() *Core { return c.memories.base }

// Memory returns an engine's state of type T, shared by all values bound to transactions and pools. create makes the
// state on the first call.
func Memory[T any](c *Core, create func() *T) *T {
	key := reflect.TypeFor[T]()
	held, ok := c.memories.byType.Load(key)
	if !ok {
		held, _ = c.memories.byType.LoadOrStore(key, create())
	}
	return held.(*T)
}
