package action_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/flowfabric/flowfabric-go/review/report"
)

type account struct {
	Login string `json:"login"`
}

type comment struct {
	ID   int64    `json:"id"`
	Body string   `json:"body"`
	URL  string   `json:"html_url"`
	User *account `json:"user"`
}

const (
	bot   = "github-actions[bot]"
	token = "ghs_ofTheRun"
)

// forge answers as GitHub's API does, for one pull request. Requests for anything else, and those without the token, are
// errors of the test.
type forge struct {
	*httptest.Server
	t        *testing.T
	bin      string // the step's program, which is linked once
	readOnly bool   // the token may read only, as in a pull request from a fork
	broken   bool   // each request is answered with 502

	mutex    sync.Mutex
	comments []comment
	requests []string
}

func newForge(t *testing.T, comments ...comment) *forge {
	f := &forge{t: t, bin: t.TempDir(), comments: comments}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /graphql", f.viewer)
	mux.HandleFunc("GET /api/repos/octo/shop/issues/7/comments", f.list)
	mux.HandleFunc("POST /api/repos/octo/shop/issues/7/comments", f.create)
	mux.HandleFunc("PATCH /api/repos/octo/shop/issues/comments/{id}", f.update)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("a request that GitHub does not know: %s %s", r.Method, r.URL)
		answer(w, http.StatusNotFound, map[string]string{"message": "Not Found"})
	})
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mutex.Lock()
		defer f.mutex.Unlock()
		f.requests = append(f.requests, r.Method+" "+r.URL.Path)
		switch {
		case r.Header.Get("Authorization") != "Bearer "+token:
			t.Errorf("%s %s has the token %q", r.Method, r.URL, r.Header.Get("Authorization"))
			answer(w, http.StatusUnauthorized, map[string]string{"message": "Bad credentials"})
		case f.broken:
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "<html>Unicorn!</html>")
		default:
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

func answer(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}

func (f *forge) viewer(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Query string }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Query != "{ viewer { login } }" {
		f.t.Errorf("the query is %q, %v", asked.Query, err)
	}
	answer(w, http.StatusOK, map[string]any{"data": map[string]any{"viewer": account{bot}}})
}

func (f *forge) list(w http.ResponseWriter, r *http.Request) {
	size, errSize := strconv.Atoi(r.URL.Query().Get("per_page"))
	page, errPage := strconv.Atoi(r.URL.Query().Get("page"))
	if errSize != nil || errPage != nil || size < 1 || size > 100 || page < 1 {
		f.t.Errorf("the list is asked for as %s", r.URL.RawQuery)
	}
	from, to := min((page-1)*size, len(f.comments)), min(page*size, len(f.comments))
	if to < len(f.comments) {
		w.Header().Set("Link", fmt.Sprintf(`<%s%s?page=%d>; rel="next", <%s%s?page=9>; rel="last"`, f.URL, r.URL.Path, page+1, f.URL, r.URL.Path))
	}
	answer(w, http.StatusOK, append([]comment{}, f.comments[from:to]...))
}

// body reads the text to write, and answers the request if it may not be written.
func (f *forge) body(w http.ResponseWriter, r *http.Request) (string, bool) {
	var sent struct{ Body string }
	switch err := json.NewDecoder(r.Body).Decode(&sent); {
	case err != nil || r.Header.Get("Content-Type") != "application/json":
		f.t.Errorf("the request's body is %q, %v", r.Header.Get("Content-Type"), err)
	case f.readOnly:
		answer(w, http.StatusForbidden, map[string]string{"message": "Resource not accessible by integration"})
	case sent.Body == "" || utf8.RuneCountInString(sent.Body) > 65536:
		answer(w, http.StatusUnprocessableEntity, map[string]string{"message": "Validation Failed"})
	default:
		return sent.Body, true
	}
	return "", false
}

func (f *forge) create(w http.ResponseWriter, r *http.Request) {
	if body, ok := f.body(w, r); ok {
		id := int64(len(f.comments) + 1)
		made := comment{id, body, fmt.Sprint("https://github.com/octo/shop/pull/7#issuecomment-", id), &account{bot}}
		f.comments = append(f.comments, made)
		answer(w, http.StatusCreated, made)
	}
}

func (f *forge) update(w http.ResponseWriter, r *http.Request) {
	at := slices.IndexFunc(f.comments, func(c comment) bool { return fmt.Sprint(c.ID) == r.PathValue("id") })
	if at < 0 {
		answer(w, http.StatusNotFound, map[string]string{"message": "Not Found"})
		return
	}
	if body, ok := f.body(w, r); ok {
		f.comments[at].Body = body
		answer(w, http.StatusOK, f.comments[at])
	}
}

// comment runs the step with a report, and returns its exit code and output.
func (f *forge) comment(text string, env ...string) (code int, said string) {
	f.t.Helper()
	j := newJob(f.t, f.t.TempDir())
	write(f.t, j.temp, "reports/schema-review.md", text)
	write(f.t, j.temp, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})))
	return j.step("comment.sh", append([]string{
		"BIN=" + f.bin, "SSL_CERT_FILE=" + filepath.Join(j.temp, "ca.pem"), "GITHUB_API_URL=" + f.URL + "/api", "GITHUB_GRAPHQL_URL=" + f.URL + "/graphql",
		"GITHUB_SERVER_URL=https://github.com", "GITHUB_REPOSITORY=octo/shop", "GITHUB_RUN_ID=42",
		"REPOSITORY=octo/shop", "PULL=7", "GH_TOKEN=" + token, "CODE=8", "NAME=schema-review",
	}, env...)...)
}

// others are comments of people and of another app. Some quote the report.
func others(n int) []comment {
	made := make([]comment, n)
	for i := range made {
		made[i] = comment{int64(1000 + i), "Please review.", "", &account{"grace"}}
	}
	if n >= 4 {
		made[0].Body, made[1].Body = report.Marker+"\nfrom a person", report.Marker+"\nfrom another app"
		made[1].User = &account{"elsewhere[bot]"}
		made[2].User = nil // a deleted account
		made[2].Body = report.Marker
		made[3] = comment{made[3].ID, "I quote:\n" + report.Marker, "", &account{bot}}
	}
	return made
}

const text = report.Marker + "\n## Schema review: nothing to do\n"

func TestCommentIsWrittenOnceAndKeptUpToDate(t *testing.T) {
	f := newForge(t, others(250)...)
	before := slices.Clone(f.comments)
	if code, said := f.comment(text); code != 0 || !strings.Contains(said, "#issuecomment-251") || len(f.comments) != 251 || f.comments[250].Body != text {
		t.Fatalf("%d, %s: %d comments", code, said, len(f.comments))
	}
	f.comments = append(f.comments, others(3)...)
	f.comments[250].Body = strings.ReplaceAll(text, "\n", "\r\n") // as GitHub's form sends it
	f.requests = nil
	newer := text + "\n- `a` & \"b\": 100 %, naïve\n"
	if code, said := f.comment(newer); code != 0 || len(f.comments) != 254 || f.comments[250].Body != newer {
		t.Fatalf("%d, %s: %d comments, %q", code, said, len(f.comments), f.comments[250].Body)
	}
	if want := []string{
		"POST /graphql", "GET /api/repos/octo/shop/issues/7/comments", "GET /api/repos/octo/shop/issues/7/comments",
		"GET /api/repos/octo/shop/issues/7/comments", "PATCH /api/repos/octo/shop/issues/comments/251",
	}; !slices.Equal(f.requests, want) {
		t.Errorf("the requests are %q", f.requests)
	}
	for i, c := range before {
		if f.comments[i].Body != c.Body {
			t.Errorf("the comment of another account was changed: %+v", f.comments[i])
		}
	}
}

func TestCommentsOfProjectsAreApart(t *testing.T) {
	f := newForge(t)
	for _, name := range []string{"schema-review", "schema-review-a", "schema-review-a-b", "schema-review-a"} {
		if code, said := f.comment(text, "NAME="+name); code != 0 {
			t.Fatalf("%s: %d, %s", name, code, said)
		}
	}
	var firsts []string
	for _, c := range f.comments {
		first, rest, _ := strings.Cut(c.Body, "\n")
		if firsts = append(firsts, first); rest != "## Schema review: nothing to do\n" {
			t.Errorf("the comment is %q", c.Body)
		}
	}
	if want := []string{"<!-- schema-review -->", "<!-- schema-review-a -->", "<!-- schema-review-a-b -->"}; !slices.Equal(firsts, want) {
		t.Errorf("the comments begin with %q", firsts)
	}
}

func TestLongReportIsCut(t *testing.T) {
	f := newForge(t)
	fits := text + strings.Repeat("é", 65536-utf8.RuneCountInString(text))
	if code, said := f.comment(fits); code != 0 || f.comments[0].Body != fits {
		t.Fatalf("%d, %s: it is not as it was", code, said)
	}
	if code, said := f.comment(text + strings.Repeat("- a line about naïveté\n", 4000)); code != 0 || len(f.comments) != 1 {
		t.Fatalf("%d, %s", code, said)
	}
	body := f.comments[0].Body
	if !strings.HasPrefix(body, report.Marker+"\n> The report is too long for a comment") || !strings.HasSuffix(body, "\n- a line about naïveté\n") ||
		!strings.Contains(body, "artifact `schema-review` of [the run](https://github.com/octo/shop/actions/runs/42)") || utf8.RuneCountInString(body) < 65000 {
		t.Errorf("%d characters: %.400q", utf8.RuneCountInString(body), body)
	}
}

func TestCommentOfAFailedReviewReplacesTheVerdict(t *testing.T) {
	f := newForge(t, comment{5, text, "", &account{bot}})
	if code, said := f.comment("a part of a report", "CODE="); code != 0 {
		t.Fatalf("%d, %s", code, said)
	}
	if body := f.comments[0].Body; !strings.HasPrefix(body, report.Marker+"\nThe schema review failed") || !strings.Contains(body, "runs/42") {
		t.Errorf("the comment is %q", body)
	}
}

func TestCommentStepWarnsIfGitHubRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*forge)
		says string
	}{
		"a pull request from a fork": {func(f *forge) { f.readOnly = true }, "the token may not comment"},
		"an outage":                  {func(f *forge) { f.broken = true }, "502 Bad Gateway"},
		"no connection":              {func(f *forge) { f.Close() }, "refused"},
	} {
		f := newForge(t)
		c.set(f)
		code, said := f.comment(text)
		if code != 0 || !strings.HasPrefix(said, "::warning::") || !strings.Contains(said, c.says) || strings.Count(said, "\n") != 1 || strings.Contains(said, token) {
			t.Errorf("%s: %d, %s", name, code, said)
		}
		if len(f.comments) != 0 {
			t.Errorf("%s: there is a comment", name)
		}
	}
}

func TestCommentStepWithoutAPullRequest(t *testing.T) {
	f := newForge(t)
	if code, said := f.comment(text, "PULL="); code != 0 || len(f.requests) != 0 {
		t.Errorf("a push: %d, %s, requests %q", code, said, f.requests)
	}
	for says, env := range map[string]string{
		"GH_TOKEN":         "GH_TOKEN=",
		"PULL is":          "PULL=7/../8",
		"REPOSITORY is":    "REPOSITORY=octo/shop/../x",
		"schema-review.md": "REPORTS=/nowhere",
	} {
		if code, said := f.comment(text, env); code != 1 || !strings.HasPrefix(said, "::error::") || !strings.Contains(said, says) || len(f.requests) != 0 {
			t.Errorf("%s: %d, %s, requests %q", env, code, said, f.requests)
		}
	}
}
