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
	MaxSignalDepth   = 1000     // arrays and objects of JSON inside each other

	maxSignalText = 1024
	maxSignalKey  = 256
)

// DefaultDedup is how long an idempotency key of a signal is remembered by default.
const DefaultDedup = 24 * time.Hour

// SignalSpec describes a signal to an execution.
type SignalSpec struct {
	// Execution is the execution to signal. Instead of it, BusinessKey names it by the key that it was created with.
	Execution   id.ExecutionID
	BusinessKey id.BusinessKey

	Name    string // required; at most 256 bytes
	Payload []byte // at most [MaxSignalPayload] bytes; JSON is nested at most [MaxSignalDepth] deep

	// ID makes repetitions of the call one signal, as long as the execution exists and a replay has not dropped the signal.
	// Default: a new one.
	ID id.SignalID

	// IdempotencyKey does the same for a sender that has a key of its own, such as the id of a webhook's event, for
	// DedupFor from the first call on. The key belongs to the execution and the name. At most 256 bytes.
	IdempotencyKey string
	DedupFor       time.Duration // default [DefaultDedup]

	// Source is the identity of the sender, SourceType its kind: "user" and "ada". [DistinctSources] counts pairs of
	// them. Each at most 1,024 bytes, like Category and CorrelationID.
	Source        string
	SourceType    string
	Category      string
	CorrelationID string
}

// SignalEffect is the effect of a signal.
type SignalEffect string

// The effects.
const (
	SignalBuffered  SignalEffect = "buffered"  // nothing waits for it; kept for a later wait
	SignalAppended  SignalEffect = "appended"  // the condition needs more
	SignalSatisfied SignalEffect = "satisfied" // the execution continues
)

// Signalled is the result of a signal.
type Signalled struct {
	Execution id.ExecutionID
	ID        id.SignalID // of the earlier one if it is a duplicate
	Duplicate bool        // it was received before, and nothing changed
	Effect    SignalEffect
}

// Signal sends a signal to an execution, whether it waits for it already or not. If the execution waits for the name, and
// the signal satisfies its condition, a worker continues it. Otherwise the signal is kept for a later wait, as long as
// the execution exists and has not ended.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrNotFound], also if no execution has the business key; [fferr.ErrEnded] after the
// execution's end, for a signal that it has not received before; [fferr.ErrTooManySignals] if the execution holds too many, or
// too large ones. Transaction: one statement; locks the execution, waiting up to two seconds, three times, then
// [fferr.ErrContention]. Emits a signal event and, with [SignalSatisfied], a completion event of the outcome "resumable". Safe
// to repeat with an ID or an IdempotencyKey.
func (e *Engine) Signal(ctx context.Context, spec SignalSpec) (Signalled, error) {
	return e.deliver(ctx, "signal execution", &spec, nil)
}

// WaitpointSignal is a signal to one waitpoint, by the bearer of its token.
type WaitpointSignal struct {
	SignalSpec
	Waitpoint id.WaitpointID
	Token     wire.WaitpointToken
}

// SignalWaitpoint sends a signal to a waitpoint for a sender that has its token instead of an account.
//
// Errors: as [Engine.Signal]. [fferr.ErrInvalidToken] for every token that is not this waitpoint's, or whose key is retired:
// the error is the same whether the execution or the waitpoint exist or not. With the right token also [fferr.ErrNotFound] if
// the waitpoint is closed, and [fferr.ErrWaitpointClosed] if it has expired, or its wait has timed out.
// Transaction: as [Engine.Signal], after one statement that reads the keys. A process remembers them for up to 5 seconds, so
// it may accept a key for as long after another process has ended it.
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

// VerifyWaitpoint checks that a token is that of a waitpoint, and its key not retired. It does not look at the waitpoint,
// which may be closed, and changes nothing.
//
// Errors: [fferr.ErrInvalidToken]. One statement, which reads the keys, or none: see [Engine.SignalWaitpoint].
func (e *Engine) VerifyWaitpoint(ctx context.Context, x id.ExecutionID, waitpoint id.WaitpointID, token wire.WaitpointToken) error {
	return core.Wrap("verify waitpoint", e.verifyToken(ctx, x, waitpoint, token))
}

// deliver delivers a signal, to a waitpoint or by its name.
func (e *Engine) deliver(ctx context.Context, op string, spec *SignalSpec, to *WaitpointSignal) (Signalled, error) {
	if err := e.checkSignal(spec); err != nil {
		return Signalled{}, core.Wrap(op, err)
	}
	document, err := spec.document()
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
		return signalledBy(x, to, row, due)
	})
}

// signalledBy returns the result of a delivery, and notes its notifications.
func signalledBy(x id.ExecutionID, to *WaitpointSignal, row db.DeliverSignalRow, due *core.Notifications) (Signalled, error) {
	if err := signalRefused(x, to, row.Result); err != nil {
		return Signalled{}, err
	}
	signal, err := id.ParseSignalID(row.SignalID)
	if err != nil {
		return Signalled{}, core.Corrupt("ff_suspension_current.member_map", err)
	}
	signalled := Signalled{Execution: x, ID: signal, Duplicate: row.Result == "duplicate", Effect: SignalEffect(row.Effect)}
	if !signalled.Duplicate {
		due.SignalEvents()
	}
	if signalled.Effect == SignalSatisfied {
		due.Completions()
		if row.Lane != "" {
			due.Resumed(row.Lane)
		} else {
			// It waits for its delay, or before its gate.
			due.Delayed = true
			due.Gated()
		}
	}
	return signalled, nil
}

// deliverOnce executes the statement that delivers a signal, and returns the execution that it found.
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

// isNestedDeeper reports whether a payload is JSON, as far as it is read, whose arrays and objects are more than limit deep
// inside each other.
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

// document renders the parts of a signal that its sender gives.
func (s *SignalSpec) document() (string, error) {
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
	text, err := json.Marshal(document)
	return string(text), err
}
