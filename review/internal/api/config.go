package api

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

// configName is the file a review writes for sqlc, beside the copy of the project's input.
const configName = "schema-review-sqlc.json"

// The options of the project's configuration to keep. Others are left out: plugins are programs, and a database, a
// server or the cloud is reached over the network.
var (
	entryOptions = []string{"name", "engine", "schema", "queries", "strict_function_checks", "strict_order_by"}
	goOptions    = []string{
		"package", "out", "sql_package", "sql_driver", "query_parameter_limit", "rename", "overrides", "initialisms",
		"inflection_exclude_table_names", "omit_unused_structs", "omit_sqlc_version", "build_tags",
	}
	goPrefixes = []string{"emit_", "json_tags_", "output_"}
	// firstOptions are the options of a package in version 1, with sqlc's and the generator's at one level.
	firstOptions = append([]string{"path"}, append(entryOptions, goOptions...)...)
)

// writeConfig writes the configuration for the package of a side into the copy of its input, made.
func writeConfig(side *project.Side, made string) error {
	text, err := os.ReadFile(filepath.Join(side.Dir, side.SQLC.Config))
	if err != nil {
		return err
	}
	var config map[string]any
	if err := yaml.Unmarshal(text, &config); err != nil {
		return fmt.Errorf("%s: %w", side.SQLC.Config, err)
	}
	dir := path.Dir(side.SQLC.Config)
	written := map[string]any{"version": config["version"]}
	if fmt.Sprint(config["version"]) == "1" {
		written["version"] = "1"
		written["packages"] = only(config["packages"], func(entry map[string]any) (map[string]any, bool) {
			out, _ := entry["path"].(string)
			return input(pick(entry, firstOptions, goPrefixes), side), path.Join(dir, out) == side.SQLC.Out
		})
		for _, name := range []string{"overrides", "rename"} {
			if config[name] != nil {
				written[name] = config[name]
			}
		}
	} else {
		written["version"] = "2"
		written["sql"] = only(config["sql"], func(entry map[string]any) (map[string]any, bool) {
			gen, _ := entry["gen"].(map[string]any)
			goGen, _ := gen["go"].(map[string]any)
			out, _ := goGen["out"].(string)
			kept := input(pick(entry, entryOptions, nil), side)
			kept["gen"] = map[string]any{"go": pick(goGen, goOptions, goPrefixes)}
			return kept, out != "" && path.Join(dir, out) == side.SQLC.Out
		})
		if overrides, is := config["overrides"].(map[string]any); is && overrides["go"] != nil {
			written["overrides"] = map[string]any{"go": overrides["go"]}
		}
	}
	document, err := json.Marshal(written)
	if err != nil {
		return fmt.Errorf("%s: %w", side.SQLC.Config, err)
	}
	to := filepath.Join(made, dir)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, configName), document, 0o644)
}

// input replaces the paths of an entry by the read ones, relative to the configuration.
func input(entry map[string]any, side *project.Side) map[string]any {
	for name, list := range map[string][]string{"schema": side.SQLC.Schema, "queries": side.SQLC.Queries} {
		relative := []string{}
		for _, file := range list {
			if below, err := filepath.Rel(path.Dir(side.SQLC.Config), file); err == nil {
				relative = append(relative, filepath.ToSlash(below))
			}
		}
		entry[name] = relative
	}
	return entry
}

// only returns the first entry of a list wanted by keep.
func only(list any, keep func(map[string]any) (map[string]any, bool)) []any {
	entries, _ := list.([]any)
	for _, item := range entries {
		entry, is := item.(map[string]any)
		if !is {
			continue
		}
		if kept, wanted := keep(entry); wanted {
			return []any{kept}
		}
	}
	return []any{}
}

// pick returns the options of the given names and prefixes. The name of a file elsewhere is left out.
func pick(options map[string]any, names, prefixes []string) map[string]any {
	kept := map[string]any{}
	for name, value := range options {
		prefixed := slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if !prefixed && !slices.Contains(names, name) {
			continue
		}
		if file, is := value.(string); is && strings.HasPrefix(name, "output_") && file != filepath.Base(file) {
			continue
		}
		kept[name] = value
	}
	return kept
}
