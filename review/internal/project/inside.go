package project

import (
	"path/filepath"

	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// inside returns the paths of a configuration that lie in the project, and reports the others, which are not read.
func (s *Side) inside(config string, names []string) []string {
	var kept []string
	for _, name := range names {
		if name != "" && isInside(name) {
			kept = append(kept, name)
			continue
		}
		s.Findings = append(s.Findings, report.Finding{
			Rule: rule.PathOutside.Name, Severity: report.Blocking, Place: report.Place{File: config}, Object: name,
			Title: "A path leads out of the project", Detail: "`" + name + "` is not read or written.",
			Do: "Name a path inside the project.",
		})
	}
	return kept
}

func isInside(name string) bool { return filepath.IsLocal(filepath.FromSlash(name)) }
