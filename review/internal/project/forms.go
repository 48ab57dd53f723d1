package project

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing/fstest"

	"github.com/flowfabric/flowfabric-go/review/report"
)

// form is a tool's form of migrations. Those of other tools are converted to dbmate's, line for line, so that a line
// of a finding is the line of the file in the project.
type form int

const (
	unknown form = iota
	dbmateForm
	gooseForm // "-- +goose Up", "-- +goose Down"
	pairForm  // N_name.up.sql beside N_name.down.sql
)

var (
	gooseUp   = regexp.MustCompile(`(?m)^--[ \t]*\+goose[ \t]+Up[ \t]*$`)
	gooseDown = regexp.MustCompile(`(?m)^--[ \t]*\+goose[ \t]+Down[ \t]*$`)
	gooseBare = regexp.MustCompile(`(?mi)^--[ \t]*\+goose[ \t]+NO[ \t]+TRANSACTION`)
)

func formOf(file, text string) form {
	switch {
	case strings.HasSuffix(file, ".up.sql"):
		return pairForm
	case upDirective.MatchString(text):
		return dbmateForm
	case gooseUp.MatchString(text):
		return gooseForm
	}
	return unknown
}

// dbmateForm reads a migration.
func (s *Side) dbmateForm(file string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(s.Dir, file))
	if err != nil {
		return "", err
	}
	text := strings.ReplaceAll(string(raw), "\r\n", "\n")
	switch formOf(file, text) {
	case gooseForm:
		options := ""
		if gooseBare.MatchString(text) {
			options = " transaction:false"
		}
		text = gooseUp.ReplaceAllString(text, "-- migrate:up"+options)
		if !gooseDown.MatchString(text) {
			return withNewline(text) + "-- migrate:down\n", nil
		}
		return gooseDown.ReplaceAllString(text, "-- migrate:down"+options), nil
	case pairForm:
		down, err := os.ReadFile(filepath.Join(s.Dir, strings.TrimSuffix(file, ".up.sql")+".down.sql"))
		if err != nil && !os.IsNotExist(err) {
			return "", err
		}
		// placeOf knows about the two lines.
		return "-- migrate:up\n" + withNewline(text) + "-- migrate:down\n" + string(down), nil
	}
	return text, nil
}

// PlaceOf returns the line of the project that an offset of m.Text is on.
func (m Migration) PlaceOf(offset int) report.Place { return placeOf(m.File, m.Text, offset) }

// placeOf returns the place in the project of an offset of the text in dbmate's form.
func placeOf(file, text string, at int) report.Place {
	line := 1 + strings.Count(text[:at], "\n")
	if !strings.HasSuffix(file, ".up.sql") {
		return report.Place{File: file, Line: line}
	}
	if down := downDirective.FindStringIndex(text); down != nil && down[0] <= at {
		upLines := strings.Count(text[:down[0]], "\n")
		return report.Place{File: strings.TrimSuffix(file, ".up.sql") + ".down.sql", Line: line - upLines - 1}
	}
	return report.Place{File: file, Line: line - 1}
}

func withNewline(text string) string {
	if strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

// textFile is a file system with one text, under any name.
type textFile string

func (t textFile) Open(name string) (fs.File, error) {
	return fstest.MapFS{name: {Data: []byte(t)}}.Open(name)
}
