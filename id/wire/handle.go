package wire

import (
	"encoding"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/flowfabric/flowfabric-go/id"
)

// Handle identifies an attempt to its worker. Callers forward a handle and never inspect Opaque.
type Handle struct {
	Backend Backend
	Kind    HandleKind
	Opaque  []byte
}

// Backend is the kind of storage that minted a handle.
type Backend uint8

// The backends, by their wire byte. This library mints [Postgres] only.
const (
	Valkey   Backend = 1
	Postgres Backend = 2
	SQLite   Backend = 3
)

// Backends lists the backends in order.
func Backends() []Backend { return []Backend{Valkey, Postgres, SQLite} }

// String returns the backend's name in JSON.
func (b Backend) String() string {
	switch b {
	case Valkey:
		return "Valkey"
	case Postgres:
		return "Postgres"
	case SQLite:
		return "Sqlite"
	}
	return "Backend(" + strconv.Itoa(int(b)) + ")"
}

// HandleKind is how a handle was made. The kind is informative: no operation refuses a handle because of its kind.
type HandleKind string

// The kinds of handles.
const (
	HandleFresh     HandleKind = "Fresh"     // a claim of a new or replayed attempt
	HandleResumed   HandleKind = "Resumed"   // a claim of an interrupted attempt
	HandleSuspended HandleKind = "Suspended" // a suspension; carries the ended epoch
	HandleReclaimed HandleKind = "Reclaimed" // a reclaim of a lapsed lease
)

// HandleKinds lists the kinds in order.
func HandleKinds() []HandleKind {
	return []HandleKind{HandleFresh, HandleResumed, HandleSuspended, HandleReclaimed}
}

// HandleFields has the fields stored in the opaque bytes of a handle.
type HandleFields struct {
	Execution      id.ExecutionID
	AttemptIndex   uint32
	AttemptID      id.AttemptID
	LeaseID        id.LeaseID
	LeaseEpoch     uint64
	LeaseTTLMs     uint64
	Lane           id.LaneID           // not validated when decoded; may be empty
	WorkerInstance id.WorkerInstanceID // not validated when decoded; may be empty
}

// HandleReason says why the opaque bytes of a handle were refused.
type HandleReason string

// The reasons a [HandleError] carries.
const (
	HandleTruncated      HandleReason = "Truncated"
	HandleBadLeadingByte HandleReason = "BadLeadingByte"
	HandleBadWireVersion HandleReason = "BadWireVersion"
	HandleBadBackendTag  HandleReason = "BadBackendTag"
	HandleInvalidUTF8    HandleReason = "InvalidUtf8"
	HandleParseField     HandleReason = "ParseField"
	HandleTrailingBytes  HandleReason = "TrailingBytes"
)

// HandleError reports opaque bytes that are not a handle: damaged or forged.
type HandleError struct {
	Reason HandleReason
	Field  string // InvalidUtf8, ParseField
	Got    byte   // BadLeadingByte, BadWireVersion, BadBackendTag
	Needed uint32 // Truncated: bytes asked for
	At     int    // Truncated, TrailingBytes: position
	Have   int    // Truncated, TrailingBytes: length of the whole
}

func (e *HandleError) Error() string {
	detail := ""
	switch e.Reason {
	case HandleTruncated:
		detail = fmt.Sprintf("needed %d bytes at %d, have %d", e.Needed, e.At, e.Have)
	case HandleTrailingBytes:
		detail = fmt.Sprintf("ends at %d of %d", e.At, e.Have)
	case HandleInvalidUTF8, HandleParseField:
		detail = e.Field
	default:
		detail = fmt.Sprintf("0x%02x", e.Got)
	}
	return fmt.Sprintf("handle_codec: %s: %s", e.Reason, detail)
}

// ForeignHandleError reports a handle another kind of storage minted, sent to the wrong engine.
type ForeignHandleError struct {
	Actual   Backend
	Embedded bool // the outer tag says Postgres, but the bytes don't
}

func (e *ForeignHandleError) Error() string {
	text := "expected=Postgres actual=" + e.Actual.String()
	if e.Embedded {
		text += " (embedded tag)"
	}
	return text
}

const (
	handleMagic       = 0x02
	handleWireVersion = 0x01
	handleLegacy      = 0x01
)

// EncodeHandle returns a Postgres handle.
func EncodeHandle(kind HandleKind, f HandleFields) Handle {
	const fixed = 3 + 5*4 + 4 + 8 + 8 + len("{fp:65535}:") + 3*uuidLen
	b := make([]byte, 0, fixed+len(f.Lane)+len(f.WorkerInstance))
	b = append(b, handleMagic, handleWireVersion, byte(Postgres))
	b = appendText(b, f.Execution)
	b = binary.LittleEndian.AppendUint32(b, f.AttemptIndex)
	b = appendText(b, f.AttemptID)
	b = appendText(b, f.LeaseID)
	b = binary.LittleEndian.AppendUint64(b, f.LeaseEpoch)
	b = binary.LittleEndian.AppendUint64(b, f.LeaseTTLMs)
	b = appendLengthPrefixed(b, f.Lane)
	b = appendLengthPrefixed(b, f.WorkerInstance)
	return Handle{Backend: Postgres, Kind: kind, Opaque: b}
}

// appendText appends the text of an id, after the length. It cannot fail.
func appendText[T encoding.TextAppender](b []byte, value T) []byte {
	length := len(b)
	b = append(b, 0, 0, 0, 0)
	b, _ = value.AppendText(b)
	binary.LittleEndian.PutUint32(b[length:], uint32(len(b)-length-4))
	return b
}

func appendLengthPrefixed[S ~string | ~[]byte](b []byte, s S) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

// CheckPostgres returns the fields of a handle this engine may act on.
//
// Errors: [*ForeignHandleError] if another backend minted the handle, by the outer tag or by the tag in the bytes;
// [*HandleError] if the bytes are not a handle.
func (h Handle) CheckPostgres() (HandleFields, error) {
	if h.Backend != Postgres {
		return HandleFields{}, &ForeignHandleError{Actual: h.Backend}
	}
	fields, embedded, err := DecodeHandle(h.Opaque)
	if err != nil {
		return HandleFields{}, err
	}
	if embedded != Postgres {
		return HandleFields{}, &ForeignHandleError{Actual: embedded, Embedded: true}
	}
	return fields, nil
}

// DecodeHandle decodes the opaque bytes of any backend's handle. The legacy form without a tag is accepted: the backend
// is Valkey.
//
// Errors: [*HandleError].
func DecodeHandle(opaque []byte) (HandleFields, Backend, error) {
	r := handleReader{buf: opaque}
	backend := r.header()
	var f HandleFields
	var err error
	text := r.text("execution_id")
	if r.err == nil {
		f.Execution, err = id.ParseExecutionID(text)
		r.parsed("execution_id", err)
	}
	f.AttemptIndex = r.uint32()
	if text = r.text("attempt_id"); r.err == nil {
		f.AttemptID, err = id.ParseAttemptID(text)
		r.parsed("attempt_id", err)
	}
	if text = r.text("lease_id"); r.err == nil {
		f.LeaseID, err = id.ParseLeaseID(text)
		r.parsed("lease_id", err)
	}
	f.LeaseEpoch = r.uint64()
	f.LeaseTTLMs = r.uint64()
	f.Lane = id.LaneID(r.text("lane_id"))
	f.WorkerInstance = id.WorkerInstanceID(r.text("worker_instance_id"))
	if r.err == nil && r.pos < len(opaque) {
		r.err = &HandleError{Reason: HandleTrailingBytes, At: r.pos, Have: len(opaque)}
	}
	if r.err != nil {
		return HandleFields{}, 0, r.err
	}
	return f, backend, nil
}

// handleReader reads from buf until its first error. Afterwards it returns zero values.
type handleReader struct {
	buf []byte
	pos int
	err error
}

func (r *handleReader) header() Backend {
	switch lead := r.byte(); lead {
	case handleMagic:
		if version := r.byte(); version != handleWireVersion {
			r.fail(&HandleError{Reason: HandleBadWireVersion, Got: version})
		}
		tag := r.byte()
		if tag < byte(Valkey) || tag > byte(SQLite) {
			r.fail(&HandleError{Reason: HandleBadBackendTag, Got: tag})
		}
		return Backend(tag)
	case handleLegacy:
		return Valkey
	default:
		r.fail(&HandleError{Reason: HandleBadLeadingByte, Got: lead})
		return 0
	}
}

func (r *handleReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *handleReader) parsed(field string, err error) {
	if err != nil {
		r.fail(&HandleError{Reason: HandleParseField, Field: field})
	}
}

func (r *handleReader) take(n uint32) []byte {
	if r.err != nil {
		return nil
	}
	if uint64(n) > uint64(len(r.buf)-r.pos) {
		r.err = &HandleError{Reason: HandleTruncated, Needed: n, At: r.pos, Have: len(r.buf)}
		return nil
	}
	taken := r.buf[r.pos : r.pos+int(n)]
	r.pos += int(n)
	return taken
}

func (r *handleReader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *handleReader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *handleReader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *handleReader) text(field string) string {
	b := r.take(r.uint32())
	if r.err == nil && !utf8.Valid(b) {
		r.err = &HandleError{Reason: HandleInvalidUTF8, Field: field}
	}
	return string(b)
}

// MarshalJSON returns {"backend","kind","opaque"}; opaque is an array of byte values.
func (h Handle) MarshalJSON() ([]byte, error) {
	opaque := make([]uint16, len(h.Opaque))
	for i, b := range h.Opaque {
		opaque[i] = uint16(b)
	}
	return json.Marshal(struct {
		Backend string     `json:"backend"`
		Kind    HandleKind `json:"kind"`
		Opaque  []uint16   `json:"opaque"`
	}{h.Backend.String(), h.Kind, opaque})
}

// UnmarshalJSON parses the output of MarshalJSON. All three members are required. UnmarshalJSON does not decode the
// opaque bytes.
func (h *Handle) UnmarshalJSON(data []byte) error {
	const typ = "handle"
	members, err := requireMembers(typ, data, "backend", "kind", "opaque")
	if err != nil {
		return err
	}
	var backend, kind string
	var opaque []*uint8
	for i, into := range []any{&backend, &kind, &opaque} {
		if err := json.Unmarshal(members[i], into); err != nil {
			return &id.ParseError{Type: typ, Reason: id.ReasonMalformed}
		}
	}
	parsed := Handle{Kind: HandleKind(kind), Opaque: make([]byte, len(opaque))}
	for _, b := range Backends() {
		if b.String() == backend {
			parsed.Backend = b
		}
	}
	switch parsed.Kind {
	case HandleFresh, HandleResumed, HandleSuspended, HandleReclaimed:
	default:
		parsed.Backend = 0
	}
	if parsed.Backend == 0 {
		return &id.ParseError{Type: typ, Reason: id.ReasonMalformed}
	}
	for i, b := range opaque {
		if b == nil {
			return &id.ParseError{Type: typ, Reason: id.ReasonMalformed}
		}
		parsed.Opaque[i] = *b
	}
	*h = parsed
	return nil
}

// requireMembers returns the named members of a JSON object, in order. None may be missing or null. Unlike encoding/json
// for a struct, requireMembers matches keys exactly.
func requireMembers(typ string, data []byte, names ...string) ([]json.RawMessage, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, &id.ParseError{Type: typ, Reason: id.ReasonMalformed}
	}
	members := make([]json.RawMessage, len(names))
	for i, name := range names {
		raw, ok := object[name]
		if !ok || string(raw) == "null" {
			return nil, &id.ParseError{Type: typ, Reason: id.ReasonMalformed, Detail: name + " is required"}
		}
		members[i] = raw
	}
	return members, nil
}
