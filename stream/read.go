package stream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// MaxPage is the largest page of [Read].
const MaxPage = 10_000

// Entry is a frame in the output stream of an attempt, or the end of the attempt if Closed is set.
type Entry struct {
	Execution id.ExecutionID
	Attempt   int
	ID        wire.FramePosition
	Epoch     int64 // of the lease at the write; another epoch: the handler had begun again; 0: unknown
	Number    int64 // among all frames of the attempt, from 1; 0: unknown

	Mode           Mode
	Type           string
	Payload        []byte
	Correlation    string
	SummaryVersion int // of the attempt's document with this summary frame

	// Trimmed is how many frames are missing between this frame and the one before in the answer. It counts only best-effort
	// and summary frames, and is 0 if best-effort frames are skipped: a lost durable frame is a [fferr.StreamGapError].
	Trimmed int64

	// Closed is set at the end of an attempt in a tail, which is no frame. ID and Number then belong to the last frame.
	Closed *Closed

	durable int64 // number of durable frames, this one included
}

// At returns when the frame was appended.
func (f *Entry) At() time.Time { return time.UnixMilli(f.ID.TsMs) }

// End is how an attempt ended, for readers of its stream.
type End string

// The ends.
const (
	Succeeded   End = "attempt_success"
	Failed      End = "attempt_failure"
	Cancelled   End = "attempt_cancelled"
	Interrupted End = "attempt_interrupted"
)

// Closed says that no frame can follow in the stream of an attempt.
type Closed struct {
	At     time.Time
	Reason End
	Last   bool // the execution has ended: only a replay adds an attempt
}

// Range selects frames of an attempt for [Read].
type Range struct {
	Attempt int              // index, from 0
	From    wire.FrameCursor // first frame; default [wire.FrameStart]
	To      wire.FrameCursor // last frame; default [wire.FrameEnd]
	Limit   int              // 1 to [MaxPage]; required

	// After replaces Attempt and From, which must be zero, by an [Entry.Position], to read page after page.
	After Position

	SkipBestEffort bool
}

// Page is a part of a stream.
type Page struct {
	Frames []Entry
	Closed *Closed // the attempt has ended, and these frames are the last; nil otherwise
}

// Read reads a part of the output stream of an attempt, in the order of the frames, without a lease. A stream that does not
// exist is empty and open.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrNotFound] if the execution does not exist; [fferr.ErrCorruption] for an
// unreadable frame. Two statements in one round trip; takes no locks. Memory holds the whole page: 10,000 frames may have 640
// MB.
func Read(ctx context.Context, eng *engine.Engine, x id.ExecutionID, r Range) (Page, error) {
	c := core.Of(eng)
	const op = "read stream"
	read, err := rangeOf(c, x, r)
	if err != nil {
		return Page{}, core.Wrap(op, err)
	}
	answers, err := readStreams(ctx, c, []request{read})
	if err != nil {
		return Page{}, core.Wrap(op, err)
	}
	a := answers[0]
	switch {
	case a.err != nil:
		return Page{}, core.Wrap(op, a.err)
	case a.state == nil:
		return Page{}, core.Wrap(op, &fferr.NotFoundError{Entity: "execution", ID: x.String()})
	}
	page := Page{Frames: a.frames}
	if len(a.frames) < r.Limit && read.through == lastFrame {
		page.Closed = a.closed
	}
	return page, nil
}

var lastFrame = wire.FramePosition{TsMs: math.MaxInt64, Seq: math.MaxInt32}

func rangeOf(c *core.Core, x id.ExecutionID, r Range) (request, error) {
	if r.After != (Position{}) {
		switch {
		case r.Attempt != 0:
			return request{}, core.Invalid("attempt", "is set beside After, which names one")
		case r.From != "":
			return request{}, core.Invalid("from", "is set beside After")
		}
		r.Attempt = r.After.attempt
	}
	read := request{key: core.StreamKey{Execution: x, Attempt: r.Attempt}, size: r.Limit, skipBestEffort: r.SkipBestEffort}
	if err := checkStream(c, x, r.Attempt); err != nil {
		return read, err
	}
	if r.Limit < 1 || r.Limit > MaxPage {
		return read, core.Invalid("limit", fmt.Sprintf("must be between 1 and %d", MaxPage))
	}
	from, err := orCursor(r.From, wire.FrameStart).Lower()
	if err != nil {
		return read, core.InvalidBecause("from", err)
	}
	if read.through, err = orCursor(r.To, wire.FrameEnd).Upper(); err != nil {
		return read, core.InvalidBecause("to", err)
	}
	if read.after = from; from.Seq > math.MinInt32 {
		read.after.Seq-- // from is included
	}
	if r.After != (Position{}) {
		read.after = r.After.id
	}
	return read, nil
}

func orCursor(c, or wire.FrameCursor) wire.FrameCursor {
	if c == "" {
		return or
	}
	return c
}

func checkStream(c *core.Core, x id.ExecutionID, attempt int) error {
	if err := c.CheckExecution(x); err != nil {
		return err
	}
	if attempt < 0 || attempt > math.MaxInt32 {
		return core.Invalid("attempt", "must be between 0 and 2^31-1")
	}
	return nil
}

// request asks for frames of a stream, after a position and up to another.
type request struct {
	key            core.StreamKey
	after, through wire.FramePosition
	size           int
	skipBestEffort bool
}

// answer is the answer to a request. state is nil if the execution does not exist.
type answer struct {
	state  *db.ReadStreamsRow
	closed *Closed
	frames []Entry
	more   bool  // there may be frames after these; set for tails
	err    error // a row can't be read
}

// take takes the state of a stream.
func (a *answer) take(row *db.ReadStreamsRow) {
	a.state = row
	a.closed, a.err = closedOf(row)
}

// add adds a frame.
func (a *answer) add(k core.StreamKey, row *db.ListFramesRow) {
	f, err := frameOf(k, row)
	a.frames = append(a.frames, f)
	a.err = cmp.Or(a.err, err)
}

// framesOf returns the parameters for listing the frames of reads.
func framesOf(reads []request) db.ListFramesParams {
	keys := core.NewLeaseArrays(len(reads))
	p := db.ListFramesParams{}
	for i, r := range reads {
		keys.Add(id.Fence{Execution: r.key.Execution, Attempt: r.key.Attempt})
		p.AfterTsMs, p.AfterSeqs = append(p.AfterTsMs, r.after.TsMs), append(p.AfterSeqs, r.after.Seq)
		p.ThroughTsMs, p.ThroughSeqs = append(p.ThroughTsMs, r.through.TsMs), append(p.ThroughSeqs, r.through.Seq)
		p.SkipBestEffort = append(p.SkipBestEffort, r.skipBestEffort)
		p.Sizes, p.Ords = append(p.Sizes, int32(r.size)), append(p.Ords, int32(i))
	}
	p.PartitionKeys, p.ExecutionIDs, p.AttemptIndexes = keys.Partitions, keys.Executions, keys.Attempts
	return p
}

// readStreams answers several reads in one round trip. The states are read first: if a stream has ended there, the later
// statement has all its frames.
func readStreams(ctx context.Context, c *core.Core, reads []request) ([]answer, error) {
	p := framesOf(reads)
	var states []db.ReadStreamsRow
	var frames []db.ListFramesRow
	err := c.Read(ctx,
		func(conn db.DBTX) (err error) {
			states, err = c.Q.ReadStreams(ctx, conn, db.ReadStreamsParams{
				PartitionKeys: p.PartitionKeys, ExecutionIDs: p.ExecutionIDs, AttemptIndexes: p.AttemptIndexes, Ords: p.Ords,
			})
			return err
		},
		func(conn db.DBTX) (err error) {
			frames, err = c.Q.ListFrames(ctx, conn, p)
			return err
		})
	if err != nil {
		return nil, err
	}
	answers := make([]answer, len(reads))
	for i := range states {
		answers[states[i].Ord].take(&states[i])
	}
	for i := range frames {
		n := frames[i].Ord
		answers[n].add(reads[n].key, &frames[i])
	}
	return answers, nil
}

// closedOf returns how an attempt has ended, or nil.
func closedOf(s *db.ReadStreamsRow) (*Closed, error) {
	phase, err := normalise.LifecyclePhase(s.LifecyclePhase)
	if err != nil {
		return nil, core.Corrupt("ff_exec_core.lifecycle_phase", err)
	}
	over := phase == state.Terminal
	c := &Closed{Last: over && s.NextAttempt < 0}
	switch {
	case s.TerminalAtMs > 0:
		c.At = time.UnixMilli(s.TerminalAtMs)
	case over:
		c.At = time.UnixMilli(s.ExecutionTerminalAtMs)
	case s.NextAttempt >= 0:
		c.At = time.UnixMilli(s.NextStartedAtMs)
	default:
		return nil, nil
	}
	switch s.Outcome {
	case "success":
		c.Reason = Succeeded
	case "failed", "failure", "retry", "expired":
		c.Reason = Failed
	case "cancelled":
		c.Reason = Cancelled
	default:
		c.Reason = Interrupted
		if s.Outcome == "" && (s.PublicState == "cancelled" || s.LifecyclePhase == "cancelled") {
			c.Reason = Cancelled
		}
	}
	return c, nil
}

// frameOf returns a stored frame.
func frameOf(k core.StreamKey, row *db.ListFramesRow) (Entry, error) {
	f := Entry{
		Execution: k.Execution, Attempt: k.Attempt, ID: wire.FramePosition{TsMs: row.TsMs, Seq: row.Seq},
		Epoch: row.LeaseEpoch, Number: row.Number, Mode: Mode(row.Mode), durable: row.Durable,
	}
	fields, err := frameFields(row.Fields)
	if err != nil {
		return f, core.Corrupt("ff_stream_frame.fields", err)
	}
	f.Type, f.Correlation = fields["frame_type"], fields["correlation_id"]
	f.SummaryVersion, _ = strconv.Atoi(fields["summary_version"])
	if fields["encoding"] != "base64" {
		f.Payload = []byte(fields["payload"])
		return f, nil
	}
	if f.Payload, err = base64.StdEncoding.DecodeString(fields["payload"]); err != nil {
		return f, core.Corrupt("ff_stream_frame.fields", err)
	}
	return f, nil
}

// frameFields reads the fields of a frame. A value that is no text becomes its JSON text.
func frameFields(document []byte) (map[string]string, error) {
	if !bytes.HasPrefix(document, []byte("{")) {
		return nil, nil
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(document, &raw); err != nil {
		return nil, err
	}
	fields := make(map[string]string, len(raw))
	for key, value := range raw {
		var text string
		if value[0] != '"' || json.Unmarshal(value, &text) != nil {
			var compact bytes.Buffer
			if err := json.Compact(&compact, value); err != nil {
				return nil, err
			}
			text = compact.String()
		}
		fields[key] = text
	}
	return fields, nil
}
