// Command sqlinclude writes db/sql, the statements that sqlc compiles, from queries/.
//
// A line
//
//	-- include trim_page: table = ff_lease_event, at_ms = occurred_at_ms
//
// stands for the lines of queries/include/trim_page.sql, indented like the line. Each ${table} in them becomes
// ff_lease_event. Every parameter of a passage needs a value, and every value a parameter.
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
	sources, err := filepath.Glob(filepath.Join(source, "*.sql"))
	if err != nil {
		return err
	}
	written := make(map[string]bool)
	for _, path := range sources {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		expanded, err := expand(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		to := filepath.Join(target, filepath.Base(path))
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

// expand replaces the lines that include a passage by the passage.
func expand(text string) (string, error) {
	var out strings.Builder
	for line := range strings.Lines(text) {
		match := include.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if match == nil {
			out.WriteString(line)
			continue
		}
		passage, err := read(match[2], match[3])
		if err != nil {
			return "", fmt.Errorf("%s: %w", match[2], err)
		}
		for line := range strings.Lines(passage) {
			if line != "\n" {
				line = match[1] + line
			}
			out.WriteString(line)
		}
	}
	return out.String(), nil
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
