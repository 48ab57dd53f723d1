package report

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/url"
	"path"
	"strings"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/flowfabric/flowfabric-go/review/internal/rule"
)

// levels are SARIF's names for the severities.
var levels = map[Severity]string{Note: "none", Advice: "note", Risk: "warning", Blocking: "error"}

// WriteSARIF writes the findings in SARIF 2.1.0, for programs showing findings beside the lines. Findings accepted by a
// comment are suppressed; the measurements of a statement are among its finding's properties. Unread parts are
// notifications of the run. Paths are relative to the root of the git repository: GitHub shows no others.
func WriteSARIF(w io.Writer, r *Report) error {
	run := sarif.NewRunWithInformationURI("schema-review", "https://github.com/flowfabric/flowfabric-go/blob/main/docs/schema-review.md")
	run.WithColumnKind("unicodeCodePoints")
	elsewhere := r.Elsewhere
	if len(r.Migrations) > 0 {
		elsewhere = r.Migrations[0]
	}
	for _, f := range r.Findings {
		describe(run.AddRule(f.Rule))
		run.AddResult(result(run, r.Dir, f, elsewhere))
	}
	if len(r.NotRead) > 0 {
		invocation := sarif.NewInvocation().WithExecutionSuccessful(true)
		for _, part := range r.NotRead {
			invocation.AddToolExecutionNotification(sarif.NewNotification().WithLevel("warning").
				WithMessage(sarif.NewTextMessage("Not read: " + part)))
		}
		run.AddInvocation(invocation)
	}
	log := sarif.NewReport().AddRun(run)
	if err := log.Validate(); err != nil {
		return err
	}
	return log.PrettyWrite(w)
}

// describe gives a rule the texts required by GitHub.
func describe(described *sarif.ReportingDescriptor) {
	known, _ := rule.ByName(*described.ID)
	about := cmp.Or(known.About, strings.ReplaceAll(*described.ID, "-", " "))
	help := cmp.Or(known.Advice, about)
	described.WithDescription(about).WithFullDescription(sarif.NewMultiformatMessageString().WithText(about)).
		WithHelp(sarif.NewMultiformatMessageString().WithText(help).WithMarkdown(help))
}

// result is a finding. One without a place stands at the file elsewhere, or else at the project's folder: GitHub
// refuses results without a location. GitHub ignores suppressions, so that an accepted finding is a note there.
func result(run *sarif.Run, dir string, f Finding, elsewhere string) *sarif.Result {
	text := f.Title + "."
	for _, more := range []string{f.Detail, f.Do} {
		if more != "" {
			text += "\n\n" + more
		}
	}
	file := path.Join(dir, cmp.Or(f.Place.File, elsewhere, "."))
	at := sarif.NewPhysicalLocation().WithArtifactLocation(sarif.NewArtifactLocation().WithURI((&url.URL{Path: file}).String()))
	if f.Place.Line > 0 {
		at.WithRegion(sarif.NewRegion().WithStartLine(f.Place.Line))
	}
	res := sarif.NewRuleResult(f.Rule).
		WithRuleIndex(run.GetRuleIndex(f.Rule)).
		WithLevel(levels[f.Severity]).
		WithMessage(sarif.NewTextMessage(text).WithMarkdown(text)).
		// A finding keeps its fingerprint when lines move.
		WithPartialFingerprints(map[string]string{"finding/v1": fingerprint(f)})
	res.AddLocation(sarif.NewLocationWithPhysicalLocation(at))
	if f.Severity == Note {
		res.WithKind("informational") // a finding without a level
	}
	properties := sarif.NewPropertyBag().Add("severity", f.Severity.String())
	if f.Object != "" {
		properties.Add("object", f.Object)
	}
	if f.Measured != nil {
		properties.Add("measured", f.Measured)
	}
	res.WithProperties(properties)
	if f.Silenced != "" {
		if f.Severity != Note {
			res.WithLevel(levels[Advice])
		}
		res.AddSuppression(sarif.NewSuppression().WithKind("inSource").WithStatus("accepted").WithJustification(f.Silenced))
	}
	return res
}

func fingerprint(f Finding) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{f.Rule, f.Place.File, f.Object}, "\x00")))
	return hex.EncodeToString(sum[:8])
}
