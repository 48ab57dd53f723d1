// Package waitpoint turns signed links into signals. A person without an account opens a link from a mail and sees a
// page with a question. The decision reaches the waiting execution.
//
//	mux.Handle("/waitpoints/", http.StripPrefix("/waitpoints/", waitpoint.Handler(eng, waitpoint.Config{
//		Actions: []waitpoint.Action{{Signal: "approved", Label: "Approve"}, {Signal: "rejected", Label: "Reject"}},
//	})))
//
// In the handler of the execution, [Link] makes the link of a waitpoint:
//
//	w, err := job.Waitpoint(ctx, "decision", 7*24*time.Hour)
//	link := waitpoint.Link("https://example.com/waitpoints/", w)
//
// A link is a bearer credential: its holder may decide, once. Send the link to one person, by TLS, and keep it out of
// your logs. The token is in the query of the URL.
package waitpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"html/template"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
)

// Config configures a [Handler].
type Config struct {
	// Actions are the decisions to offer. Required. Signals of other names are refused.
	Actions []Action

	// Page writes the page for an opened link. Default: a plain page with a button for each action. It must not change
	// anything: mail scanners open links too.
	Page func(w http.ResponseWriter, r *http.Request, page Page)

	// Allow is called before anything else. If it returns false, the answer is 429. Use it to limit failures of an
	// address. Default: everything is allowed.
	Allow func(r *http.Request) bool

	// Failed is called after each refused link.
	Failed func(r *http.Request)

	// MaxBody limits the body of a decision, in bytes. Default [engine.MaxSignalPayload].
	MaxBody int64
}

// Action is a decision.
type Action struct {
	Signal string // name of the signal
	Label  string // text of the button. Default: the name
}

// Page is the content of a page.
type Page struct {
	Status  int      // of the answer, for [http.ResponseWriter.WriteHeader]
	Actions []Action // empty after a decision
	Decided string   // name of the sent signal; "" before
	Closed  bool     // the link takes no decision any more
}

// Link returns the link of a waitpoint below the URL of a [Handler].
func Link(base string, w engine.Waitpoint) string {
	path := w.Execution.Short() + "/" + w.ID.String()
	return strings.TrimSuffix(base, "/") + "/" + path + "?" + url.Values{"token": {w.Token.Reveal()}}.Encode()
}

// Handler serves the links of waitpoints. A GET shows a page and changes nothing. A POST sends a signal: a form with the
// field "signal", whose other fields become the payload, or a JSON object with "signal" and "payload". Both are UTF-8, a form
// has each field once, and a JSON object each member. A link takes one decision, before its wait or during it; the same
// decision posted again gets the same answer. JSON is answered in JSON.
//
// The handler expects a path of the execution's id and the waitpoint's: use [http.StripPrefix]. Every invalid link is
// answered by the same 404, whether the execution exists or not, and before reading the body. 409: another decision was
// made, or the wait has ended.
//
// Answers are not cached, not framed by other pages, and send no Referer. A forged request from another site can do
// nothing: the handler uses no cookie and no session, only the token, which another site does not have. Set the timeouts
// of your [http.Server], which bound slow requests.
func Handler(eng *engine.Engine, cfg Config) http.Handler {
	if cfg.Page == nil {
		cfg.Page = plainPage
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = engine.MaxSignalPayload
	}
	return &handler{eng: eng, cfg: cfg}
}

type handler struct {
	eng *engine.Engine
	cfg Config
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Content-Security-Policy", "frame-ancestors 'none'; base-uri 'none'")
	switch {
	case h.cfg.Allow != nil && !h.cfg.Allow(r):
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
		header.Set("Allow", "GET, HEAD, POST")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	link, err := h.verify(r)
	switch {
	case errors.Is(err, fferr.ErrInvalidToken):
		h.refuse(w, r)
		return
	case err != nil:
		http.Error(w, "temporarily unavailable", http.StatusServiceUnavailable)
		return
	}
	if r.Method != http.MethodPost {
		h.cfg.Page(w, r, Page{Status: http.StatusOK, Actions: h.cfg.Actions})
		return
	}
	h.decide(w, r, link)
}

// verify reads the link, and checks the token without looking at the execution.
func (h *handler) verify(r *http.Request) (link engine.WaitpointSignal, err error) {
	execution, waitpoint, ok := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	if !ok {
		return link, fferr.ErrInvalidToken
	}
	x, errX := id.ParseExecutionID(execution)
	p, errP := id.ParseWaitpointID(waitpoint)
	if errX != nil || errP != nil {
		return link, fferr.ErrInvalidToken
	}
	tokens := r.URL.Query()["token"]
	if len(tokens) != 1 {
		return link, fferr.ErrInvalidToken
	}
	link.Execution, link.Waitpoint, link.Token = x, p, wire.WaitpointToken(tokens[0])
	return link, h.eng.VerifyWaitpoint(r.Context(), x, p, link.Token)
}

func (h *handler) refuse(w http.ResponseWriter, r *http.Request) {
	if h.cfg.Failed != nil {
		h.cfg.Failed(r)
	}
	http.Error(w, "this link is not valid", http.StatusNotFound)
}

// decide sends the signal of a decision.
func (h *handler) decide(w http.ResponseWriter, r *http.Request, link engine.WaitpointSignal) {
	asJSON, err := h.read(w, r, &link)
	if err != nil {
		code := http.StatusBadRequest
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			code = http.StatusRequestEntityTooLarge
		}
		http.Error(w, http.StatusText(code), code)
		return
	}
	// One decision for each link, however late: its repetition gets the same answer, and another decision does not.
	link.ID = id.SignalID(uuid.NewSHA1(uuid.UUID(link.Waitpoint), []byte(link.Name)))
	link.IdempotencyKey, link.DedupFor = "link", longest
	link.SourceType, link.Source = "link", link.Waitpoint.String()
	signalled, err := h.eng.SignalWaitpoint(r.Context(), link)
	page := Page{Status: http.StatusOK, Decided: link.Name}
	switch {
	case err == nil && signalled.ID != link.ID:
		page = Page{Status: http.StatusConflict, Closed: true}
	case errors.Is(err, fferr.ErrInvalidToken):
		h.refuse(w, r)
		return
	case errors.Is(err, fferr.ErrNotFound), errors.Is(err, fferr.ErrEnded), errors.Is(err, fferr.ErrWaitpointClosed):
		page = Page{Status: http.StatusConflict, Closed: true}
	case errors.Is(err, fferr.ErrInvalidInput):
		http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
		return
	case err != nil:
		http.Error(w, "temporarily unavailable", http.StatusServiceUnavailable)
		return
	}
	if !asJSON {
		h.cfg.Page(w, r, page)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(page.Status)
	_ = json.NewEncoder(w).Encode(map[string]any{"decided": page.Decided, "closed": page.Closed})
}

// longest is longer than any wait.
const longest = 100 * 365 * 24 * time.Hour

var errBody = errors.New("malformed body")

// read reads the name and the payload of a decision, and reports whether the body was JSON.
func (h *handler) read(w http.ResponseWriter, r *http.Request, link *engine.WaitpointSignal) (asJSON bool, err error) {
	r.Body = http.MaxBytesReader(w, r.Body, h.cfg.MaxBody)
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch charset, given := params["charset"]; {
	case given && !strings.EqualFold(charset, "utf-8"):
		err = errBody
	case err == nil && kind == "application/json":
		asJSON = true
		err = readJSON(r.Body, link)
	case err == nil && kind == "application/x-www-form-urlencoded":
		err = readForm(r, link)
	default:
		err = errBody
	}
	known := func(a Action) bool { return a.Signal == link.Name }
	if err == nil && !slices.ContainsFunc(h.cfg.Actions, known) {
		err = errBody
	}
	return asJSON, err
}

func readJSON(body io.Reader, link *engine.WaitpointSignal) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var decision map[string]json.RawMessage // a struct would also take "SIGNAL"
	if err := json.Unmarshal(text, &decision); err != nil {
		return err
	}
	if !utf8.Valid(text) || repeatsMember(text) {
		return errBody
	}
	for member, value := range decision {
		switch member {
		case "signal":
			err = json.Unmarshal(value, &link.Name)
		case "payload":
			link.Payload = value
		default:
			err = errBody
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// repeatsMember reports whether an object in a JSON text has two members of one name. Readers take the first or the last.
func repeatsMember(text []byte) bool {
	type level struct {
		names map[string]bool // nil: an array
		value bool            // the next token is the value of a member
	}
	levels := []level{{}}
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		token, err := decoder.Token()
		if err != nil {
			return false // at its end
		}
		top := &levels[len(levels)-1]
		name, isText := token.(string)
		if isText && top.names != nil && !top.value {
			if top.names[name] {
				return true
			}
			top.names[name], top.value = true, true
			continue
		}
		top.value = false
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{names: make(map[string]bool)})
		case json.Delim('['):
			levels = append(levels, level{})
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
		}
	}
}

func readForm(r *http.Request, link *engine.WaitpointSignal) error {
	if err := r.ParseForm(); err != nil {
		return err
	}
	fields := make(map[string]string)
	for name, values := range r.PostForm {
		switch {
		case len(values) != 1 || !utf8.ValidString(name+values[0]):
			return errBody
		case name != "signal":
			fields[name] = values[0]
		}
	}
	link.Name = r.PostForm.Get("signal")
	var err error
	if len(fields) > 0 {
		link.Payload, err = json.Marshal(fields)
	}
	return err
}

var plain = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Your decision</title></head>
<body>
<main>
{{- if .Closed}}
<h1>Too late</h1>
<p>This link takes no decision any more.</p>
{{- else if .Decided}}
<h1>Thank you</h1>
<p>Your decision was recorded: {{.Decided}}.</p>
{{- else}}
<h1>Your decision</h1>
<form method="post">
{{- range .Actions}}
<p><button name="signal" value="{{.Signal}}">{{if .Label}}{{.Label}}{{else}}{{.Signal}}{{end}}</button></p>
{{- end}}
</form>
{{- end}}
</main>
</body>
</html>
`))

// plainPage is the default of [Config.Page].
func plainPage(w http.ResponseWriter, _ *http.Request, page Page) {
	var out bytes.Buffer
	if err := plain.Execute(&out, page); err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	w.WriteHeader(page.Status)
	_, _ = w.Write(out.Bytes())
}
