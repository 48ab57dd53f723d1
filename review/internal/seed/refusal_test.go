package seed

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// A table stays empty for what its statement says, and not because the server lacked something meanwhile.
func TestIsServerError(t *testing.T) {
	for code, want := range map[string]bool{
		"23514": true, "42501": true, "": true,
		"40P01": false, "53100": false, "53200": false, "55P03": false, "57014": false, "58030": false, "XX000": false,
	} {
		if got := isServerError(&pgconn.PgError{Code: code}); got != want {
			t.Errorf("%q is a refusal: %v", code, got)
		}
	}
	if isServerError(errors.New("the connection is lost")) {
		t.Error("a lost connection is a refusal")
	}
}
