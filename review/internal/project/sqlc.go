package project

import (
	"cmp"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/flowfabric/flowfabric-go/review/report"
)

// configNames are the names sqlc looks for.
var configNames = []string{"sqlc.yaml", "sqlc.yml", "sqlc.json"}

// sqlcConfig is the part a review needs of both versions of sqlc's configuration; JSON is YAML as well.
type sqlcConfig struct {
	Version  string `yaml:"version"`
	Packages []struct {
		Name    string `yaml:"name"`
		Path    string `yaml:"path"`
		Engine  string `yaml:"engine"`
		Schema  paths  `yaml:"schema"`
		Queries paths  `yaml:"queries"`
	} `yaml:"packages"` // version 1
	SQL []struct {
		Engine  string `yaml:"engine"`
		Schema  paths  `yaml:"schema"`
		Queries paths  `yaml:"queries"`
		Gen     struct {
			Go struct {
				Package string `yaml:"package"`
				Out     string `yaml:"out"`
			} `yaml:"go"`
		} `yaml:"gen"`
		Codegen []struct {
			Out string `yaml:"out"`
		} `yaml:"codegen"`
	} `yaml:"sql"` // version 2
}

// paths are one path or several.
type paths []string

func (p *paths) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*p = paths{node.Value}
		return nil
	}
	return node.Decode((*[]string)(p))
}

// readSQLC reads the packages of all configurations: the named ones, or all of the project.
func (s *Side) readSQLC(configs []string) error {
	found, err := s.findSQLC()
	if err != nil {
		return err
	}
	if len(configs) > 0 {
		found = nil
		for _, name := range configs {
			if _, err := os.Stat(filepath.Join(s.Dir, name)); err == nil {
				found = append(found, path.Clean(filepath.ToSlash(name)))
			}
		}
	}
	for _, file := range found {
		if err := s.readConfig(file); err != nil {
			return err
		}
	}
	if len(s.Packages) > 0 {
		s.SQLC = s.Packages[0]
	}
	return nil
}

// readConfig reads the packages of a configuration. A file other than YAML is a finding.
func (s *Side) readConfig(file string) error {
	text, err := os.ReadFile(filepath.Join(s.Dir, file))
	if err != nil {
		return err
	}
	var config sqlcConfig
	if err := yaml.Unmarshal(text, &config); err != nil {
		s.broken(report.Place{File: file}, "The configuration of sqlc cannot be read", err.Error())
		return nil
	}
	for _, p := range config.Packages {
		s.addPackage(file, p.Engine, &SQLC{Schema: p.Schema, Queries: p.Queries, Out: p.Path, Package: p.Name})
	}
	for _, p := range config.SQL {
		made := &SQLC{Schema: p.Schema, Queries: p.Queries, Out: p.Gen.Go.Out, Package: p.Gen.Go.Package}
		if made.Out == "" && len(p.Codegen) > 0 {
			made.Package = path.Base(p.Codegen[0].Out)
		}
		s.addPackage(file, cmp.Or(p.Engine, "none"), made)
	}
	return nil
}

// addPackage adds a package generated for PostgreSQL, with paths relative to the root.
func (s *Side) addPackage(file, engine string, p *SQLC) {
	p.Config = file
	below := func(name string) string {
		if name = filepath.ToSlash(name); path.IsAbs(name) {
			return name
		}
		return path.Join(path.Dir(file), name)
	}
	for _, list := range [][]string{p.Schema, p.Queries} {
		for i := range list {
			list[i] = below(list[i])
		}
	}
	p.Schema, p.Queries = s.inside(file, p.Schema), s.inside(file, p.Queries)
	if engine != "" && engine != "postgresql" {
		for _, name := range slices.Concat(p.Schema, p.Queries) {
			s.unreadIfChanged(name, "sqlc reads it for the database "+engine+", not for PostgreSQL")
		}
		return
	}
	if p.Out != "" && len(s.inside(file, []string{below(p.Out)})) == 0 {
		p.Out = ""
	}
	if p.Out != "" {
		p.Out = below(p.Out)
		p.Package = cmp.Or(p.Package, path.Base(p.Out))
	}
	if p.Package == "" && len(p.Queries) > 0 {
		p.Package = strings.TrimSuffix(path.Base(p.Queries[0]), ".sql")
	}
	s.Packages = append(s.Packages, p)
}

// findSQLC returns the configurations, the nearest to the root first.
func (s *Side) findSQLC() ([]string, error) {
	var found []string
	err := fs.WalkDir(os.DirFS(s.Dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if skipped(entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if slices.Contains(configNames, entry.Name()) {
			found = append(found, name)
		}
		return nil
	})
	slices.SortStableFunc(found, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	return found, err
}

// findDump looks for dbmate's dump beside the folder of the migrations, and at sqlc's input. If the input is several
// files, none is the dump.
func (s *Side) findDump() {
	candidates := []string{s.environment("DBMATE_SCHEMA_FILE", "db/schema.sql")}
	if s.MigrationsDir != "" {
		candidates = append(candidates, path.Join(path.Dir(s.MigrationsDir), "schema.sql"))
	}
	if s.SQLC != nil && len(s.SQLC.Schema) == 1 {
		candidates = append(candidates, s.SQLC.Schema[0])
	}
	for _, name := range candidates {
		info, err := os.Stat(filepath.Join(s.Dir, name))
		if err == nil && isInside(name) && info.Mode().IsRegular() && path.Dir(name) != s.MigrationsDir {
			s.Dump = path.Clean(name)
			return
		}
	}
}
