package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// scopedKey is an idempotency key within a scope.
type scopedKey struct {
	partition      int16
	namespace, key string // key as stored: [creation.setKey]
}

func (k scopedKey) compare(other scopedKey) int {
	return cmp.Or(
		cmp.Compare(k.partition, other.partition),
		cmp.Compare(k.namespace, other.namespace),
		cmp.Compare(k.key, other.key),
	)
}

// scopeMark begins every stored key with a scope. A stored key of the former scope is the caller's key alone, and no
// caller's key begins with the mark, so the two are never confused.
const scopeMark = "\x01"

// setKey sets the idempotency key and the stored form: the lane or a member's flow, the kind and the key. The lengths of
// the first two parts make the form unambiguous.
func (c *creation) setKey(key id.IdempotencyKey) error {
	if key == "" {
		return nil
	}
	if strings.HasPrefix(string(key), scopeMark) {
		return core.Invalid("idempotency key", "begins with U+0001, which is reserved")
	}
	where := "lane " + c.lane
	if c.flow != nil {
		where = "flow " + c.flow.String()
	}
	c.key = string(key)
	c.storedKey = fmt.Sprintf("%s%d:%s%d:%s%s", scopeMark, len(where), where, len(c.kind), c.kind, key)
	return nil
}

// keyed reports whether a creation has an idempotency key with a window.
func (c creation) keyed() bool { return c.key != "" && c.windowMs > 0 }

// holdsKey reports whether a creation has a key of either kind, or a place in a sequence.
func (c creation) holdsKey() bool { return c.keyed() || !c.business.IsZero() || !c.sequence.IsZero() }

// needsKeys reports whether a creation has a key of any kind.
func (c creation) needsKeys() bool { return c.holdsKey() || c.unique != nil }

func (c creation) scope() scopedKey { return scopedKey{c.id.Partition(), c.namespace, c.storedKey} }

// takenKey is the execution named by a key. Without facts the execution can't be compared any more: it was deleted, or a
// result may have replaced the payload.
type takenKey struct {
	id    id.ExecutionID
	facts *db.ReadKeyedExecutionsRow
}

// conflict returns an error unless a creation repeats the execution's creation.
func (k takenKey) conflict(c *creation) error {
	f := k.facts
	if f == nil {
		return nil
	}
	switch digest := sha256.Sum256(c.payload); {
	case f.ExecutionKind != c.kind:
		return c.conflictWith(k.id, fmt.Sprintf("is of kind %q", f.ExecutionKind))
	case core.Deref(f.FlowID) != core.Deref(c.flow):
		return c.conflictWith(k.id, "belongs to another flow, or to none")
	case c.flow == nil && f.LaneID != c.lane:
		return c.conflictWith(k.id, "is on lane "+f.LaneID)
	case f.Fed:
		return nil
	case f.PayloadEncoding != c.encoding || hex.EncodeToString(digest[:]) != f.PayloadDigest:
		return c.conflictWith(k.id, otherPayload)
	}
	return nil
}

const otherPayload = "has another payload"

func (c *creation) conflictWith(existing id.ExecutionID, differs string) error {
	return &fferr.KeyConflictError{Key: id.IdempotencyKey(c.key), Existing: existing, Differs: differs}
}
