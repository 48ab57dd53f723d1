package project

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// configNames are the names that sqlc looks for.
var configNames = []string{"sqlc.yaml", "sqlc.yml", "sqlc.json"}

// sqlcConfig is the part that a review needs of both versions of sqlc's configuration; JSON is YAML as well.
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

func (s *Side) readSQLC() error {
	file, err := s.findSQLC()
	if err != nil || file == "" {
		return err
	}
	text, err := os.ReadFile(filepath.Join(s.Dir, file))
	if err != nil {
		return err
	}
	var config sqlcConfig
	if err := yaml.Unmarshal(text, &config); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, p := range config.Packages {
		if p.Engine == "" || p.Engine == "postgresql" {
			s.SQLC = &SQLC{Schema: p.Schema, Queries: p.Queries, Out: p.Path, Package: p.Name}
			break
		}
	}
	for _, p := range config.SQL {
		if p.Engine == "postgresql" {
			s.SQLC = &SQLC{Schema: p.Schema, Queries: p.Queries, Out: p.Gen.Go.Out, Package: p.Gen.Go.Package}
			break
		}
	}
	if s.SQLC == nil {
		return nil
	}
	s.SQLC.Config = file
	s.Packages = []*SQLC{s.SQLC}
	below := func(name string) string { return path.Join(path.Dir(file), filepath.ToSlash(name)) }
	for _, list := range [][]string{s.SQLC.Schema, s.SQLC.Queries} {
		for i := range list {
			list[i] = below(list[i])
		}
	}
	if s.SQLC.Out != "" {
		s.SQLC.Out = below(s.SQLC.Out)
		if s.SQLC.Package == "" {
			s.SQLC.Package = path.Base(s.SQLC.Out)
		}
	}
	return nil
}

// findSQLC returns the configuration nearest to the root.
func (s *Side) findSQLC() (string, error) {
	var found []string
	err := fs.WalkDir(os.DirFS(s.Dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() && skipped(base) {
			return fs.SkipDir
		}
		if slices.Contains(configNames, base) {
			found = append(found, name)
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		return "", err
	}
	slices.SortStableFunc(found, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	return found[0], nil
}

// findDump looks for the file that dbmate writes, beside the folder of the migrations, and at sqlc's input. If that
// is several files, none of them is the dump.
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
		if err == nil && info.Mode().IsRegular() && path.Dir(name) != s.MigrationsDir {
			s.Dump = path.Clean(name)
			return
		}
	}
}
