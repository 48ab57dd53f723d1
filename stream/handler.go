package stream

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Errors for Authorize to return, wrapped or not, for another status than 404.
var (
	ErrUnauthorized = errors.New("stream: log in first")  // 401
	ErrForbidden    = errors.New("stream: not permitted") // 403
)

// Config configures a [Handler].
type Config struct {
	// Authorize returns the execution whose output a request may see. Required. The handler checks nothing else, so an id in
	// the request is no permission.
	//
	// An error refuses the request: 401 for [ErrUnauthorized], 403 for [ErrForbidden]. All other errors become the 404 of an
	// execution that does not exist, because a 403 shows which executions exist.
	Authorize func(r *http.Request) (id.ExecutionID, error)

	// Show selects the frames a page may see, usually by type. A handler's logs and the output of subprocesses are frames
	// too. Default: all.
	Show func(f *Entry) bool

	// Heartbeat is the longest silence. Then the handler sends a comment, which keeps proxies from closing the connection.
	// Default [DefaultHeartbeat].
	Heartbeat time.Duration

	// WriteTimeout is how long a client may take to accept an event. The handler drops a slower client, which reconnects and
	// misses nothing. WriteTimeout replaces the timeouts of the [http.Server], which would end a stream. Default
	// [DefaultWriteTimeout].
	WriteTimeout time.Duration

	// Reconnect is how long browsers wait before reconnecting. Default [DefaultReconnect].
	Reconnect time.Duration

	// MaxAge limits a connection, because Authorize is only called at the beginning: after a permission is withdrawn, the
	// user reads for at most MaxAge. The connection ends after three quarters of MaxAge or later, at random, so that clients
	// don't reconnect together. Clients miss nothing. Default [DefaultMaxAge].
	MaxAge time.Duration

	// Log receives failures of the engine at Warn, and clients that were too slow or left at Debug. Default: the engine's
	// log.
	Log *slog.Logger
}

// Defaults of [Config].
const (
	DefaultHeartbeat    = 15 * time.Second
	DefaultWriteTimeout = 10 * time.Second
	DefaultReconnect    = 2 * time.Second
	DefaultMaxAge       = 15 * time.Minute
)

// Handler serves the output of an execution, attempt after attempt, to GET requests. Data of events are JSON objects:
//
//	message      a frame: {"attempt":0,"epoch":1,"type":"token","mode":"durable","at":1764160000000,"data":"Hello"}. A payload
//	             that is no text has "base64" instead of "data". "correlation" and "trimmed" (missing frames before this one,
//	             also in ends) are there if they are set. at is in milliseconds since 1970.
//	gap          missing durable frames: {"attempt":0,"frames":12}. Others follow.
//	attempt      an attempt has ended, and another one may follow: {"attempt":0,"reason":"attempt_failure"}.
//	end          the execution has ended: {"attempt":1,"reason":"attempt_success"}. reason is missing if it ended between
//	             attempts. A page closes its EventSource then.
//	interrupted  the server can't continue now: {}. The client reconnects.
//
// A greater "attempt", or another "epoch" in the same attempt, means that the handler runs again. Frames of finished turns
// and steps are not repeated. To let pages drop repeated output, write a frame before the output, and clear the page at that
// frame, not at another attempt or epoch.
//
// The id of an event is the text of a [Position]. A request continues after the position in the header Last-Event-ID or,
// without the header, in the parameter "after"; a malformed one is 400. After hidden frames a heartbeat has an id and no
// data: browsers keep the id, and see no event. After the end the status is 204. Browsers stop after every status but 200, so
// an unreachable database is an event interrupted.
//
// Clients never poll the database, and hold no connection to it while they wait. A client takes some 10 KB beside the 25 KB
// of an HTTP/1.1 connection. A slow client also holds its unsent frames: usually 16, at most 128, and a few more. Each client
// holds a connection of the server until the request's context ends: end the BaseContext of the [http.Server] before its
// Shutdown. Middleware that replaces the [http.ResponseWriter] needs a method Unwrap.
//
// Errors: [fferr.ErrInvalidInput].
func Handler(eng *engine.Engine, cfg Config) (http.Handler, error) {
	switch {
	case cfg.Authorize == nil:
		return nil, &fferr.InputError{Field: "Config.Authorize", Reason: "is missing"}
	case core.Of(eng).Tx != nil:
		return nil, &fferr.InputError{Field: "WithTx", Reason: "a stream would hold the caller's transaction: use the engine on the pool"}
	case cfg.Heartbeat < 0:
		return nil, &fferr.InputError{Field: "Config.Heartbeat", Reason: "is negative"}
	case cfg.WriteTimeout < 0:
		return nil, &fferr.InputError{Field: "Config.WriteTimeout", Reason: "is negative"}
	case cfg.Reconnect < 0:
		return nil, &fferr.InputError{Field: "Config.Reconnect", Reason: "is negative"}
	case cfg.MaxAge < 0:
		return nil, &fferr.InputError{Field: "Config.MaxAge", Reason: "is negative"}
	}
	if cfg.Show == nil {
		cfg.Show = func(*Entry) bool { return true }
	}
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, DefaultHeartbeat)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, DefaultWriteTimeout)
	cfg.Reconnect = cmp.Or(cfg.Reconnect, DefaultReconnect)
	cfg.MaxAge = cmp.Or(cfg.MaxAge, DefaultMaxAge)
	if cfg.Log == nil {
		cfg.Log = core.Of(eng).Log
	}
	return &handler{eng: eng, cfg: cfg}, nil
}

type handler struct {
	eng *engine.Engine
	cfg Config
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store, no-transform")
	header.Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	x, err := h.cfg.Authorize(r)
	switch {
	case errors.Is(err, ErrUnauthorized):
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	case errors.Is(err, ErrForbidden):
		http.Error(w, "forbidden", http.StatusForbidden)
		return
	case err != nil:
		notFound(w)
		return
	}
	after, err := position(r)
	if err != nil {
		http.Error(w, "malformed position", http.StatusBadRequest)
		return
	}
	ended, err := h.ended(r.Context(), x, after)
	switch {
	case errors.Is(err, fferr.ErrNotFound), errors.Is(err, fferr.ErrInvalidInput):
		notFound(w)
		return
	case ended:
		w.WriteHeader(http.StatusNoContent)
		return
	}
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // nginx forwards events at once
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return
	}
	h.serve(r.Context(), newClient(w, h.cfg.WriteTimeout, after), x, err)
}

// notFound answers for executions that don't exist, or that the request may not see.
func notFound(w http.ResponseWriter) { http.Error(w, "not found", http.StatusNotFound) }

// position returns the position of a request to continue at.
func position(r *http.Request) (Position, error) {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = r.URL.Query().Get("after")
	}
	if text == "" {
		return Position{}, nil
	}
	return ParsePosition(text)
}

// ended reports whether nothing can follow after a position.
func (h *handler) ended(ctx context.Context, x id.ExecutionID, after Position) (bool, error) {
	_, closed := after.Attempt()
	page, err := Read(ctx, h.eng, x, Range{After: after, Limit: 1})
	return err == nil && closed && page.Closed != nil && page.Closed.Last && len(page.Frames) == 0, err
}

// serve sends events until the execution ends, the client leaves, the connection is too old or the engine fails. err is a
// failure before the first event.
func (h *handler) serve(ctx context.Context, c *client, x id.ExecutionID, err error) {
	log := h.cfg.Log.With("execution", x)
	young, cancel := context.WithTimeout(ctx, h.cfg.MaxAge-rand.N(h.cfg.MaxAge/4+1))
	defer cancel()
	sent := c.begin(h.cfg.Reconnect)
	if err == nil && sent == nil {
		err, sent = h.follow(young, c, x)
	}
	switch {
	case errors.Is(sent, http.ErrNotSupported):
		log.WarnContext(ctx, "stream: the server can't flush: its middleware needs a method Unwrap")
		http.Error(c.w, "can't stream", http.StatusInternalServerError)
	case sent != nil:
		log.DebugContext(ctx, "stream: lost a client", "error", sent)
	case err == nil || ctx.Err() != nil: // the output has ended, the client has left, or the server stops
	case young.Err() != nil:
		_ = c.heartbeat()
	default:
		log.WarnContext(ctx, "stream: interrupted", "error", err)
		_ = c.interrupted()
	}
}

// value is a frame, or the error of a tail.
type value struct {
	frame Entry
	err   error
}

// buffered is how many values may wait between the tail and the client: several, so that frames are flushed together.
const buffered = 4

// follow sends the values of a tail, and flushes when no more are ready. sent is the error of the connection.
func (h *handler) follow(ctx context.Context, c *client, x id.ExecutionID) (err, sent error) {
	ctx, cancel := context.WithCancel(ctx)
	var tail sync.WaitGroup
	defer tail.Wait()
	defer cancel()
	values := make(chan value, buffered)
	after := c.at
	tail.Go(func() {
		defer close(values)
		for frame, err := range Tail(ctx, h.eng, x, TailOptions{After: after}) {
			select {
			case values <- value{frame, err}:
			case <-ctx.Done():
				return
			}
		}
	})
	silence := time.NewTimer(h.cfg.Heartbeat)
	defer silence.Stop()
	for sent == nil {
		if c.written && len(values) == 0 {
			if sent = c.flush(); sent != nil {
				return nil, sent
			}
			silence.Reset(h.cfg.Heartbeat)
		}
		v, ok := value{}, false
		select {
		case v, ok = <-values:
		case <-silence.C:
			sent = c.heartbeat()
			silence.Reset(h.cfg.Heartbeat)
			continue
		}
		gap, isGap := errors.AsType[*fferr.StreamGapError](v.err)
		switch {
		case !ok && ctx.Err() != nil:
			return ctx.Err(), nil
		case !ok:
			return nil, c.end()
		case isGap:
			sent = c.event("gap", "", gapData{gap.Attempt, gap.Frames})
		case v.err != nil:
			return v.err, nil
		case v.frame.Closed == nil && !h.cfg.Show(&v.frame):
			c.hide(&v.frame)
		default:
			sent = c.frame(&v.frame)
			if v.frame.Closed != nil && v.frame.Closed.Last {
				return nil, errors.Join(sent, c.flush())
			}
		}
	}
	return nil, sent
}
