package database

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// longestSaid is how much of a command's output an error repeats.
const longestSaid = 2000

// RunCommand migrates the database with a shell command, which runs in dir with DATABASE_URL in its environment, and
// without the variables for the review's server.
//
// Errors: [*MigrationError] with the end of the output if the command fails, without a password.
func (d *Database) RunCommand(ctx context.Context, dir, command string) error {
	u, err := url.Parse(d.URL)
	if err != nil {
		return errors.New("the database's URL is not one")
	}
	settings := u.Query()
	if settings.Get("sslmode") == "" {
		// Some drivers require TLS by default.
		settings.Set("sslmode", map[bool]string{false: "disable", true: "require"}[d.server.tls])
	}
	u.RawQuery = settings.Encode()
	shell := exec.CommandContext(ctx, "sh", "-c", command)
	shell.Dir = dir
	shell.Env = append(slices.DeleteFunc(os.Environ(), private), "DATABASE_URL="+u.String())
	shell.WaitDelay = 10 * time.Second // for programs it started which hold its output
	out, err := shell.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	said := strings.ReplaceAll(string(out), u.String(), "$DATABASE_URL")
	if password, has := u.User.Password(); has && password != "" {
		said = strings.NewReplacer(password, "…", url.QueryEscape(password), "…", url.PathEscape(password), "…").Replace(said)
	}
	said = strings.TrimSpace(said)
	if len(said) > longestSaid {
		said = "…" + strings.ToValidUTF8(said[len(said)-longestSaid:], "")
	}
	return &MigrationError{
		Migration: project.Migration{Tool: project.Command},
		Place:     report.Place{},
		Err:       fmt.Errorf("the command %q ends with %w: %s", command, err, said),
	}
}

// private reports whether a variable of the environment chooses the server or a login.
func private(variable string) bool {
	return strings.HasPrefix(variable, "PG") || strings.HasPrefix(variable, "FF_") || strings.HasPrefix(variable, "DATABASE_URL=")
}
