package worker

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/flowfabric/flowfabric-go/stream"
)

// Writer returns a writer of durable frames of a type, such as [stream.Stdout], for the output of another program:
//
//	cmd.Stdout, cmd.Stderr = job.Stream().Writer(stream.Stdout), job.Stream().Writer(stream.Stderr)
//
// Each Write is a frame, or several if longer than [stream.MaxPayload]. The bytes may be of any kind. A character
// of UTF-8 is not divided: an incomplete one at the end of a Write waits for the next Write, for [Stream.Flush], or for
// the end of the handler. If the buffer is full, a Write waits until its frames fit or the lease is lost. Errors: see
// [Stream.WriteFrame].
func (s *Stream) Writer(frameType string) io.Writer {
	w := &frameWriter{stream: s, frameType: frameType}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writers = append(s.writers, w)
	return w
}

type frameWriter struct {
	stream    *Stream
	frameType string

	mu   sync.Mutex // held by Write
	rest []byte     // the beginning of a character; guarded by the stream's mutex
}

func (w *frameWriter) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stream.mu.Lock()
	kept := len(w.rest)
	text := append(w.rest, p...)
	w.rest = nil
	w.stream.mu.Unlock()
	end := len(text) - unfinished(text)
	for begin := 0; begin < end; {
		part := text[begin:min(end, begin+w.stream.maxPayload())]
		if begin+len(part) < end && len(part) > utf8.UTFMax {
			part = part[:len(part)-unfinished(part)]
		}
		err := w.stream.WriteFrame(context.Background(), stream.FrameSpec{Payload: part, Type: w.frameType})
		if err != nil {
			return max(0, begin-kept), err
		}
		begin += len(part)
	}
	w.stream.mu.Lock()
	defer w.stream.mu.Unlock()
	if end < len(text) {
		w.rest = bytes.Clone(text[end:])
	}
	return len(p), w.stream.err
}

// unfinished returns how many bytes at the end of a text begin a character of UTF-8 that the text does not end: at most 3.
func unfinished(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}

// writeRests writes the bytes kept back by the stream's writers. The caller holds the mutex.
func (s *Stream) writeRests() {
	for _, w := range s.writers {
		if len(w.rest) > 0 && s.err == nil {
			f := stream.FrameSpec{Payload: w.rest, Type: w.frameType}
			if !s.forTest {
				s.appender.reserve(sizeOf([]stream.FrameSpec{f}), true)
			}
			s.put(f)
			w.rest = nil
		}
	}
}

// maxPayload returns the largest payload of a frame that the stream takes.
func (s *Stream) maxPayload() int {
	if s.appender == nil {
		return stream.MaxPayload
	}
	return s.appender.eng.maxPayload()
}

// LogHandler returns a handler of log records that writes each as a frame of the type [stream.Log]: a JSON object, as
// [slog.JSONHandler] makes it. A record larger than a frame is an error of the handler, which [log/slog] ignores.
//
//	log := slog.New(job.Stream().LogHandler(nil))
//
// If the buffer is full, a record waits until it fits, the lease is lost or the record's context ends.
func (s *Stream) LogHandler(o *slog.HandlerOptions) slog.Handler {
	return &logHandler{Handler: slog.NewJSONHandler(io.Discard, o), stream: s, options: o}
}

// logHandler formats each record into a buffer of its own, so records don't wait for each other, and a value may log
// while being formatted.
type logHandler struct {
	slog.Handler // only decides which records are enabled
	stream       *Stream
	options      *slog.HandlerOptions
	derive       []func(slog.Handler) slog.Handler // attributes and groups, in order
}

func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	var line bytes.Buffer
	var handler slog.Handler = slog.NewJSONHandler(&line, h.options)
	for _, derive := range h.derive {
		handler = derive(handler)
	}
	if err := handler.Handle(ctx, r); err != nil {
		return err
	}
	return h.stream.WriteFrame(ctx, stream.FrameSpec{Payload: bytes.TrimSuffix(line.Bytes(), []byte("\n")), Type: stream.Log})
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func(next slog.Handler) slog.Handler { return next.WithAttrs(attrs) })
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	return h.with(func(next slog.Handler) slog.Handler { return next.WithGroup(name) })
}

func (h *logHandler) with(derive func(slog.Handler) slog.Handler) slog.Handler {
	derived := *h
	derived.derive = append(slices.Clone(h.derive), derive)
	return &derived
}
