package report_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/flowfabric/flowfabric-go/review/report"
)

// uploaded is the part of a SARIF file that GitHub reads, as its documentation of SARIF support lists it.
type uploaded struct {
	Schema  string `json:"$schema"`
	Version string
	Runs    []struct {
		Tool struct {
			Driver struct {
				Name  string
				Rules []struct {
					ID                                      string
					ShortDescription, FullDescription, Help struct{ Text string }
				}
			}
		}
		Results []struct {
			RuleID, Level       string
			RuleIndex           int
			Message             struct{ Text string }
			PartialFingerprints map[string]string
			Locations           []struct {
				PhysicalLocation struct {
					ArtifactLocation struct{ URI string }
					Region           *struct{ StartLine int }
				}
			}
		}
	}
}

func upload(t *testing.T, r *report.Report) uploaded {
	t.Helper()
	var text bytes.Buffer
	if err := report.WriteSARIF(&text, r); err != nil {
		t.Fatal(err)
	}
	log, err := sarif.FromBytes(text.Bytes(), sarif.WithStrictValidation())
	if err == nil {
		err = log.Validate()
	}
	if err != nil {
		t.Fatalf("it is not SARIF 2.1.0: %v", err)
	}
	var read uploaded
	if err := json.Unmarshal(text.Bytes(), &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// everywhere has a finding without a place, in a change without a migration, beside those of the sample.
func everywhere() *report.Report {
	r := sample()
	r.Migrations = nil
	r.Findings = append(r.Findings, report.Finding{Rule: "review-incomplete", Severity: report.Risk, Title: "The review could not plan the queries"})
	return r
}

func TestSARIFHasWhatGitHubDemands(t *testing.T) {
	inFolder := everywhere()
	inFolder.Dir = "services/a b"
	for prefix, r := range map[string]*report.Report{"": everywhere(), "services/a%20b/": inFolder} {
		read := upload(t, r)
		if read.Version != "2.1.0" || !strings.Contains(read.Schema, "sarif-schema-2.1.0.json") || len(read.Runs) != 1 {
			t.Fatalf("version %s, schema %s, %d runs", read.Version, read.Schema, len(read.Runs))
		}
		run := read.Runs[0]
		if run.Tool.Driver.Name == "" || len(run.Results) != len(r.Findings) {
			t.Fatalf("%q has %d results for %d findings", run.Tool.Driver.Name, len(run.Results), len(r.Findings))
		}
		for _, rule := range run.Tool.Driver.Rules {
			if rule.ShortDescription.Text == "" || rule.FullDescription.Text == "" || rule.Help.Text == "" {
				t.Errorf("rule %s is not described: %+v", rule.ID, rule)
			}
		}
		for i, result := range run.Results {
			f := r.Findings[i]
			if result.RuleID != f.Rule || run.Tool.Driver.Rules[result.RuleIndex].ID != f.Rule {
				t.Errorf("%s has rule %s, index %d", f.Rule, result.RuleID, result.RuleIndex)
			}
			if result.Message.Text == "" || result.PartialFingerprints["finding/v1"] == "" {
				t.Errorf("%s has no message or no fingerprint", f.Rule)
			}
			if f.Silenced != "" && result.Level != "note" {
				t.Errorf("%s is accepted, and GitHub, which ignores that, shows level %s", f.Rule, result.Level)
			}
			want := prefix + f.Place.File
			if f.Place.File == "" {
				want = strings.TrimSuffix(prefix, "/")
			}
			if want == "" {
				want = "."
			}
			if len(result.Locations) != 1 {
				t.Errorf("%s has %d locations", f.Rule, len(result.Locations))
				continue
			}
			at := result.Locations[0].PhysicalLocation
			if at.ArtifactLocation.URI != want {
				t.Errorf("%s is at %q, want %q", f.Rule, at.ArtifactLocation.URI, want)
			}
			if (at.Region == nil) != (f.Place.Line == 0) || at.Region != nil && at.Region.StartLine != f.Place.Line {
				t.Errorf("%s is at region %v, want line %d", f.Rule, at.Region, f.Place.Line)
			}
		}
	}
}

// A folder is no place that code scanning can show.
func TestSARIFPlacesFindingsWithoutAPlaceAtAFile(t *testing.T) {
	r := everywhere()
	r.Elsewhere = "db/sqlc.yaml"
	at := func() string {
		results := upload(t, r).Runs[0].Results
		return results[len(results)-1].Locations[0].PhysicalLocation.ArtifactLocation.URI
	}
	if got := at(); got != "db/sqlc.yaml" {
		t.Errorf("without a migration it is at %q", got)
	}
	r.Migrations = []string{"db/migrations/1_a.sql"}
	if got := at(); got != "db/migrations/1_a.sql" {
		t.Errorf("with a migration it is at %q", got)
	}
}

func TestMarkdownNamesTheFolder(t *testing.T) {
	r := sample()
	r.Dir = "services/a"
	var text bytes.Buffer
	if err := report.WriteMarkdown(&text, r, report.Blocking); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(text.String(), report.Marker+"\n## Schema review of `services/a`: ") {
		t.Errorf("the report begins with %.200s", text.String())
	}
}
