package id

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/flowfabric/flowfabric-go/internal/hash"
)

// LaneID names a lane: 1 to 64 printable ASCII bytes. Lanes order by bytes.
type LaneID string

// Namespace scopes executions and flows by tenant: 1 to 255 bytes of UTF-8 without
// control characters.
type Namespace string

// WorkerID names a worker: 1 to 255 bytes of UTF-8 without control characters or "|".
type WorkerID string

// WorkerInstanceID names one running process of a worker, under the rule of [WorkerID].
type WorkerInstanceID string

// WaitpointKey addresses a waitpoint: 1 to 512 bytes of UTF-8 without NUL, not beginning
// with "__".
type WaitpointKey string

// IdempotencyKey identifies a call, so repeating the call has no further effect. Empty means none.
type IdempotencyKey string

// Largest length of an [IdempotencyKey] for each use, in bytes.
const (
	MaxSignalKey = 256 // suspend and signals
	MaxUsageKey  = 512 // usage reports
	MaxCreateKey = 1024
)

// Limits of names, in bytes.
const (
	maxLane         = 64
	maxName         = 255
	maxWaitpointKey = 512
	maxTagKey       = 256
	maxDeadReason   = 256
)

// OperatorWorker is the worker id and worker instance id of a claim made by an operator.
const OperatorWorker = "operator"

// Validate returns an error for a lane that cannot be stored.
//
// Errors: [*ParseError] with ReasonEmpty, ReasonTooLong (Detail: the length in bytes) or ReasonNonPrintable (Detail: the
// index of the first bad byte).
func (l LaneID) Validate() error {
	const typ = "lane id"
	switch {
	case l == "":
		return &ParseError{Type: typ, Reason: ReasonEmpty}
	case len(l) > maxLane:
		return &ParseError{Type: typ, Reason: ReasonTooLong, Detail: strconv.Itoa(len(l))}
	}
	for i := range len(l) {
		if l[i] < 0x20 || l[i] > 0x7e {
			return &ParseError{Type: typ, Reason: ReasonNonPrintable, Detail: strconv.Itoa(i)}
		}
	}
	return nil
}

// UnmarshalText sets l to text if [LaneID.Validate] accepts it.
func (l *LaneID) UnmarshalText(text []byte) error {
	parsed := LaneID(text)
	if err := parsed.Validate(); err != nil {
		return err
	}
	*l = parsed
	return nil
}

// Validate returns an error for a namespace that must not be written. Stored ones are read without it.
func (n Namespace) Validate() error {
	return checkText("namespace", string(n), maxName, unicode.IsControl)
}

// Validate returns an error for a worker id that must not be written. Stored ones are read without it.
func (w WorkerID) Validate() error {
	return checkText("worker id", string(w), maxName, isForbiddenInWorker)
}

// Validate returns an error for a worker instance id that must not be written. Stored ones are read without it.
func (w WorkerInstanceID) Validate() error {
	return checkText("worker instance id", string(w), maxName, isForbiddenInWorker)
}

// Partition returns the partition_key of the worker's row in the registry. There are always 256.
func (w WorkerInstanceID) Partition() int16 { return int16(hash.FNV1a(string(w)) % 256) }

// isForbiddenInWorker reports whether r may not be in a worker's name. The pipe separates the fields of a signed grant
// message.
func isForbiddenInWorker(r rune) bool { return r == '|' || unicode.IsControl(r) }

// Validate returns an error for a waitpoint key that must not be written. Stored ones are read without it.
func (k WaitpointKey) Validate() error {
	const typ = "waitpoint key"
	if strings.HasPrefix(string(k), "__") {
		return refuse(typ, ReasonReservedPrefix, string(k))
	}
	return checkText(typ, string(k), maxWaitpointKey, isNUL)
}

// Validate returns an error for a key longer than maxBytes, which depends on its use.
func (k IdempotencyKey) Validate(maxBytes int) error {
	if k == "" {
		return nil
	}
	return checkText("idempotency key", string(k), maxBytes, isNUL)
}

// CheckText returns an error for text Postgres cannot store: invalid UTF-8 or a NUL. The first argument names the text
// in the error.
func CheckText(what, s string) error {
	if s == "" {
		return nil
	}
	return checkText(what, s, len(s), isNUL)
}

// CheckDeadReason returns an error for a reason for declaring a worker dead that is longer than 256 bytes or contains
// control characters.
func CheckDeadReason(reason string) error {
	if reason == "" {
		return nil
	}
	return checkText("dead reason", reason, maxDeadReason, unicode.IsControl)
}

func isNUL(r rune) bool { return r == 0 }

func checkText(typ, s string, maxBytes int, forbidden func(rune) bool) error {
	switch {
	case s == "":
		return &ParseError{Type: typ, Reason: ReasonEmpty}
	case len(s) > maxBytes:
		return &ParseError{Type: typ, Reason: ReasonTooLong, Detail: strconv.Itoa(len(s))}
	case !utf8.ValidString(s):
		return &ParseError{Type: typ, Reason: ReasonInvalidUTF8}
	}
	if i := strings.IndexFunc(s, forbidden); i >= 0 {
		return &ParseError{Type: typ, Reason: ReasonForbiddenCharacter, Detail: strconv.Itoa(i)}
	}
	return nil
}

// CheckTagKey returns an error for a tag key that is not "namespace.name": lower-case letters, digits and underscores,
// starting with a letter; the name may contain dots after its first character. It applies to setting and getting a tag,
// and to the tags a flow is created with.
func CheckTagKey(key string) error {
	namespace, name, ok := strings.Cut(key, ".")
	if !ok || !isTagNamespace(namespace) || name == "" || name[0] == '.' || strings.IndexFunc(name, isNotTagName) >= 0 {
		return refuse("tag key", ReasonMalformed, key)
	}
	return nil
}

// CheckCreateTagKey returns an error for a tag key an execution cannot be created with: empty, longer than 256 bytes,
// or not storable.
func CheckCreateTagKey(key string) error {
	return checkText("tag key", key, maxTagKey, isNUL)
}

// IsFlowTag reports whether a key of a flow's stored fields is a tag. The flow's own fields have no dot.
func IsFlowTag(key string) bool {
	namespace, _, ok := strings.Cut(key, ".")
	return ok && isTagNamespace(namespace)
}

func isTagNamespace(s string) bool {
	return s != "" && 'a' <= s[0] && s[0] <= 'z' && strings.IndexFunc(s, isNotTagWord) < 0
}

func isNotTagWord(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
}

func isNotTagName(r rune) bool { return r != '.' && isNotTagWord(r) }
