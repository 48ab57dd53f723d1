package engine

import (
	"cmp"
	"crypto/sha256"
	"fmt"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// checkBusinessKey refuses a key if a part is missing, too long or not text.
func checkBusinessKey(k id.BusinessKey) error {
	for _, part := range [...]struct {
		field, text string
		limit       int
	}{
		{"business key name", k.Name, id.MaxBusinessKeyName}, {"business key value", k.Value, id.MaxBusinessKeyValue},
	} {
		if part.text == "" {
			return core.Invalid(part.field, "is empty")
		}
		if err := core.CheckText(part.field, part.text, part.limit); err != nil {
			return err
		}
	}
	return nil
}

// businessKeyPartition returns the partition of the key's row, as ffx_key_partition does in SQL.
func businessKeyPartition(k id.BusinessKey) int16 {
	digest := sha256.Sum256([]byte(k.Name + "\x00" + k.Value))
	return int16(digest[0])
}

// compareBusinessKeys compares keys in the order of locks.
func compareBusinessKeys(k, other id.BusinessKey) int {
	return cmp.Or(
		cmp.Compare(businessKeyPartition(k), businessKeyPartition(other)), cmp.Compare(k.Name, other.Name), cmp.Compare(k.Value, other.Value),
	)
}

// keyHolder is the execution or the flow with a business key.
type keyHolder struct {
	execution id.ExecutionID
	flow      *id.FlowID // nil for an execution
}

// conflict returns the error for a creation with a key of the holder.
func (h keyHolder) conflict(key id.BusinessKey) error {
	return &fferr.KeyConflictError{
		BusinessKey: key, Existing: h.execution, ExistingFlow: h.flow, Differs: fmt.Sprintf("has the business key %q", key.Name),
	}
}
