package schema

import (
	"context"
	"fmt"
	"strings"
)

// adopted marks a ledger as that of an adopted database. Such a ledger also records the parts of
// migrations, as <version>/<part>.
const adopted = "adopted"

// part is a piece of a migration that an adoption applies in a transaction of its own: a table of the
// reference has 256 partitions, and a whole migration would take more locks than a server has.
type part struct {
	name string
	sql  string
}

// beginAdoption makes the ledger of an adopted database: what the reference made counts as applied.
func (s *session) beginAdoption(ctx context.Context) error {
	statements := []string{makeLedger, record(adopted)}
	for i, m := range s.state.Migrations {
		if m.Version <= baseline {
			statements = append(statements, record(m.Version))
			s.state.Migrations[i].Applied = true
		}
	}
	if err := s.exec(ctx, statements...); err != nil {
		return classify("begin adoption", err)
	}
	s.state.Origin, s.state.Version = OriginAdopted, baseline
	s.log.InfoContext(ctx, "adopting", "database", s.state.Database, "schema", s.schema)
	return nil
}

// applyParts applies the pending migrations of an adopted database, part by part.
func (s *session) applyParts(ctx context.Context) (Result, error) {
	result := Result{From: s.state.Version, To: s.state.Version}
	for _, m := range s.state.Migrations {
		if m.Applied {
			continue
		}
		parts, err := readParts(m)
		if err != nil {
			return Result{}, err
		}
		for _, p := range parts {
			row := m.Version + "/" + p.name
			if s.state.parts[row] {
				continue
			}
			if err := s.applyPart(ctx, p.sql, row); err != nil {
				return Result{}, classify("adopt "+row, err)
			}
			result.Applied = append(result.Applied, row)
			s.log.InfoContext(ctx, "adopted", "object", p.name, "schema", s.schema)
		}
		if err := s.applyPart(ctx, "", m.Version); err != nil {
			return Result{}, classify("record "+m.Version, err)
		}
		result.To = max(result.To, m.Version)
	}
	return result, nil
}

// pendingParts names what applyParts would apply.
func (s *State) pendingParts() ([]string, error) {
	var rows []string
	for _, m := range s.Migrations {
		if m.Applied {
			continue
		}
		parts, err := readParts(m)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			if row := m.Version + "/" + p.name; !s.parts[row] {
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

// applyPart runs statements and records them in one transaction.
func (s *session) applyPart(ctx context.Context, statements, row string) error {
	return s.retryLocked(ctx, func() error {
		if err := s.lockStands(ctx); err != nil {
			return err
		}
		return s.exec(ctx, statements, record(row))
	})
}

const (
	upLine     = "-- migrate:up"
	downLine   = "-- migrate:down"
	objectLine = "-- object: "
)

// readParts splits the up half of a migration at its object lines.
func readParts(m Migration) ([]part, error) {
	script, err := readScript(m)
	if err != nil {
		return nil, err
	}
	var parts []part
	for line := range strings.Lines(script.up.sql) {
		if name, ok := strings.CutPrefix(line, objectLine); ok {
			parts = append(parts, part{name: strings.TrimSpace(name)})
			continue
		}
		if len(parts) > 0 {
			parts[len(parts)-1].sql += line
			continue
		}
		if text := strings.TrimSpace(line); text != "" && !strings.HasPrefix(text, "--") {
			return nil, fmt.Errorf("schema: migration %s has a statement before its first object line", m.Name)
		}
	}
	return parts, nil
}
