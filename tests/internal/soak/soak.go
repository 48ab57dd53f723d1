// Package soak sets the size of tests that prove more the longer or the larger they are. Normally they are small.
// FF_SOAK, which make soak sets, makes them large, and sets how long each test under stress runs.
package soak

import (
	"os"
	"testing"
	"time"
)

// Size returns small, or large in a soak.
func Size(t testing.TB, small, large int) int {
	t.Helper()
	if On(t) {
		return large
	}
	return small
}

// For returns a function that reports whether a test under stress continues: for the moment, or for the time of the
// soak, from now on. A test that must have done something should continue until it has, too.
func For(t testing.TB, moment time.Duration) (goesOn func() bool) {
	t.Helper()
	if d := length(t); d > 0 {
		moment = d
	}
	end := time.Now().Add(moment)
	return func() bool {
		return time.Now().Before(end) //pace:allow a test under stress ends with it, and does not fail
	}
}

// On reports whether this is a soak. Prefer [Size] and [For].
func On(t testing.TB) bool {
	t.Helper()
	return length(t) > 0
}

// length returns how long a test under stress runs in a soak, or 0 if this is none.
func length(t testing.TB) time.Duration {
	t.Helper()
	text := os.Getenv("FF_SOAK")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.Fatalf("FF_SOAK is %q, want a duration as 5m", text)
	}
	return d
}
