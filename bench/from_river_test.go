package main

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/riverqueue/river"
)

// requireInsertedOpts has the options of rivertest, whose package would bring more requirements to this module.
type requireInsertedOpts struct{ MaxAttempts, Priority, Queue, ScheduledAt, Schema, State, Tags struct{} }

// docs/from-river.md has a line for every option of River's.
func TestFromRiverHasEveryOption(t *testing.T) {
	page, err := os.ReadFile("../docs/from-river.md")
	if err != nil {
		t.Fatal(err)
	}
	for section, options := range map[string][]reflect.Type{
		"InsertOpts":                      {reflect.TypeFor[river.InsertOpts]()},
		"UniqueOpts":                      {reflect.TypeFor[river.UniqueOpts]()},
		"PeriodicJob and PeriodicJobOpts": {reflect.TypeFor[river.PeriodicJobOpts]()},
		"rivertest":                       {reflect.TypeFor[requireInsertedOpts](), reflect.TypeFor[river.TestConfig]()},
		"Config":                          {reflect.TypeFor[river.Config](), reflect.TypeFor[river.QueueConfig]()},
	} {
		_, text, found := strings.Cut(string(page), "\n## "+section+"\n")
		text, _, _ = strings.Cut(text, "\n## ")
		if !found {
			t.Errorf("there is no section %q", section)
		}
		var names strings.Builder // the first column
		for line := range strings.Lines(text) {
			if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| ") {
				names.WriteString(cells[0] + "\n")
			}
		}
		for _, of := range options {
			for i := range of.NumField() {
				if name := of.Field(i).Name; of.Field(i).IsExported() && !regexp.MustCompile(`\b`+name+`\b`).MatchString(names.String()) {
					t.Errorf("%s: no line for %s.%s", section, of.Name(), name)
				}
			}
		}
	}
}
