// Package locks reads the headers of the queries, and derives the tables of docs/internals/locks.md from them.
package locks

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Header has the users and locks in the header of a query, and the statement below it.
type Header struct {
	Name  string
	Users []string // operations with their package: engine.Claim
	Locks []Lock
	Body  string
}

// Lock is one level that a statement locks: "L1 skips (execution rows FOR NO KEY UPDATE)".
type Lock struct{ Level, How string }

// How a statement deals with a level. Other sessions may hold the rows it waits for or skips. The operation has locked
// held rows before, and new rows are invisible to others.
const (
	Waits, Skips, Held, New = "waits", "skips", "held", "new"
)

var (
	usersInHeader = regexp.MustCompile(`(?m)^-- Used by: ((?:.|\n-- )*?)\.\n`)
	locksInHeader = regexp.MustCompile(`(?m)^-- Locks: ((?:.|\n-- )*?)\n[^-]`)
	oneLock       = regexp.MustCompile(`^(\w+) (waits|skips|held|new)\b`)
	remark        = regexp.MustCompile(`\([^()]*(?:\([^()]*\)[^()]*)*\)`)
)

// Headers returns the headers of all queries. root is the folder of the repository.
func Headers(root string) ([]Header, error) {
	paths, err := filepath.Glob(filepath.Join(root, "db", "sql", "*.sql"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%d files of queries in %s, error %w", len(paths), root, err)
	}
	var headers []Header
	for _, path := range paths {
		file, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for _, query := range strings.Split("\n"+string(file), "\n-- name: ")[1:] {
			h, err := readHeader(query)
			if err != nil {
				return nil, err
			}
			headers = append(headers, h)
		}
	}
	return headers, nil
}

func readHeader(query string) (Header, error) {
	name, _, _ := strings.Cut(query, " ")
	h := Header{Name: name}
	users, locks := usersInHeader.FindStringSubmatch(query), locksInHeader.FindStringSubmatch(query)
	if users == nil || locks == nil {
		return h, fmt.Errorf("%s: the header lacks a line of users or of locks", name)
	}
	h.Users = strings.Split(strings.ReplaceAll(users[1], "\n-- ", " "), ", ")
	text := remark.ReplaceAllString(strings.ReplaceAll(locks[1], "\n-- ", " "), "")
	text, _, _ = strings.Cut(text+" ", ". ")
	text = strings.TrimSuffix(strings.TrimSpace(text), ".")
	if text != "none" && !strings.HasPrefix(text, "none;") {
		for clause := range strings.SplitSeq(text, "; ") {
			lock := oneLock.FindStringSubmatch(clause)
			if lock == nil {
				return h, fmt.Errorf("%s: cannot read %q of its locks", name, clause)
			}
			h.Locks = append(h.Locks, Lock{lock[1], lock[2]})
		}
	}
	for line := range strings.Lines(query) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			h.Body += line
		}
	}
	return h, nil
}
