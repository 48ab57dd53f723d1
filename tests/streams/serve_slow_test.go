package streams

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func textLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// A client that does not read is dropped. It continues behind the last whole event that it has had, and misses nothing.
func TestServedStreamDropsSlowClients(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			f := fixture.New(t)
			work := f.Start(t)
			const frames = 200
			large := strings.Repeat("x", 60_000)
			batch := make([]stream.FrameSpec, 50)
			for n := 0; n < frames; n += len(batch) {
				for i := range batch {
					batch[i] = stream.FrameSpec{Payload: fmt.Append(nil, n+i, " ", large), Type: "token"}
				}
				if _, err := stream.Append(t.Context(), f.Engine, work.Lease, batch); err != nil {
					t.Fatal(err)
				}
			}
			finish(t, f, work.Lease)

			var log fixture.LockedBuffer
			s := newServed(t, f, work.ID, func(cfg *stream.Config) {
				cfg.WriteTimeout, cfg.Log = 100*time.Millisecond, textLog(&log)
			})
			// Buffers that the system makes larger by itself would hold all.
			s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
				if tcp, ok := c.(*net.TCPConn); ok {
					_ = tcp.SetWriteBuffer(64 << 10)
				}
				return ctx
			}
			if protocol == "HTTP/2.0" { // where a client that isn't read takes 4 MB
				s.EnableHTTP2 = true
				s.StartTLS()
			} else {
				s.Server.Start()
				s.Client().Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, network, address)
					if err == nil {
						_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
					}
					return c, err
				}
			}
			var texts []string
			after, dropped := "", 0
			for len(texts) == 0 || !strings.HasPrefix(texts[len(texts)-1], "end") {
				answer := s.open(t, after)
				if answer.Proto != protocol {
					t.Fatal(answer.Proto)
				}
				if dropped < 2 {
					fixture.Received(t, s.left) // the client reads nothing until then
					dropped++
				}
				events := readEvents(answer.Body).all()
				for _, e := range events {
					after = e.id
					texts = append(texts, e.text(t)[:12])
				}
			}
			for n := range frames {
				if want := fmt.Sprint("0 token ", n, " "); len(texts) != frames+1 || !strings.HasPrefix(texts[n], want) {
					t.Fatalf("%d events; number %d is %q", len(texts), n, texts[n])
				}
			}
			if n := strings.Count(log.String(), "lost a client"); n < dropped {
				t.Errorf("%d dropped clients, logged %q", n, &log)
			}
		})
	}
}

// deadlines is a connection that notes its deadlines.
type deadlines struct {
	*httptest.ResponseRecorder
	reading, writing []time.Time
	flushes          int
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.reading = append(d.reading, at)
	return nil
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.writing = append(d.writing, at)
	return nil
}

func (d *deadlines) FlushError() error {
	d.flushes++
	return nil
}

// The timeouts of the server don't end a stream: reading has no deadline, and writing has none while nothing is written. Frames
// that are at hand are flushed together.
func TestServedStreamHasNoDeadlineWhileSilent(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	frames := make([]stream.FrameSpec, 1000)
	for i := range frames {
		frames[i].Payload = []byte("a")
	}
	if _, err := stream.Append(t.Context(), f.Engine, work.Lease, frames); err != nil {
		t.Fatal(err)
	}
	finish(t, f, work.Lease)
	s := newServed(t, f, work.ID)
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	s.Server.Config.Handler.ServeHTTP(d, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if len(d.reading) != 1 || !d.reading[0].IsZero() {
		t.Errorf("deadlines of reading: %v", d.reading)
	}
	if n := len(d.writing); n < 1000 || !d.writing[n-1].IsZero() || d.writing[n-2].IsZero() {
		t.Errorf("%d deadlines of writing, the last %v", n, d.writing[max(0, n-2):])
	}
	if events := strings.Count(d.Body.String(), "data: "); events != 1001 || d.flushes > 500 {
		t.Errorf("%d events, flushed %d times", events, d.flushes)
	}
}

// bare is a connection that can't flush.
type bare struct{ w http.ResponseWriter }

func (b bare) Header() http.Header         { return b.w.Header() }
func (b bare) Write(p []byte) (int, error) { return b.w.Write(p) }
func (b bare) WriteHeader(code int)        { b.w.WriteHeader(code) }

// Middleware that hides flushing is an error of the server, not a silent stream.
func TestServedStreamNeedsToFlush(t *testing.T) {
	f := fixture.New(t)
	var log fixture.LockedBuffer
	s := newServed(t, f, f.Start(t).ID, func(cfg *stream.Config) { cfg.Log = textLog(&log) })
	answer := httptest.NewRecorder()
	s.Server.Config.Handler.ServeHTTP(bare{answer}, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if answer.Code != http.StatusInternalServerError || !strings.Contains(log.String(), "Unwrap") {
		t.Errorf("%d, logged %q", answer.Code, &log)
	}
}
