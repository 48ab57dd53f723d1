package main

import (
	"net"
	"strings"
	"testing"
)

func TestErrorsHoldNoPassword(t *testing.T) {
	t.Setenv("FF_POSTGRES", "url")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := listener.Addr().String() // no server listens here
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	dir := project(t, "", "")
	for _, c := range []struct {
		url  string
		code int
	}{
		{"postgres://app:s3cr%2Ft@" + closed + "/app", exitFailed},
		{"postgres://app@" + closed + "/app?password=s3cr%2Ft", exitFailed},
		{"postgres://app:s3cr%2Ft@" + closed + "/app?sslmode=s3cr%2Ft", exitUsage},
		{"postgres://app:s3cr/t@" + closed + "/app", exitUsage},
		{"postgres://app:s3cr%zzt@" + closed + "/app", exitUsage},
		{"mysql://app:s3cr%2Ft@" + closed + "/app", exitUsage},
		{"host=localhost password=s3cr/t", exitUsage},
	} {
		t.Setenv("DATABASE_URL", c.url)
		code, stdout, stderr := start(t.Context(), "--dir", dir, "--base", "main")
		if code != c.code || strings.Contains(stdout+stderr, "s3cr") {
			t.Errorf("%s: exit code %d, want %d: %s%s", c.url, code, c.code, stdout, stderr)
		}
	}
}

func TestRedactMasksEveryFormOfAPassword(t *testing.T) {
	t.Parallel()
	var hidden secrets
	err := hidden.read(func(name string) string {
		return map[string]string{"DATABASE_URL": "postgres://app:a%20b%2Fc@h/d", "PGPASSWORD": "other"}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if _, err := (redactor{&hidden, &out}).Write([]byte("a b/c, a+b%2Fc, a%20b%2Fc, app:a%20b%2Fc@h, other\n")); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "xxxxx, xxxxx, xxxxx, xxxxx@h, xxxxx\n" {
		t.Errorf("redacted to %q", got)
	}
}

func TestRedactKeepsAPasswordThatEqualsTheUser(t *testing.T) {
	t.Parallel()
	var hidden secrets
	err := hidden.read(func(name string) string {
		return map[string]string{"DATABASE_URL": "postgres://postgres:postgres@h/d"}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := hidden.redact("postgres://postgres:postgres@h: the user postgres"); got != "postgres://xxxxx@h: the user postgres" {
		t.Errorf("redacted to %q", got)
	}
}
