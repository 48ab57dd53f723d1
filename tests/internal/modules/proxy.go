package modules

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// Proxy is a folder the go command accepts as GOPROXY. The folder has one version of each released module.
type Proxy struct {
	folder  string
	version string
	// Files has the differing files of the repository and the version, by path in the repository: go.work and the released
	// modules' go.mod and go.sum.
	Files map[string][]byte
	sums  map[string]string // a module's lines of a go.sum, by module path
}

// URL returns the proxy's URL.
func (p *Proxy) URL() string { return "file://" + filepath.ToSlash(p.folder) }

// NewProxy builds the released modules from the files of the repository, whether committed or not, and makes a proxy in
// an empty folder. The go.mod files require each other at the version, and the go.sum files have the version's sums: a
// sum depends only on the files, so it is known before the publication.
func NewProxy(root, folder, version string) (*Proxy, error) {
	listed, err := git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	if err != nil {
		return nil, err
	}
	p := &Proxy{folder: folder, version: version, Files: make(map[string][]byte), sums: make(map[string]string)}
	if p.Files["go.work"], err = setWorkspace(root, version); err != nil {
		return nil, err
	}
	names := strings.Split(strings.TrimSuffix(listed, "\x00"), "\x00")
	for _, moduleFolder := range Released {
		if err := p.add(root, moduleFolder, names); err != nil {
			return nil, fmt.Errorf("build %s: %w", Path(moduleFolder), err)
		}
	}
	return p, nil
}

// add adds the module in a folder to the proxy. The required modules have been added.
func (p *Proxy) add(root, moduleFolder string, names []string) error {
	if err := p.setVersions(root, moduleFolder); err != nil {
		return err
	}
	prefix := moduleFolder + "/"
	if moduleFolder == "." {
		prefix = ""
	}
	var files []zip.File
	hasLicense := false
	for _, name := range names {
		inModule, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		f := file{inModule: inModule, onDisk: filepath.Join(root, name), content: p.Files[name]}
		if _, err := f.Lstat(); os.IsNotExist(err) {
			continue // deleted, but not committed
		}
		hasLicense = hasLicense || inModule == "LICENSE"
		files = append(files, f)
	}
	if !hasLicense { // the go command adds the repository's
		files = append(files, file{inModule: "LICENSE", onDisk: filepath.Join(root, "LICENSE")})
	}
	return p.publish(module.Version{Path: Path(moduleFolder), Version: p.version}, p.Files[path.Join(moduleFolder, "go.mod")], files)
}

// setVersions makes a module's go.mod and go.sum name the version of the modules added before.
func (p *Proxy) setVersions(root, moduleFolder string) error {
	goMod, err := readGoMod(filepath.Join(root, moduleFolder))
	if err != nil {
		return err
	}
	goSum, err := os.ReadFile(filepath.Join(root, moduleFolder, "go.sum"))
	if err != nil {
		return err
	}
	var sums string
	for _, sibling := range siblings(goMod) {
		if p.sums[sibling.Path] == "" {
			return fmt.Errorf("it requires %s, which comes after it in the list of released modules", sibling.Path)
		}
		if err := goMod.AddRequire(sibling.Path, p.version); err != nil {
			return err
		}
		sums += p.sums[sibling.Path]
	}
	text, err := goMod.Format()
	p.Files[path.Join(moduleFolder, "go.mod")] = text
	p.Files[path.Join(moduleFolder, "go.sum")] = replaceSums(goSum, sums)
	return err
}

// replaceSums replaces the lines of a go.sum about released modules. The result is sorted.
func replaceSums(goSum []byte, sums string) []byte {
	lines := make(map[module.Version]string)
	var order []module.Version
	for line := range strings.Lines(string(goSum) + sums) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		key := module.Version{Path: fields[0], Version: fields[1]}
		if isReleased(key.Path) && !strings.Contains(sums, line) {
			continue
		}
		if _, known := lines[key]; !known {
			order = append(order, key)
		}
		lines[key] = line
	}
	module.Sort(order)
	var sorted bytes.Buffer
	for _, key := range order {
		sorted.WriteString(lines[key])
	}
	return sorted.Bytes()
}

// publish writes a module's files in the form of the GOPROXY protocol, and notes the sums.
func (p *Proxy) publish(m module.Version, goMod []byte, files []zip.File) error {
	versions := filepath.Join(p.folder, filepath.FromSlash(m.Path), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		return err
	}
	archive := filepath.Join(versions, m.Version+".zip")
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := zip.Create(out, m, files); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	for name, content := range map[string]string{
		"list":              m.Version + "\n",
		m.Version + ".info": fmt.Sprintf(`{"Version":%q,"Time":%q}`, m.Version, time.Now().UTC().Format(time.RFC3339)),
		m.Version + ".mod":  string(goMod),
	} {
		if err := os.WriteFile(filepath.Join(versions, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	zipSum, err := dirhash.HashZip(archive, dirhash.Hash1)
	if err != nil {
		return err
	}
	modSum, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(goMod)), nil
	})
	if err != nil {
		return err
	}
	p.sums[m.Path] = fmt.Sprintf("%[1]s %[2]s %[3]s\n%[1]s %[2]s/go.mod %[4]s\n", m.Path, m.Version, zipSum, modSum)
	return nil
}

// file is a file of a module. The content is the one on disk unless given.
type file struct {
	inModule, onDisk string
	content          []byte
}

func (f file) Path() string { return f.inModule }

func (f file) Open() (io.ReadCloser, error) {
	if f.content != nil {
		return io.NopCloser(bytes.NewReader(f.content)), nil
	}
	return os.Open(f.onDisk)
}

func (f file) Lstat() (os.FileInfo, error) {
	info, err := os.Lstat(f.onDisk)
	if err == nil && f.content != nil {
		info = sized{info, int64(len(f.content))}
	}
	return info, err
}

// sized is the information on a file with another content than on disk.
type sized struct {
	os.FileInfo
	size int64
}

func (s sized) Size() int64 { return s.size }

// setWorkspace returns the repository's go.work with the replace directives of released modules for the version.
func setWorkspace(root, version string) ([]byte, error) {
	goWork, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork("go.work", goWork, nil)
	if err != nil {
		return nil, err
	}
	var outdated []modfile.Replace // copies: dropping one clears the original
	for _, replace := range work.Replace {
		if isReleased(replace.Old.Path) && replace.Old.Version != version {
			outdated = append(outdated, *replace)
		}
	}
	for _, replace := range outdated {
		if err := work.DropReplace(replace.Old.Path, replace.Old.Version); err != nil {
			return nil, err
		}
		if err := work.AddReplace(replace.Old.Path, version, replace.New.Path, replace.New.Version); err != nil {
			return nil, err
		}
	}
	work.Cleanup()
	return modfile.Format(work.Syntax), nil
}
