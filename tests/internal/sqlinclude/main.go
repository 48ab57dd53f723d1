// Command sqlinclude writes db/sql, the input of sqlc, from the folders of queries/.
//
// A line
//
//	-- include trim_page: table = ff_lease_event, at_ms = occurred_at_ms
//
// includes the lines of queries/include/trim_page.sql, indented like the line. Each ${table} there becomes
// ff_lease_event. Every parameter of a passage needs a value, and every value a parameter. The header of a statement in
// db/sql lists its passages.
//
// With -check it writes nothing, and fails if the files differ from its output.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	source = "queries"
	target = "db/sql"
)

var include = regexp.MustCompile(`^( *)-- include (\w+)(?:: (.+))?$`)

func main() {
	log.SetFlags(0)
	log.SetPrefix("sqlinclude: ")
	check := flag.Bool("check", false, "compare instead of write")
	flag.Parse()
	if err := run(*check); err != nil {
		log.Fatal(err)
	}
}

func run(check bool) error {
	sources, err := filepath.Glob(filepath.Join(source, "*", "*.sql"))
	if err != nil {
		return err
	}
	written := make(map[string]bool)
	for _, path := range sources {
		if filepath.Dir(path) == filepath.Join(source, "include") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		expanded, err := expand(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		to := filepath.Join(target, filepath.Base(path))
		if written[to] {
			return fmt.Errorf("two folders of %s have %s", source, filepath.Base(path))
		}
		written[to] = true
		if check {
			if held, err := os.ReadFile(to); err != nil || !bytes.Equal(held, []byte(expanded)) {
				return fmt.Errorf("%s is not what `make generate` writes", to)
			}
			continue
		}
		if err := os.WriteFile(to, []byte(expanded), 0o644); err != nil {
			return err
		}
	}
	there, err := filepath.Glob(filepath.Join(target, "*"))
	if err != nil {
		return err
	}
	for _, path := range there {
		if written[path] {
			continue
		}
		if check {
			return fmt.Errorf("%s has no source in %s", path, source)
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// expand replaces the lines that include a passage by the passage, and lists the passages of each statement in its header.
func expand(text string) (string, error) {
	var out strings.Builder
	for i, statement := range statements(text) {
		expanded, passages, err := expandStatement(statement)
		if err != nil {
			return "", err
		}
		if len(passages) > 0 {
			header, rest, found := strings.Cut(expanded, "\n-- Used by:")
			if !found || i == 0 {
				return "", fmt.Errorf("a statement with passages has no users: %.60q", statement)
			}
			expanded = header + "\n" + listed(passages) + "-- Used by:" + rest
		}
		out.WriteString(expanded)
	}
	return out.String(), nil
}

// listed returns the lines of a header that list passages.
func listed(passages []string) string {
	var out strings.Builder
	line := "-- Passages:"
	for _, passage := range passages {
		if len(line)+len(passage) > 118 {
			out.WriteString(line + "\n")
			line = "--"
		}
		line += " " + passage + ","
	}
	out.WriteString(strings.TrimSuffix(line, ",") + ".\n")
	return out.String()
}

// statements splits a file before each statement. The first part has none.
func statements(text string) []string {
	const name = "-- name: "
	parts := strings.Split("\n"+text, "\n"+name)
	for i := range parts {
		if i > 0 {
			parts[i] = name + parts[i]
		}
		if i < len(parts)-1 {
			parts[i] += "\n"
		}
	}
	parts[0] = strings.TrimPrefix(parts[0], "\n")
	return parts
}

func expandStatement(text string) (expanded string, passages []string, err error) {
	var out strings.Builder
	for line := range strings.Lines(text) {
		match := include.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if match == nil {
			out.WriteString(line)
			continue
		}
		passage, err := read(match[2], match[3])
		if err != nil {
			return "", nil, fmt.Errorf("%s: %w", match[2], err)
		}
		if !slices.Contains(passages, match[2]) {
			passages = append(passages, match[2])
		}
		for line := range strings.Lines(passage) {
			if line != "\n" {
				line = match[1] + line
			}
			out.WriteString(line)
		}
	}
	return out.String(), passages, nil
}

// read returns a passage with its parameters replaced.
func read(name, parameters string) (string, error) {
	text, err := os.ReadFile(filepath.Join(source, "include", name+".sql"))
	if err != nil {
		return "", err
	}
	values := make(map[string]string)
	for parameter := range strings.SplitSeq(parameters, ", ") {
		if key, value, ok := strings.Cut(parameter, " = "); ok {
			values[key] = value
		} else if parameters != "" {
			return "", fmt.Errorf("%q is not of the form key = value", parameter)
		}
	}
	used := make(map[string]bool)
	var missing string
	passage := os.Expand(string(text), func(key string) string {
		value, ok := values[key]
		if !ok {
			missing = key
		}
		used[key] = true
		return value
	})
	if missing != "" {
		return "", fmt.Errorf("its parameter %s has no value", missing)
	}
	for key := range values {
		if !used[key] {
			return "", fmt.Errorf("it has no parameter %s", key)
		}
	}
	return passage, nil
}
