package main

import (
	"io"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/bench/internal/scenario"
)

func TestParse(t *testing.T) {
	for _, test := range []struct {
		name, args, want string
	}{
		{"quick", "-quick", "a c d e"},
		{"all but what has to be asked for", "-all", "a b c d e f g h i j k m n o p q r s t u v w x y z aa ab ac ad ae af ag ah aj ak al am an ao ap aq ar as"},
		{"only, in their order", "-only e,a", "a e"},
		{"what has to be asked for", "-only a-long", "a-long"},
		{"only, shortened", "-only a,b -quick", "a b"},
		{"unknown scenario", "-only a-short", "no scenario"},
		{"two servers", "-quick -postgres 15,18", "a c d e"},
		{"a version that there is not", "-quick -postgres 15,9", "from 14 to 18"},
		{"a version twice", "-quick -postgres 15,15", "from 14 to 18"},
		{"servers of both ways", "-quick -postgres 15 -database-url postgres://h/d", "say either"},
		{"nothing", "", "say -quick"},
		{"too small", "-quick -n 1", "at least 200"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, err := parse(strings.Fields(test.args), io.Discard)
			got := keys(o.scenarios)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, test.want) || err == nil && got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestParseKeepsURLsOutOfTheCommand(t *testing.T) {
	o, err := parse([]string{"-n", "1000", "-database-url", "postgres://user:secret@host/db", "-quick"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if want := "go run . -n=1000 -quick=true"; o.command != want {
		t.Errorf("got %q, want %q", o.command, want)
	}
}

func keys(scenarios []scenario.Scenario) string {
	var keys []string
	for _, s := range scenarios {
		keys = append(keys, s.Key)
	}
	return strings.Join(keys, " ")
}
