package id

// Limits of a [BusinessKey] in bytes.
const (
	MaxBusinessKeyName  = 64
	MaxBusinessKeyValue = 512
)

// BusinessKey is a key of the application, such as order 4711, by which an execution or a flow is found and signalled.
// The zero value is no key.
//
// A key is unique in the database, in all namespaces, lanes and kinds and over executions and flows together: a second
// creation with it is refused with ErrKeyConflict as long as the first execution or flow is kept, whether it has ended
// or not. Retention deletes the key with it; then the key may be used again.
//
// An idempotency key is another thing: with it a repeated creation is a success, the same one. Give both to a creation
// you repeat, as the key conflicts with itself otherwise.
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
