//go:build linux || darwin

package pgserver

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
)

// repository has the archives of PostgreSQL's programs.
const repository = "https://repo1.maven.org/maven2"

// platform returns the repository's name for the kind of machine.
func platform(goos, goarch string, alpine bool) string {
	name := goos + "-" + goarch
	if goarch == "arm64" {
		name += "v8"
	}
	if alpine {
		name += "-alpine"
	}
	return name
}

// thisPlatform is the machine's platform. The library for unpacking the archive looks for Alpine in the same way.
func thisPlatform() string {
	_, err := os.Stat("/etc/alpine-release")
	return platform(runtime.GOOS, runtime.GOARCH, runtime.GOOS == "linux" && err == nil)
}

// archive is one version of PostgreSQL's programs for one platform, with its required SHA-256 sum.
type archive struct {
	version, platform, sum string
}

func newArchive(version, platform string) (archive, error) {
	sum := sums[version][platform]
	if sum == "" {
		return archive{}, fmt.Errorf("no checksum is known for PostgreSQL %s on %s: set DATABASE_URL, or FF_POSTGRES_VERSION to another major version", version, platform)
	}
	return archive{version, platform, sum}, nil
}

// name returns the name of the archive, without an extension.
func (a archive) name() string { return "embedded-postgres-binaries-" + a.platform }

// download fetches the archive and puts the compressed programs into a folder, under the name expected by the library
// for unpacking. An archive with another sum is refused.
func (a archive) download(ctx context.Context, client *http.Client, folder string) error {
	url := fmt.Sprintf("%s/io/zonky/test/postgres/%[2]s/%[3]s/%[2]s-%[3]s.jar", repository, a.name(), a.version)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	jar, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	if sum := sha256.Sum256(jar); hex.EncodeToString(sum[:]) != a.sum {
		return fmt.Errorf("%s is not the expected file: its SHA-256 is %x, not %s", url, sum, a.sum)
	}
	return a.extract(jar, folder)
}

// extract writes the one .txz file of the archive into a folder.
func (a archive) extract(jar []byte, folder string) error {
	files, err := zip.NewReader(bytes.NewReader(jar), int64(len(jar)))
	if err != nil {
		return err
	}
	for _, entry := range files.File {
		if path.Ext(entry.Name) != ".txz" {
			continue
		}
		in, err := entry.Open()
		if err != nil {
			return err
		}
		defer in.Close()
		programs, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(folder, a.name()+"-"+a.version+".txz"), programs, 0o600)
	}
	return fmt.Errorf("there are no programs in the archive of PostgreSQL %s for %s", a.version, a.platform)
}
