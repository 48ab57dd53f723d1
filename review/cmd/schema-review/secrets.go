package main

import (
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/review/report"
)

// secrets are texts the command must not print.
type secrets []string

// read keeps the passwords in the environment, and checks DATABASE_URL. Its errors hold no password.
func (s *secrets) read(env func(string) string) error {
	s.keep(env("PGPASSWORD"))
	raw := env("DATABASE_URL")
	if raw == "" {
		return nil
	}
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		// The password may be anywhere in a malformed URL, so quote nothing of it.
		return usageError{"DATABASE_URL is not a URL of the form postgres://user:password@host:port/database"}
	}
	s.keepURL(u)
	if _, err := pgx.ParseConfig(raw); err != nil {
		return usageError{fmt.Sprintf("DATABASE_URL cannot be used (%s)", oneLine(err))}
	}
	return nil
}

// keepURL keeps a URL's password, unless it equals another part of the URL.
func (s *secrets) keepURL(u *url.URL) {
	password, _ := u.User.Password()
	if password != "" {
		s.keep(u.User.String())
	}
	for _, password := range []string{password, u.Query().Get("password")} {
		switch password {
		case u.User.Username(), u.Hostname(), strings.TrimPrefix(u.Path, "/"):
		default:
			s.keep(password)
		}
	}
}

func (s *secrets) keep(secret string) {
	if secret != "" {
		*s = append(*s, secret, url.QueryEscape(secret), url.PathEscape(secret))
	}
}

// redact masks the secrets in a text.
func (s *secrets) redact(text string) string {
	for _, secret := range *s {
		text = strings.ReplaceAll(text, secret, "xxxxx")
	}
	return text
}

// redactor is a writer that masks secrets. Each write has whole lines.
type redactor struct {
	secrets *secrets
	to      io.Writer
}

func (r redactor) Write(text []byte) (int, error) {
	if _, err := io.WriteString(r.to, r.secrets.redact(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// redactReport redacts the texts of a report that may repeat errors of the server or of programs.
func (s *secrets) redactReport(r *report.Report) {
	for _, list := range [][]string{r.Skipped, r.NotRead, r.NotSeeded} {
		for i := range list {
			list[i] = s.redact(list[i])
		}
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Title, f.Detail, f.Do = s.redact(f.Title), s.redact(f.Detail), s.redact(f.Do)
	}
}
