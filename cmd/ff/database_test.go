package main

import (
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

// A21: with --schema the other parameters of the URL were encoded anew, a space as a plus sign, which Postgres's
// clients do not read as one.
func TestA21_schema_keeps_the_parameters_of_the_URL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, parameters string }{
		{"a space", "options=-c%20x.y%3Doff"},
		{"two options", "options=-c%20x.y%3Doff%20-c%20x.z%3Da+b%26c%25d"},
		{"a plus sign", "options=-c%20x.y%3Da+b"},
		{"a hash sign", "application_name=a#b"},
		{"signs of URLs, encoded", "application_name=%23%26%2B%2F%3A%3B%3D%3F%40%25%27%22"},
		{"another schema", "search_path=nowhere&options=-c%20x.y%3Doff"},
		{"another schema, encoded", "search%5Fpath=nowhere"},
		{"of the pool", "pool_max_conns=2&options=-c%20x.y%3Doff"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			databaseURL := pgtest.EmptyDatabase(t)
			if strings.Contains(databaseURL, "?") {
				databaseURL += "&" + c.parameters
			} else {
				databaseURL += "?" + c.parameters
			}
			const of = "Second one"
			for _, step := range []struct {
				code int
				args []string
			}{
				{exitDone, []string{"migrate", "up"}},
				{exitNotFound, []string{"flow", "show", id.NewFlowID().String()}},
				{exitDone, []string{"migrate", "status"}},
				{exitDone, []string{"migrate", "down", "--all"}},
			} {
				code, _, stderr := start(t, t.Context(), append(step.args, "--schema", of, "--database-url", databaseURL)...)
				if code != step.code {
					t.Fatalf("ff %s: exit code %d, want %d: %s", strings.Join(step.args, " "), code, step.code, stderr)
				}
			}
		})
	}
}
