package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// github calls GitHub's API.
type github struct {
	rest, graphql, token string
	client               http.Client
}

var (
	repositoryName = regexp.MustCompile(`^[\w.-]+/[\w.-]+$`)
	pullNumber     = regexp.MustCompile(`^[1-9][0-9]*$`)
)

// connect reads the parameters of the calls. It sends nothing.
func connect(env func(string) string) (*github, error) {
	for _, name := range []string{"NAME", "GH_TOKEN", "GITHUB_API_URL", "GITHUB_GRAPHQL_URL", "GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID", "REPORTS"} {
		if env(name) == "" {
			return nil, fmt.Errorf("%s is not set", name)
		}
	}
	if !repositoryName.MatchString(env("REPOSITORY")) {
		return nil, fmt.Errorf("REPOSITORY is %q, not owner/name", env("REPOSITORY"))
	}
	if !pullNumber.MatchString(env("PULL")) {
		return nil, fmt.Errorf("PULL is %q, not a number", env("PULL"))
	}
	return &github{
		rest: strings.TrimSuffix(env("GITHUB_API_URL"), "/"), graphql: env("GITHUB_GRAPHQL_URL"), token: env("GH_TOKEN"),
		client: http.Client{Timeout: time.Minute},
	}, nil
}

// comment is a comment as the API lists it.
type comment struct {
	ID   int64
	Body string
	URL  string                  `json:"html_url"`
	User *struct{ Login string } // nil: the account was deleted
}

// keep updates the first comment that begins with the marker and is from the token's own user, or adds one. It returns the
// comment's page.
func (g *github) keep(ctx context.Context, repository, pull, marker, body string) (string, error) {
	me, err := g.login(ctx)
	if err != nil {
		return "", fmt.Errorf("find the user of the token: %w", err)
	}
	comments := g.rest + "/repos/" + repository + "/issues/" + pull + "/comments"
	method, target := http.MethodPost, comments
	for page, more := 1, true; more && method == http.MethodPost; page++ {
		var listed []comment
		header, err := g.call(ctx, http.MethodGet, fmt.Sprintf("%s?per_page=100&page=%d", comments, page), nil, &listed)
		if err != nil {
			return "", err
		}
		for _, c := range listed {
			if c.User != nil && c.User.Login == me && isMarked(c.Body, marker) {
				method, target = http.MethodPatch, fmt.Sprintf("%s/repos/%s/issues/comments/%d", g.rest, repository, c.ID)
				break
			}
		}
		more = strings.Contains(header.Get("Link"), `rel="next"`)
	}
	var kept comment
	_, err = g.call(ctx, method, target, map[string]string{"body": body}, &kept)
	return kept.URL, err
}

// isMarked reports whether the first line is the marker. GitHub stores the lines of some comments with CRLF.
func isMarked(body, marker string) bool {
	first, _, _ := strings.Cut(body, "\n")
	return strings.TrimRight(first, "\r ") == marker
}

// login returns the user of the token. The REST API refuses that question for the token of a workflow.
func (g *github) login(ctx context.Context) (string, error) {
	var answer struct {
		Data   struct{ Viewer struct{ Login string } }
		Errors []struct{ Message string }
	}
	if _, err := g.call(ctx, http.MethodPost, g.graphql, map[string]string{"query": "{ viewer { login } }"}, &answer); err != nil {
		return "", err
	}
	if len(answer.Errors) > 0 {
		return "", errors.New(answer.Errors[0].Message)
	}
	if answer.Data.Viewer.Login == "" {
		return "", errors.New("GitHub names no user")
	}
	return answer.Data.Viewer.Login, nil
}

// refusedError is an answer that is not 2xx.
type refusedError struct {
	request, status, message string
	code                     int
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("%s: %s: %s", e.request, e.status, e.message)
}

// forbidden reports whether the token lacks a right. GitHub answers 404 for things a token may not see.
func (e *refusedError) forbidden() bool {
	return e.code == http.StatusUnauthorized || e.code == http.StatusForbidden || e.code == http.StatusNotFound
}

// call sends a request, and reads the answer into into.
func (g *github) call(ctx context.Context, method, target string, send, into any) (http.Header, error) {
	var body io.Reader
	if send != nil {
		text, err := json.Marshal(send)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+g.token)
	request.Header.Set("Accept", "application/vnd.github+json")
	request.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	if send != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := g.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 32<<20))
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		var said struct{ Message string }
		if json.Unmarshal(text, &said) != nil || said.Message == "" {
			said.Message = "no message"
		}
		return nil, &refusedError{method + " " + path(target), response.Status, said.Message, response.StatusCode}
	}
	if err := json.Unmarshal(text, into); err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path(target), err)
	}
	return response.Header, nil
}

// path is the path of a URL, for messages.
func path(target string) string {
	if parsed, err := url.Parse(target); err == nil {
		return parsed.Path
	}
	return "the API"
}
