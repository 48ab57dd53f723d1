package project

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// Unread is a file or folder the review did not read, despite a possible effect on the result.
type Unread struct {
	Path string
	Why  string
	// IfChanged: the migration tool does not read the file either, so only a change matters.
	IfChanged bool
}

func (s *Side) unread(name, why string) {
	s.addUnread(Unread{Path: name, Why: why})
}

func (s *Side) unreadIfChanged(name, why string) {
	s.addUnread(Unread{Path: name, Why: why, IfChanged: true})
}

func (s *Side) addUnread(u Unread) {
	if !slices.Contains(s.Unread, u) {
		s.Unread = append(s.Unread, u)
	}
}

// broken reports a malformed file. The review continues without the file.
func (s *Side) broken(place report.Place, title, detail string) {
	s.Findings = append(s.Findings, report.Finding{
		Rule: rule.QueryUnreadable.Name, Severity: report.Blocking, Place: place, Title: title, Detail: detail, Do: "Correct the file.",
	})
	s.unread(place.File, "it cannot be read: "+strings.Join(strings.Fields(detail), " "))
}

// harmless are the files beside migrations without any schema.
var harmless = regexp.MustCompile(`(?i)^(\..*|readme.*|changelog.*|license.*|makefile|dockerfile.*|.*\.(md|txt|adoc|rst|sum|yaml|yml|toml|json|hcl|conf|mod)|.*_test\.go)$`)

// reportUnread reports the files of the folder other than migrations and harmless files.
func (r *reader) reportUnread() {
	for _, name := range r.names {
		base := path.Base(strings.TrimSuffix(name, "/"))
		file := path.Join(r.dir, name)
		if r.used[name] {
			continue
		}
		if r.Tool == GolangMigrate && pairName.MatchString(name) {
			r.unreadIfChanged(file, "a way down without its way up")
			continue
		}
		if harmless.MatchString(base) {
			continue
		}
		switch isGo := strings.HasSuffix(name, ".go"); {
		case isGo && numberedGo.MatchString(base):
			r.unread(file, "a migration in Go, which "+string(r.Tool)+" does not run from files")
		case isGo:
			// A package that embeds the folder.
		case strings.HasSuffix(name, "/"):
			r.unreadIfChanged(file, "a folder below the migrations, which "+string(r.Tool)+" does not read")
		case strings.HasSuffix(name, ".sql"):
			r.unreadIfChanged(file, "its name is not that of a migration of "+string(r.Tool))
		default:
			r.unread(file, "a file of an unknown kind beside the migrations")
		}
	}
}

var numberedGo = regexp.MustCompile(`^[VvUR]?\d+.*\.go$`)
