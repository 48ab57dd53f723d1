package api

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The configuration that sqlc gets has the options of the generator, and nothing that runs a program or reaches the
// network.
func TestWriteConfigLeavesOutPrograms(t *testing.T) {
	for name, text := range map[string]string{
		"version 2": `version: "2"
cloud: {project: evil, organization: evil}
plugins: [{name: evil, process: {cmd: evil}}]
servers: [{engine: postgresql, uri: "postgres://evil"}]
rules: [{name: evil, rule: "true"}]
sql:
  - {engine: postgresql, schema: migrations, queries: queries, gen: {go: {package: other, out: other}}}
  - engine: postgresql
    schema: migrations
    queries: queries
    database: {uri: "postgres://evil"}
    analyzer: {database: true}
    gen: {go: {package: shop, out: shop, emit_interface: true, output_db_file_name: ../../evil.go, rename: {id: Key}}, json: {out: evil}}
    codegen: [{plugin: evil, out: evil}]
`,
		"version 1": `version: "1"
plugins: [{name: evil, process: {cmd: evil}}]
packages:
  - {engine: postgresql, path: shop, name: shop, schema: migrations, queries: queries, emit_interface: true, database: {uri: "evil"}}
rename: {id: Key}
`,
	} {
		s := side(t, map[string]string{"sqlc.yaml": text})
		s.SQLC.Out = "shop"
		made := t.TempDir()
		if err := writeConfig(s, made); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		written, err := os.ReadFile(filepath.Join(made, configName))
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"evil", "other"} {
			if strings.Contains(string(written), word) {
				t.Errorf("%s: %s is in %s", name, word, written)
			}
		}
		for _, word := range []string{`"shop"`, `"emit_interface":true`, `"Key"`, `"migrations"`, `"queries"`} {
			if !strings.Contains(string(written), word) {
				t.Errorf("%s: %s is not in %s", name, word, written)
			}
		}
	}
}
