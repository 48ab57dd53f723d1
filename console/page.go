package console

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/schema"
)

// page is a page for reading.
type page struct {
	Path  string // a pattern below the path of the handler; its first segment names the chapter
	Title string // in the navigation; "" for a page without an entry there
	whole bool   // of the whole database: for people without limits
	read  func(*console, *request) (view, error)

	// live is the largest number of statements of reading the page again, for live rows. 0: the page isn't live.
	live int
}

// pages are the pages, in the order of the navigation.
var pages = []page{
	{Path: "lanes", Title: "Lanes", read: (*console).lanes, live: 5},
	{Path: "executions", Title: "Executions", read: (*console).executions, live: 4},
	{Path: "executions/many", read: (*console).many},
	{Path: "executions/{id}", read: (*console).execution, live: 10},
	{Path: "executions/{id}/payloads", read: (*console).payloads},
	{Path: "executions/{id}/output", read: (*console).output},
	{Path: "flows", Title: "Flows", read: (*console).flows, live: 2},
	{Path: "flows/{id}", read: (*console).flow, live: 2},
	{Path: "waits", Title: "Questions", read: (*console).waits, live: 1},
	{Path: "limits", Title: "Limits", read: (*console).limits},
	{Path: "limits/{namespace}/{name}", read: (*console).limit},
	{Path: "budgets", Title: "Budgets", read: (*console).budgets},
	{Path: "schedules", Title: "Schedules", read: (*console).schedules},
	{Path: "schedules/{namespace}/{name}", read: (*console).schedule},
	{Path: "sequences", Title: "Sequences", read: (*console).sequences},
	{Path: "sequences/{namespace}/{key}", read: (*console).sequence},
	{Path: "workers", Title: "Workers", read: (*console).workers, live: 1},
	{Path: "database", Title: "Database", whole: true, read: (*console).database},
	{Path: "health", Title: "Health", whole: true, read: (*console).health},
	{Path: "log", Title: "Log", whole: true, read: (*console).log},
}

// chapter returns the first segment of the path.
func (p *page) chapter() string {
	chapter, _, _ := strings.Cut(p.Path, "/")
	return chapter
}

// view is the content of a page: the name of its template with the data.
type view struct {
	template string
	title    string
	data     any
	live     bool   // the page has live rows
	redirect string // to another page instead, below the path of the handler
}

// request is an authorised request.
type request struct {
	*http.Request
	access Access
}

// text returns a field of a form without space around it.
func (r *request) text(field string) string { return strings.TrimSpace(r.FormValue(field)) }

// fields returns the given fields that are not empty, for links to the same list.
func (r *request) fields(names ...string) url.Values {
	form := url.Values{}
	for _, name := range names {
		if text := r.text(name); text != "" {
			form.Set(name, text)
		}
	}
	return form
}

// with returns a copy of a form's values with another one, as a query.
func with(form url.Values, name, value string) string {
	if value == "" {
		return ""
	}
	next := url.Values{name: {value}}
	for field, texts := range form {
		if field != name {
			next[field] = texts
		}
	}
	return next.Encode()
}

// maxReading is the longest time for reading a page.
const maxReading = 10 * time.Second

func (c *console) servePage(w http.ResponseWriter, r *http.Request, p page) {
	ctx, cancel := context.WithTimeout(r.Context(), maxReading)
	defer cancel()
	r = r.WithContext(ctx)
	req, ok := c.authorize(w, r)
	if !ok {
		return
	}
	v, err := p.open(c, req)
	v.live = p.live > 0
	switch {
	case err != nil:
		c.fail(w, req, err)
	case v.redirect != "":
		http.Redirect(w, r, c.cfg.Path+v.redirect, http.StatusSeeOther)
	default:
		c.show(w, req, http.StatusOK, p.chapter(), v)
	}
}

// open reads the page if the person may see it.
func (p *page) open(c *console, r *request) (view, error) {
	if p.whole && !r.access.seesAll() {
		return view{}, errHidden
	}
	return p.read(c, r)
}

var errNoAuthorize = errors.New("console.Config.Authorize is not set")

// authorize returns the request of a person, or answers the request.
func (c *console) authorize(w http.ResponseWriter, r *http.Request) (*request, bool) {
	access, err := Access{}, errNoAuthorize
	if c.cfg.Authorize != nil {
		access, err = c.cfg.Authorize(r)
	}
	if err == nil {
		return &request{r, access}, true
	}
	status := http.StatusForbidden
	if errors.Is(err, ErrSignIn) {
		status = http.StatusUnauthorized
	}
	c.show(w, &request{Request: r}, status, "", failure(status, err.Error()))
	return nil, false
}

func (c *console) serveMissing(w http.ResponseWriter, r *http.Request) {
	if req, ok := c.authorize(w, r); ok {
		c.fail(w, req, errHidden)
	}
}

func failure(status int, text string) view {
	return view{template: "error.html", title: http.StatusText(status), data: text}
}

// fail answers a request that could not be served. The texts of unknown failures are logged, and not shown.
func (c *console) fail(w http.ResponseWriter, r *request, err error) {
	status, text := http.StatusServiceUnavailable, "The database did not answer. Try again."
	switch {
	case errors.Is(err, fferr.ErrNotFound):
		status, text = http.StatusNotFound, "There is no such thing here: it was never committed, or it was deleted."
	case errors.Is(err, errForbidden):
		status, text = http.StatusForbidden, err.Error()
	case errors.Is(err, fferr.ErrInvalidInput):
		status, text = http.StatusBadRequest, err.Error()
	case errors.Is(err, fferr.ErrDenied), errors.Is(err, fferr.ErrReadOnly):
		status, text = http.StatusForbidden, "The database doesn't allow it: "+err.Error()
	case errors.Is(err, fferr.ErrBusy), errors.Is(err, fferr.ErrContention):
		text = "Another transaction holds it. Nothing was changed. Try again."
	case errors.Is(err, fferr.ErrUnavailable), errors.Is(err, fferr.ErrTransport), !fferr.Known(err):
		c.logFailure(r.Context(), r.Request, err)
	default:
		status, text = http.StatusConflict, err.Error()
	}
	c.show(w, r, status, "", failure(status, text))
}

func (c *console) logFailure(ctx context.Context, r *http.Request, err error) {
	if !errors.Is(ctx.Err(), context.Canceled) { // the client has left
		c.cfg.Log.LogAttrs(ctx, slog.LevelError, "a page of the console failed", slog.String("path", r.URL.Path), slog.Any("error", err))
	}
}

// server knows the clock of the database and the rights of the program, which are read once a minute.
type server struct {
	mu       sync.Mutex
	read     time.Time // zero: not yet
	offset   time.Duration
	operator bool // the program has the rights of an operator

	checked time.Time // zero: the migrations were not read yet
	schema  schema.State
}

// migrations returns the state of the migrations, read at most once a minute.
func (c *console) migrations(ctx context.Context) (schema.State, error) {
	s := &c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := time.Now(); s.checked.IsZero() || at.Sub(s.checked) > time.Minute {
		state, err := schema.Status(ctx, c.eng.Pool(), schema.Options{})
		if err != nil {
			return state, err
		}
		s.checked, s.schema = at, state
	}
	return s.schema, nil
}

// now returns the time of the database, and whether the program may act there.
func (c *console) now(ctx context.Context) (time.Time, bool, error) {
	s := &c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := time.Now(); s.read.IsZero() || at.Sub(s.read) > time.Minute {
		now, err := c.eng.Now(ctx)
		if err != nil {
			return at, false, err
		}
		roles, err := c.eng.Roles(ctx)
		if err != nil {
			return at, false, err
		}
		s.read, s.offset, s.operator = at, now.Sub(at), slices.Contains(roles, engine.RoleOperator)
	}
	return time.Now().Add(s.offset), s.operator, nil
}

// show writes a page. A page that can't be written whole isn't written at all.
func (c *console) show(w http.ResponseWriter, r *request, status int, chapter string, v view) {
	s, err := c.shown(r, chapter, v)
	if err != nil && status == http.StatusOK {
		c.fail(w, r, err)
		return
	}
	var text bytes.Buffer
	if err := templates[v.template].ExecuteTemplate(&text, "layout.html", s); err != nil {
		c.logFailure(r.Context(), r.Request, err)
		http.Error(w, "The page can't be shown.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes())
}
