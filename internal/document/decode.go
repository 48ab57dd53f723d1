package document

import (
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"
)

// DecodeError reports an invalid policy document.
type DecodeError struct {
	Path    string // the offending key, such as "retry_policy.max_retries"; empty for the whole
	Problem string
}

func (e *DecodeError) Error() string {
	if e.Path == "" {
		return "policy: " + e.Problem
	}
	return "policy: " + e.Path + ": " + e.Problem
}

// object reads the members of a JSON object by their exact keys; encoding/json would ignore case and accept null for
// anything. The first problem is kept, and later reads are skipped. Members never read are ignored.
type object struct {
	members map[string]json.RawMessage
	err     error
}

func openObject(data []byte) *object {
	o := &object{}
	switch {
	case !utf8.Valid(data):
		o.fail("", "invalid UTF-8")
	case json.Unmarshal(data, &o.members) != nil || o.members == nil:
		o.fail("", "not an object")
	}
	return o
}

func (o *object) fail(key, problem string) {
	if o.err == nil {
		o.err = &DecodeError{Path: key, Problem: problem}
	}
}

// required returns the member, which must exist.
func (o *object) required(key string) json.RawMessage {
	raw, ok := o.members[key]
	if !ok {
		o.fail(key, "missing")
	}
	return raw
}

// optional returns the member, or nil if missing or null.
func (o *object) optional(key string) json.RawMessage {
	raw, ok := o.members[key]
	if !ok || string(raw) == "null" {
		return nil
	}
	return raw
}

// defaulted returns the member, or nil if missing. Null is a value here, and an error.
func (o *object) defaulted(key string) json.RawMessage {
	raw, ok := o.members[key]
	if !ok {
		return nil
	}
	return raw
}

// nested decodes raw, unless empty, and reports problems under key.
func (o *object) nested(key string, raw json.RawMessage, into json.Unmarshaler) {
	if o.err != nil || raw == nil {
		return
	}
	switch err := into.UnmarshalJSON(raw).(type) {
	case nil:
	case *DecodeError:
		if err.Path != "" {
			key += "." + err.Path
		}
		o.fail(key, err.Problem)
	default:
		o.fail(key, err.Error())
	}
}

func (o *object) text(key string, raw json.RawMessage) (s string) {
	if o.err == nil && raw != nil && (raw[0] != '"' || json.Unmarshal(raw, &s) != nil) {
		o.fail(key, "not a string")
	}
	return s
}

func (o *object) texts(key string, raw json.RawMessage) []string {
	list := []string{}
	for _, element := range o.array(key, raw) {
		list = append(list, o.text(key, element))
	}
	return list
}

func (o *object) array(key string, raw json.RawMessage) (elements []json.RawMessage) {
	if o.err == nil && raw != nil && (raw[0] != '[' || json.Unmarshal(raw, &elements) != nil) {
		o.fail(key, "not an array")
	}
	return elements
}

func (o *object) boolean(key string, raw json.RawMessage) (b bool) {
	if o.err == nil && raw != nil && (string(raw) == "null" || json.Unmarshal(raw, &b) != nil) {
		o.fail(key, "not a boolean")
	}
	return b
}

// float reads a number, written as an integer or not; other numbers must be integers.
func (o *object) float(key string, raw json.RawMessage) (f float64) {
	if o.err == nil && raw != nil && (string(raw) == "null" || json.Unmarshal(raw, &f) != nil) {
		o.fail(key, "not a number")
	}
	return f
}

func (o *object) uint32(key string, raw json.RawMessage) uint32 {
	n := o.uint64(key, raw)
	if n > math.MaxUint32 {
		o.fail(key, "not an unsigned 32-bit integer")
		return 0
	}
	return uint32(n)
}

func (o *object) uint64(key string, raw json.RawMessage) uint64 {
	if o.err != nil || raw == nil {
		return 0
	}
	n, ok := parseUint(raw)
	if !ok {
		o.fail(key, "not an unsigned integer")
	}
	return n
}

func (o *object) int64(key string, raw json.RawMessage, bits int) int64 {
	if o.err != nil || raw == nil {
		return 0
	}
	n, err := strconv.ParseInt(string(raw), 10, bits)
	if err != nil || string(raw) == "-0" {
		o.fail(key, "not a "+strconv.Itoa(bits)+"-bit integer")
	}
	return n
}

// parseUint parses a JSON number written as an unsigned integer.
func parseUint(raw json.RawMessage) (uint64, bool) {
	n, err := strconv.ParseUint(string(raw), 10, 64)
	return n, err == nil
}

// ifPresent applies read to an existing member, and returns nil for a missing one.
func ifPresent[T any](key string, raw json.RawMessage, read func(string, json.RawMessage) T) *T {
	if raw == nil {
		return nil
	}
	return new(read(key, raw))
}

// orDefault applies read to an existing member, and returns the default for a missing one.
func orDefault[T any](key string, raw json.RawMessage, read func(string, json.RawMessage) T, fallback T) T {
	if raw == nil {
		return fallback
	}
	return read(key, raw)
}
