package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/report"
)

// The pictures of the documentation match the results beside this module.
func TestPicturesMatchTheResults(t *testing.T) {
	drawn, err := File(filepath.Join("..", "..", "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	curves, err := Growth(filepath.Join("..", "..", "growth.json"))
	if err != nil {
		t.Fatal(err)
	}
	drawn = append(drawn, curves)
	folder := filepath.Join("..", "..", "..", "docs", "internals", "pictures")
	names := make(map[string]bool)
	for _, p := range drawn {
		names[p.Name] = true
		committed, err := os.ReadFile(filepath.Join(folder, p.Name))
		if err != nil || !bytes.Equal(committed, p.SVG) {
			t.Errorf("%s is not drawn from the results in bench as they are: make pictures (%v)", p.Name, err)
		}
		wellFormed(t, p)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !names[entry.Name()] {
			t.Errorf("nothing draws docs/internals/pictures/%s", entry.Name())
		}
	}
}

// Series are drawn instead of bars if there are any, and the same results give the same bytes.
func TestPicturesDrawSeries(t *testing.T) {
	results, err := report.ReadFile(filepath.Join("..", "..", "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	with := &report.Report{}
	for _, r := range results {
		for i, e := range []*report.Entrant{r.Setup.Ours, r.Setup.Peer, r.Setup.Floor} {
			if e == nil {
				continue
			}
			e.Series = &report.Series{}
			for second := range 20 {
				e.Series.Add(time.Duration(second)*time.Second, float64(1000*second*(i+1)))
			}
		}
		with.Facts, with.Command = r.Setup.Facts, r.Setup.Command
		with.Add(r)
	}
	path := filepath.Join(t.TempDir(), "results.json")
	if err := with.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	first, err := File(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := File(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range first {
		wellFormed(t, p)
		if !bytes.Equal(p.SVG, again[i].SVG) {
			t.Errorf("%s is drawn otherwise each time", p.Name)
		}
		if series := p.Name != "latency-under-load.svg"; series != bytes.Contains(p.SVG, []byte(">seconds since")) {
			t.Errorf("%s: the series are drawn: %t", p.Name, !series)
		}
	}
}

// If results are from several servers, those of the first are drawn.
func TestPicturesShowTheFirstServer(t *testing.T) {
	one := filepath.Join("..", "..", "results.json")
	results, err := report.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	with := &report.Report{}
	for _, factor := range []float64{1, 3} {
		for _, r := range results {
			for _, value := range []*float64{r.Ours, r.Peer, r.Floor} {
				if value != nil {
					*value *= factor
				}
			}
			with.Facts, with.Command = r.Setup.Facts, r.Setup.Command
			if factor > 1 {
				with.Facts.Postgres = "PostgreSQL 18.3 on x86_64"
			}
			with.Add(r)
		}
		results, err = report.ReadFile(one)
		if err != nil {
			t.Fatal(err)
		}
	}
	both := filepath.Join(t.TempDir(), "results.json")
	if err := with.WriteFile(both); err != nil {
		t.Fatal(err)
	}
	want, err := File(one)
	if err != nil {
		t.Fatal(err)
	}
	got, err := File(both)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range got {
		if !bytes.Equal(p.SVG, want[i].SVG) {
			t.Errorf("%s is not of the first server's results", p.Name)
		}
	}
}

func wellFormed(t *testing.T, p Picture) {
	t.Helper()
	for decoder := xml.NewDecoder(bytes.NewReader(p.SVG)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			return
		}
	}
}
