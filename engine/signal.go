package engine

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/condition"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Limits of a signal.
const (
	MaxSignalPayload = 64 << 10 // bytes
	MaxSignalDepth   = 1000     // nested arrays and objects of JSON

	maxSignalText = 1024
	maxSignalKey  = 256
)

// DefaultDedup is the default time to remember the idempotency key of a signal.
const DefaultDedup = 24 * time.Hour

// SignalSpec describes a signal to an execution.
type SignalSpec struct {
	// Execution is the execution to signal. Instead, BusinessKey names the execution created with this key.
	Execution   id.ExecutionID
	BusinessKey id.BusinessKey

	Name    string // required; at most 256 bytes
	Payload []byte // at most [MaxSignalPayload] bytes; JSON is nested at most [MaxSignalDepth] deep

	// ID makes repeated calls one signal, while the execution exists and no replay has dropped the signal. Default: a
	// new one.
	ID id.SignalID

	// IdempotencyKey does the same by the sender's own key, such as the id of a webhook's event, for DedupFor after
	// the first call. A key belongs to the execution and the name. At most 256 bytes.
	IdempotencyKey string
	DedupFor       time.Duration // default [DefaultDedup]

	// Source is the identity of the sender, SourceType its kind: "user" and "ada". [DistinctSources] counts pairs. At
	// most 1,024 bytes each, like Category and CorrelationID.
	Source        string
	SourceType    string
	Category      string
	CorrelationID string
}

// SignalEffect is the effect of a signal.
type SignalEffect string

// The effects.
const (
	SignalBuffered  SignalEffect = "buffered"  // kept for a later wait
	SignalAppended  SignalEffect = "appended"  // received, but the condition needs more
	SignalSatisfied SignalEffect = "satisfied" // the execution continues
)

// Signalled is the result of a signal.
type Signalled struct {
	Execution id.ExecutionID
	ID        id.SignalID // the earlier signal's for a duplicate
	Duplicate bool        // received before; nothing changed
	Effect    SignalEffect
}

// Signal sends a signal to an execution. If the execution waits for the name, and the signal satisfies the condition,
// a worker continues the execution. Otherwise the signal is kept for a later wait until the execution ends.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrNotFound] for an unknown execution or business key; [fferr.ErrEnded] for
// a new signal after the execution's end; [fferr.ErrTooManySignals] if the execution holds too many or too large
// signals.
//
// Transaction: one. Locks the execution, waiting up to two seconds, three times, then [fferr.ErrContention]. Emits a
// signal event and, with [SignalSatisfied], a completion event of the outcome "resumable". Safe to repeat with an ID
// or IdempotencyKey.
func (e *Engine) Signal(ctx context.Context, spec SignalSpec) (Signalled, error) {
	return e.deliver(ctx, "signal execution", &spec, nil)
}

// WaitpointSignal is a signal to one waitpoint, by the holder of the waitpoint's token.
type WaitpointSignal struct {
	SignalSpec
	Waitpoint id.WaitpointID
	Token     wire.WaitpointToken
}

// SignalWaitpoint sends a signal to a waitpoint, for a sender with the token instead of an account.
//
// Errors: as [Engine.Signal]; [fferr.ErrInvalidToken] for another token or a retired key, even if the execution or
// waitpoint does not exist. With the right token also [fferr.ErrNotFound] for a closed waitpoint, and
// [fferr.ErrWaitpointClosed] after the waitpoint expired or the wait timed out.
//
// Transaction: as [Engine.Signal]. Keys are cached for up to 5 seconds, so a key retired by another process may be
// accepted as long.
func (e *Engine) SignalWaitpoint(ctx context.Context, spec WaitpointSignal) (Signalled, error) {
	const op = "signal waitpoint"
	if !spec.BusinessKey.IsZero() {
		return Signalled{}, core.Wrap(op, core.Invalid("business key", "has no effect for a waitpoint: set Execution"))
	}
	if err := e.verifyToken(ctx, spec.Execution, spec.Waitpoint, spec.Token); err != nil {
		return Signalled{}, core.Wrap(op, err)
	}
	return e.deliver(ctx, op, &spec.SignalSpec, &spec)
}

// VerifyWaitpoint checks that a token belongs to a waitpoint, and that the key is not retired. It does not read the
// waitpoint, which may be closed.
//
// Errors: [fferr.ErrInvalidToken]. Keys are cached: see [Engine.SignalWaitpoint].
func (e *Engine) VerifyWaitpoint(ctx context.Context, x id.ExecutionID, waitpoint id.WaitpointID, token wire.WaitpointToken) error {
	return core.Wrap("verify waitpoint", e.verifyToken(ctx, x, waitpoint, token))
}

// deliver delivers a signal, to a waitpoint or by name.
func (e *Engine) deliver(ctx context.Context, op string, spec *SignalSpec, to *WaitpointSignal) (Signalled, error) {
	if err := e.checkSignal(spec); err != nil {
		return Signalled{}, core.Wrap(op, err)
	}
	document, err := spec.document(e.c.TraceContext(ctx))
	if err != nil {
		return Signalled{}, core.Wrap(op, err)
	}
	params := db.DeliverSignalParams{
		PartitionKey: spec.Execution.Partition(), ExecutionID: core.PgUUID(spec.Execution.UUID()), Signal: document,
		Payload: spec.Payload, DedupTtlMs: spec.dedupTTLMs(), NowMs: e.c.NowMs(),
	}
	if to != nil {
		hash := sha256.Sum256([]byte(to.Token.Reveal()))
		params.WaitpointID, params.TokenHash = pgtype.UUID{Bytes: to.Waitpoint, Valid: true}, hash[:]
	}
	return core.InStatement(ctx, e.c, op, func(conn db.DBTX, due *core.Notifications) (Signalled, error) {
		x, row, err := e.deliverOnce(ctx, conn, spec, params)
		if err != nil {
			return Signalled{}, err
		}
		return e.signalledBy(x, spec.Name, to, row, due)
	})
}

// signalledBy returns the result of a delivery, and adds the notifications to due.
func (e *Engine) signalledBy(
	x id.ExecutionID, name string, to *WaitpointSignal, row db.DeliverSignalRow, due *core.Notifications,
) (Signalled, error) {
	if err := signalRefused(x, to, row.Result); err != nil {
		return Signalled{}, err
	}
	signal, err := id.ParseSignalID(row.SignalID)
	if err != nil {
		return Signalled{}, core.Corrupt("ff_suspension_current.member_map", err)
	}
	signalled := Signalled{Execution: x, ID: signal, Duplicate: row.Result == "duplicate", Effect: SignalEffect(row.Effect)}
	e.c.NoteSignalled(due, name, signalled.Duplicate)
	if !signalled.Duplicate {
		due.SignalEvents()
	}
	if signalled.Effect == SignalSatisfied {
		due.Completions()
		if row.Lane != "" {
			due.Resumed(row.Lane)
		} else {
			// The execution waits for a delay, or before its gate.
			due.Delayed = true
			due.Gated()
		}
	}
	return signalled, nil
}

// deliverOnce executes the statement that delivers a signal, and returns the execution found.
func (e *Engine) deliverOnce(
	ctx context.Context, conn db.DBTX, spec *SignalSpec, params db.DeliverSignalParams,
) (id.ExecutionID, db.DeliverSignalRow, error) {
	key := spec.BusinessKey
	if key.IsZero() {
		row, err := e.c.Q.DeliverSignal(ctx, conn, params)
		return spec.Execution, row, err
	}
	row, err := e.c.Q.DeliverSignalTo(ctx, conn, db.DeliverSignalToParams{
		PartitionKey: businessKeyPartition(key), Name: key.Name, Value: key.Value, Signal: params.Signal, Payload: params.Payload,
		DedupTtlMs: params.DedupTtlMs, NowMs: params.NowMs,
	})
	if core.IsNoRow(err) {
		err = &fferr.NotFoundError{Entity: "execution", ID: key.String()}
	}
	return id.ExecutionIDFromRow(row.HolderPartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes)), db.DeliverSignalRow{
		Result: row.Result, SignalID: row.SignalID, Effect: row.Effect, Lane: row.Lane,
	}, err
}

// signalRefused returns the error for a result of ffx_deliver, or nil.
func signalRefused(x id.ExecutionID, to *WaitpointSignal, result string) error {
	switch result {
	case "accepted", "duplicate":
		return nil
	case "no execution":
		return &fferr.NotFoundError{Entity: "execution", ID: x.String()}
	case "no waitpoint":
		return &fferr.NotFoundError{Entity: "waitpoint", ID: to.Waitpoint.String()}
	case "invalid token", "other execution":
		return fferr.ErrInvalidToken
	case "ended":
		return fmt.Errorf("execution %s: %w", x, fferr.ErrEnded)
	case "expired", "closed", "not waiting":
		return fmt.Errorf("waitpoint %s: %w", to.Waitpoint, fferr.ErrWaitpointClosed)
	}
	return fmt.Errorf("execution %s: %w", x, fferr.ErrTooManySignals)
}

func (e *Engine) checkSignal(spec *SignalSpec) error {
	if err := e.checkReceiver(spec); err != nil {
		return err
	}
	if err := condition.CheckName(spec.Name); err != nil {
		return core.Invalid("name", err.Error())
	}
	switch {
	case len(spec.Payload) > MaxSignalPayload:
		return core.Invalid("payload", fmt.Sprintf("%d bytes, limit %d", len(spec.Payload), MaxSignalPayload))
	case isNestedDeeper(spec.Payload, MaxSignalDepth):
		return core.Invalid("payload", fmt.Sprintf("its JSON is nested more than %d deep", MaxSignalDepth))
	case spec.DedupFor < 0:
		return core.Invalid("dedup for", "is negative")
	}
	for field, text := range map[string]string{
		"source": spec.Source, "source type": spec.SourceType, "category": spec.Category, "correlation id": spec.CorrelationID,
	} {
		if err := core.CheckText(field, text, maxSignalText); err != nil {
			return err
		}
	}
	return core.CheckText("idempotency key", spec.IdempotencyKey, maxSignalKey)
}

// isNestedDeeper reports whether a payload is JSON, as far as read, with arrays and objects nested more than limit
// deep.
func isNestedDeeper(payload []byte, limit int) bool {
	if bytes.Count(payload, []byte("["))+bytes.Count(payload, []byte("{")) <= limit {
		return false
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	for depth := 0; depth <= limit; {
		token, err := decoder.Token()
		if err != nil {
			return false
		}
		switch token {
		case json.Delim('['), json.Delim('{'):
			depth++
		case json.Delim(']'), json.Delim('}'):
			depth--
		}
	}
	return true
}

func (s *SignalSpec) dedupTTLMs() int64 { return cmp.Or(s.DedupFor, DefaultDedup).Milliseconds() }

// checkReceiver requires either an execution or a business key.
func (e *Engine) checkReceiver(spec *SignalSpec) error {
	switch {
	case spec.BusinessKey.IsZero():
		return e.c.CheckExecution(spec.Execution)
	case !spec.Execution.IsZero():
		return core.Invalid("business key", "is given together with an execution: set one of them")
	}
	return checkBusinessKey(spec.BusinessKey)
}

// document renders the sender's parts of a signal.
func (s *SignalSpec) document(trace string) (string, error) {
	document := map[string]string{
		"signal_name": s.Name, "signal_category": s.Category, "source_type": s.SourceType, "source_identity": s.Source,
		"correlation_id": s.CorrelationID, "payload_encoding": "json", "target_scope": "execution",
	}
	if !s.ID.IsZero() {
		document["signal_id"] = s.ID.String()
	}
	if s.IdempotencyKey != "" {
		document["idempotency_key"] = s.IdempotencyKey
	}
	if trace != "" {
		document["ffx_trace"] = trace
	}
	text, err := json.Marshal(document)
	return string(text), err
}
