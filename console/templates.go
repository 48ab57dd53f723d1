package console

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

//go:embed templates
var templateFiles embed.FS

// shown is the data of the layout.
type shown struct {
	Base     string // the path of the handler
	Title    string
	Chapter  string
	Chapters []page
	Name     string
	Now      time.Time
	Done     Action // the last action of the person
	Here     string // this page, to return to after an action
	Live     string // where the live rows come from; "" for a page without them
	Data     any

	access   Access
	operator bool
}

func (c *console) shown(r *request, chapter string, v view) (*shown, error) {
	s := &shown{
		Base: c.cfg.Path, Title: v.title, Chapter: chapter, Name: r.access.Name, Data: v.data, access: r.access,
	}
	here := *r.URL
	query := here.Query()
	if done := Action(query.Get("done")); slices.Contains(Actions(), done) {
		s.Done = done
	}
	query.Del("done")
	here.RawQuery = query.Encode()
	s.Here = here.RequestURI()
	if chapter == "" {
		s.Now = time.Now()
		return s, nil
	}
	for _, p := range pages {
		if p.Title != "" && (!p.whole || r.access.seesAll()) {
			s.Chapters = append(s.Chapters, p)
		}
	}
	if v.live {
		s.Live = c.cfg.Path + "live/" + strings.TrimPrefix(s.Here, c.cfg.Path)
	}
	var err error
	s.Now, s.operator, err = c.now(r.Context())
	return s, err
}

// May reports whether the person may do something.
func (s *shown) May(action Action) bool { return s.access.may(action) }

// Can reports whether the program may act in the database.
func (s *shown) Can() bool { return s.operator }

// Whole reports whether the person sees everything.
func (s *shown) Whole() bool { return s.access.seesAll() }

// Lanes returns the lanes to choose from, nil for all.
func (s *shown) Lanes() any { return s.access.Lanes }

// Namespaces returns the namespaces to choose from, nil for all.
func (s *shown) Namespaces() any { return s.access.Namespaces }

// part is the data of a nested template: the page with a value, and further values.
type part struct {
	*shown
	V    any
	More []any
}

// templates are the pages by their files, each with the layout and the shared parts.
var templates = func() map[string]*template.Template {
	functions := template.FuncMap{
		"time":      timeText,
		"count":     countText,
		"span":      spanText,
		"help":      helpOf,
		"pretty":    pretty,
		"query":     url.QueryEscape,
		"path":      url.PathEscape,
		"namespace": namespacePath,
		"part":      func(s any, v any, more ...any) (part, error) { return partOf(s, v, more) },
	}
	files, _ := fs.Glob(templateFiles, "templates/*.html") // a valid pattern has no error
	shared := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/shared/*.html"))
	parsed := make(map[string]*template.Template, len(files))
	for _, file := range files {
		parsed[path.Base(file)] = template.Must(template.Must(shared.Clone()).ParseFS(templateFiles, file))
	}
	return parsed
}()

func partOf(s any, v any, more []any) (part, error) {
	switch s := s.(type) {
	case *shown:
		return part{s, v, more}, nil
	case part:
		return part{s.shown, v, more}, nil
	}
	return part{}, fmt.Errorf("part of a %T", s)
}

// countText returns a count for people: above the bound of counting with a plus.
func countText(n engine.Count) string {
	if n.AtLeast {
		return fmt.Sprintf("%d+", n.N)
	}
	return fmt.Sprint(n.N)
}

// timeText returns an instant as "26 s ago" or "in 26 s", with the whole instant for the pointer. The zero time is nothing.
func timeText(s any, at time.Time) (template.HTML, error) {
	if at.IsZero() {
		return "", nil
	}
	p, err := partOf(s, nil, nil)
	if err != nil {
		return "", err
	}
	// Both texts consist of digits, letters and punctuation of ours.
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`,
		at.UTC().Format("2006-01-02T15:04:05.000Z"), at.UTC().Format("2006-01-02 15:04:05 UTC"), agoText(p.Now, at))), nil
}

func agoText(now, at time.Time) string {
	d := now.Sub(at)
	switch {
	case d < -time.Second:
		return "in " + spanText(-d)
	case d < time.Second:
		return "now"
	}
	return spanText(d) + " ago"
}

// spanText returns a duration with its largest unit.
func spanText(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// pretty returns JSON with line breaks, and other text as it is.
func pretty(payload []byte) string {
	var indented bytes.Buffer
	if json.Indent(&indented, payload, "", "  ") == nil {
		return indented.String()
	}
	return strings.ToValidUTF8(string(payload), "\uFFFD")
}
