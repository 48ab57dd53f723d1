package worker

import (
	"context"
	"io"
	"log/slog"
	"sync"

	"github.com/flowfabric/flowfabric-go/engine"
)

// Writer returns a writer of durable frames of a type, such as [engine.FrameStdout], for the output of another program:
//
//	cmd.Stdout, cmd.Stderr = job.Stream().Writer(engine.FrameStdout), job.Stream().Writer(engine.FrameStderr)
//
// Each Write is a frame, or several if it is longer than [engine.MaxFramePayload]. The bytes may be of any kind. A Write
// that waits for room ends when there is some, or when the lease is lost. Its errors are those of [Stream.WriteFrame].
func (s *Stream) Writer(frameType string) io.Writer { return &frameWriter{s, frameType} }

type frameWriter struct {
	stream    *Stream
	frameType string
}

func (w *frameWriter) Write(p []byte) (n int, err error) {
	for n < len(p) {
		part := p[n:min(len(p), n+w.stream.maxPayload())]
		err := w.stream.WriteFrame(context.Background(), engine.FrameSpec{Payload: part, Type: w.frameType})
		if err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// maxPayload returns the largest payload of a frame that the stream takes.
func (s *Stream) maxPayload() int {
	if s.appender == nil {
		return engine.MaxFramePayload
	}
	return s.appender.eng.maxPayload()
}

// LogHandler returns a handler of log records that writes each as a frame of the type [engine.FrameLog]: a JSON object, as
// [slog.JSONHandler] makes it. A record larger than a frame is an error of the handler, which [log/slog] ignores.
//
//	log := slog.New(job.Stream().LogHandler(nil))
//
// A record waits for room in the buffer until the lease is lost or its context ends.
func (s *Stream) LogHandler(o *slog.HandlerOptions) slog.Handler {
	record := &logRecord{stream: s}
	return &logHandler{slog.NewJSONHandler(record, o), record}
}

// logHandler passes the context of each record to its frame.
type logHandler struct {
	slog.Handler
	record *logRecord
}

func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	h.record.mu.Lock()
	defer h.record.mu.Unlock()
	h.record.ctx = ctx
	defer func() { h.record.ctx = nil }()
	return h.Handler.Handle(ctx, r)
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{h.Handler.WithAttrs(attrs), h.record}
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	return &logHandler{h.Handler.WithGroup(name), h.record}
}

// logRecord writes one record at a time as a frame.
type logRecord struct {
	stream *Stream

	mu  sync.Mutex
	ctx context.Context // of the record
}

func (r *logRecord) Write(p []byte) (int, error) {
	line := p
	if n := len(p); n > 0 && p[n-1] == '\n' {
		line = p[:n-1]
	}
	if err := r.stream.WriteFrame(r.ctx, engine.FrameSpec{Payload: line, Type: engine.FrameLog}); err != nil {
		return 0, err
	}
	return len(p), nil
}
