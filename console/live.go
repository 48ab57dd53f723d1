package console

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Times of live pages.
const (
	liveWrite = 10 * time.Second // for a client to take an event
	liveBeat  = 15 * time.Second // longest silence
	liveShare = 100              // of the time of a reading, until the next one
	liveAge   = 10 * time.Minute // of a connection: then the browser asks again, and Authorize too
)

// hub reads live pages again for all clients together. For each kind of page one goroutine reads one page at a time, and waits
// as many seconds as the page needs statements, or 100 times as long as the reading took if that is longer. So any number of clients costs one statement a second for each kind of page;
// different pages of a kind take turns.
type hub struct {
	mu    sync.Mutex
	kinds map[string]*liveKind
}

// liveKind has the open pages of a kind, by address and access.
type liveKind struct {
	page  page
	views map[string]*liveView
	order []*liveView // by turn
}

// liveView is an open page with its clients.
type liveView struct {
	key     string
	request *request
	clients map[chan []byte]bool
	last    []byte // the rows sent last
}

// serveLive sends the rows of a page whenever they have changed.
func (c *console) serveLive(w http.ResponseWriter, r *http.Request, p page) {
	req, ok := c.authorize(w, r)
	if !ok {
		return
	}
	if p.whole && !req.access.seesAll() {
		c.fail(w, req, errHidden)
		return
	}
	req.Request = r.Clone(r.Context())
	live := c.cfg.Path + "live/"
	req.URL.Path = c.cfg.Path + strings.TrimPrefix(r.URL.Path, live) // forms return to the page itself
	req.URL.RawPath = strings.Replace(r.URL.RawPath, live, c.cfg.Path, 1)
	rows := c.join(p, req)
	defer c.leave(p, req, rows)
	e := startEvents(w, r)
	end := time.NewTimer(liveAge)
	defer end.Stop()
	beat := time.NewTicker(liveBeat)
	defer beat.Stop()
	for e.err == nil {
		select {
		case <-r.Context().Done():
			return
		case <-end.C:
			return
		case <-beat.C:
			e.comment()
		case text := <-rows:
			e.send("", "", text)
		}
	}
}

// key identifies a page and the rights of its reader.
func (r *request) key() string {
	return fmt.Sprintf("%s %t %q %q %q", r.URL.RequestURI(), r.access.Name != "", r.access.Actions, r.access.Lanes, r.access.Namespaces)
}

// join adds a client of a page. The first one of a kind starts its reading.
func (c *console) join(p page, r *request) chan []byte {
	h := &c.live
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.kinds == nil {
		h.kinds = make(map[string]*liveKind)
	}
	kind := h.kinds[p.Path]
	if kind == nil {
		kind = &liveKind{page: p, views: make(map[string]*liveView)}
		h.kinds[p.Path] = kind
		go c.run(kind)
	}
	key := r.key()
	view := kind.views[key]
	if view == nil {
		view = &liveView{key: key, request: r, clients: make(map[chan []byte]bool)}
		kind.views[key] = view
		kind.order = append(kind.order, view)
	}
	rows := make(chan []byte, 1)
	view.clients[rows] = true
	if view.last != nil {
		rows <- view.last
	}
	return rows
}

// leave removes a client.
func (c *console) leave(p page, r *request, rows chan []byte) {
	h := &c.live
	h.mu.Lock()
	defer h.mu.Unlock()
	kind, key := h.kinds[p.Path], r.key()
	view := kind.views[key]
	delete(view.clients, rows)
	if len(view.clients) == 0 {
		delete(kind.views, key)
	}
}

// next returns the page whose turn it is, and nil if no page of the kind is open. Then the kind is gone.
func (h *hub) next(kind *liveKind) *liveView {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(kind.order) > 0 {
		view := kind.order[0]
		kind.order = kind.order[1:]
		if kind.views[view.key] == view {
			kind.order = append(kind.order, view)
			return view
		}
	}
	delete(h.kinds, kind.page.Path)
	return nil
}

// run reads the open pages of a kind in turn, until none is open.
func (c *console) run(kind *liveKind) {
	for {
		view := c.live.next(kind)
		if view == nil {
			return
		}
		began := time.Now()
		if rows, err := c.rows(kind.page, view.request); err == nil {
			c.live.publish(view, rows)
		}
		time.Sleep(max(time.Duration(kind.page.live)*time.Second, liveShare*time.Since(began)))
	}
}

// publish gives rows to the clients of a page if they have changed. A client that hasn't taken the last ones gets only the new.
func (h *hub) publish(view *liveView, rows []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if bytes.Equal(view.last, rows) {
		return
	}
	view.last = rows
	for client := range view.clients {
		select {
		case <-client:
		default:
		}
		client <- rows
	}
}

// rows reads a page again and returns its live part. A failure is not shown: the page says how old it is.
func (c *console) rows(p page, r *request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), maxReading)
	defer cancel()
	again := &request{r.Clone(ctx), r.access}
	v, err := p.open(c, again)
	if err != nil {
		return nil, err
	}
	s, err := c.shown(again, p.chapter(), v)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = templates[v.template].ExecuteTemplate(&text, "live", s)
	return text.Bytes(), err
}

// sender writes server-sent events.
type sender struct {
	w   http.ResponseWriter
	c   *http.ResponseController
	err error // of the last write
}

// startEvents begins an answer of events. The write timeout of the server is replaced by one for each event.
func startEvents(w http.ResponseWriter, r *http.Request) *sender {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	e := &sender{w: w, c: http.NewResponseController(w)}
	e.write([]byte("retry: 2000\n\n"))
	return e
}

// send writes an event. Line breaks in the data are kept.
func (e *sender) send(name, id string, data []byte) {
	var b bytes.Buffer
	if name != "" {
		fmt.Fprintf(&b, "event: %s\n", name)
	}
	if id != "" {
		fmt.Fprintf(&b, "id: %s\n", id)
	}
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		b.WriteString("data: ")
		b.Write(bytes.ReplaceAll(line, []byte("\r"), nil))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	e.write(b.Bytes())
}

// comment writes something that clients ignore.
func (e *sender) comment() { e.write([]byte(":\n\n")) }

func (e *sender) write(text []byte) {
	_ = e.c.SetWriteDeadline(time.Now().Add(liveWrite)) // not every writer can
	if _, e.err = e.w.Write(text); e.err == nil {
		e.err = e.c.Flush()
	}
}
