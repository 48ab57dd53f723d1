package console

import (
	"embed"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/drawing"
)

// Config configures [Handler].
type Config struct {
	// Authorize returns the rights of the sender of a request. It is required, and called once for each request. An error refuses
	// the request: 401 for [ErrSignIn], otherwise 403. The page shows the text of the error.
	Authorize func(*http.Request) (Access, error)

	// Path is the path of the handler: the pattern of the ServeMux without method and host. Default: /ff/.
	Path string

	// Redact returns the part of a payload, a result, a signal or a frame to show. Nil shows everything to people with
	// [ShowPayload].
	Redact func(kind string, payload []byte) []byte

	// Log receives failures of the database. Default: [slog.Default].
	Log *slog.Logger
}

// ErrSignIn is returned by [Config.Authorize] for a request without a person.
var ErrSignIn = errors.New("sign in first")

//go:embed static
var static embed.FS

// console is the handler.
type console struct {
	eng    *engine.Engine
	cfg    Config
	mux    *http.ServeMux
	server server
	live   hub
}

// Handler returns a handler of all pages. Without Config.Authorize it refuses every request. It needs an engine on a pool.
//
// While live pages are open, a goroutine for each kind of them reads the database. Authorize is called again when their
// connections are renewed, after ten minutes at most. They hold their connections until the context of their requests ends: end the BaseContext of the [http.Server] before
// its Shutdown.
func Handler(eng *engine.Engine, cfg Config) http.Handler {
	if cfg.Path == "" {
		cfg.Path = "/ff/"
	}
	if !strings.HasSuffix(cfg.Path, "/") {
		cfg.Path += "/"
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	c := &console{eng: eng, cfg: cfg, mux: http.NewServeMux()}
	c.mux.HandleFunc("GET "+cfg.Path+"static/flow.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = io.WriteString(w, drawing.Stylesheet)
	})
	c.mux.Handle("GET "+cfg.Path+"static/", http.StripPrefix(cfg.Path, http.FileServerFS(static)))
	c.mux.Handle("GET "+cfg.Path+"{$}", http.RedirectHandler(cfg.Path+"lanes", http.StatusSeeOther))
	for _, p := range pages {
		c.mux.HandleFunc("GET "+cfg.Path+p.Path, func(w http.ResponseWriter, r *http.Request) { c.servePage(w, r, p) })
		if p.live > 0 {
			c.mux.HandleFunc("GET "+cfg.Path+"live/"+p.Path, func(w http.ResponseWriter, r *http.Request) { c.serveLive(w, r, p) })
		}
	}
	c.mux.HandleFunc("GET "+cfg.Path+"frames/{id}", c.serveOutput)
	c.mux.HandleFunc("POST "+cfg.Path+"do/{action}", c.serveAction)
	c.mux.HandleFunc(cfg.Path, c.serveMissing)
	return http.NewCrossOriginProtection().Handler(c)
}

// policy is the content security policy: nothing but the handler's own files.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements [http.Handler].
func (c *console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	c.mux.ServeHTTP(w, r)
}
