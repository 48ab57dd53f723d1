package engine

import (
	"cmp"
	"crypto/sha256"
	"fmt"

	"github.com/flowfabric/flowfabric-go/id"
)

// Limits of a [BusinessKey] in bytes.
const (
	MaxBusinessKeyName  = 64
	MaxBusinessKeyValue = 512
)

// BusinessKey is a key of the application, such as order 4711, by which an execution or a flow is found and signalled.
// The zero value is no key.
//
// A key is unique in the database, in all namespaces, lanes and kinds and over executions and flows together: a second
// creation with it is refused with [ErrKeyConflict] as long as the first execution or flow is kept, whether it has ended
// or not. Retention deletes the key with it; then the key may be used again.
//
// An idempotency key is another thing: with it a repeated creation is a success, the same one. Give both to a creation
// that you repeat, as the key conflicts with itself otherwise.
type BusinessKey struct {
	Name  string `json:"name"`  // at most [MaxBusinessKeyName] bytes
	Value string `json:"value"` // at most [MaxBusinessKeyValue] bytes
}

// IsZero reports whether it is no key.
func (k BusinessKey) IsZero() bool { return k == BusinessKey{} }

// String returns the key for people, as "order=4711", and "" for none.
func (k BusinessKey) String() string {
	if k.IsZero() {
		return ""
	}
	return k.Name + "=" + k.Value
}

// check refuses a key with a part that is missing, too long or no text.
func (k BusinessKey) check() error {
	for _, part := range [...]struct {
		field, text string
		limit       int
	}{
		{"business key name", k.Name, MaxBusinessKeyName}, {"business key value", k.Value, MaxBusinessKeyValue},
	} {
		if part.text == "" {
			return invalid(part.field, "is empty")
		}
		if err := checkText(part.field, part.text, part.limit); err != nil {
			return err
		}
	}
	return nil
}

// partition returns the partition of the key's row, as ffx_key_partition does in SQL.
func (k BusinessKey) partition() int16 {
	digest := sha256.Sum256([]byte(k.Name + "\x00" + k.Value))
	return int16(digest[0])
}

// compare compares keys in the order in which they are locked.
func (k BusinessKey) compare(other BusinessKey) int {
	return cmp.Or(
		cmp.Compare(k.partition(), other.partition()), cmp.Compare(k.Name, other.Name), cmp.Compare(k.Value, other.Value),
	)
}

// keyHolder is the execution or the flow that has a business key.
type keyHolder struct {
	execution id.ExecutionID
	flow      *id.FlowID // nil for an execution
}

// conflict returns the error for a creation with a key of the holder.
func (h keyHolder) conflict(key BusinessKey) error {
	return &KeyConflictError{
		BusinessKey: key, Existing: h.execution, ExistingFlow: h.flow, Differs: fmt.Sprintf("has the business key %q", key.Name),
	}
}
