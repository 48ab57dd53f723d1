// Package pgserver finds or starts the Postgres server for a test run, ff demo or ff dev.
//
// Sources, in this order:
//
//   - the server that DATABASE_URL names;
//   - a container, for callers that bring a way to run one (tests do, see internal/pgtest; the command line does not);
//   - an embedded server, fetched once into the user's cache folder.
//
// FF_POSTGRES=url|docker|embedded picks a source and makes a failure final. FF_POSTGRES_VERSION (14 to 18) is the
// embedded server's major version, FF_POSTGRES_IMAGE the container's image.
//
// # Stopping a server
//
// All processes that start a server for one purpose share the same server, and each holds a reference: a session with
// the advisory lock [usersLock], shared. The server ends when no session holds the lock any more; a session of its own
// keeps checking (share.go). The kernel closes a killed process's sockets, so a process cannot leak its reference, and
// there is no pid file to go stale.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Purpose separates servers: each purpose has another server.
type Purpose string

const (
	// Tests is a fast server that survives no crash. The server outlives its last user by [testLinger], so the test
	// binaries of one run find it, and the data is removed with the server.
	Tests Purpose = "tests"
	// Demo is a durable server whose data is removed after the stop by the last user.
	Demo Purpose = "demo"
	// Dev is a durable server whose data, port and password stay for the next start.
	Dev Purpose = "dev"
)

// Options are the parameters of [Start].
type Options struct {
	Purpose Purpose
	// Container finds or runs a server in a container from the named image and returns its superuser's URL.
	// Nil: containers are no source.
	Container func(ctx context.Context, image string) (serverURL string, err error)
	// Major asks for an embedded server of this major version (14 to 18), ignoring the environment. 0: the environment
	// decides.
	Major int
	// Log receives one line before each slow step. Nil: nowhere.
	Log io.Writer
}

// Server is a Postgres server with, unless named by DATABASE_URL, this process's reference. The reference lasts until
// Stop, or until the Server is collected as garbage.
type Server struct {
	url, source string
	purpose     Purpose
	ref         *pgx.Conn // holds usersLock; nil: not ours to stop
	keep        bool
}

// URL is the connection URL of a database on the server, for a role with the right to create databases unless
// DATABASE_URL named another. The URL holds the password.
func (s *Server) URL() string { return s.url }

// Source is one sentence about the chosen source and the reasons against earlier ones, without a password.
func (s *Server) Source() string { return s.source }

// Keep makes Stop leave the server running; a later Start for the same purpose finds it.
func (s *Server) Keep() { s.keep = true }

// settings is the environment's part of the choice.
type settings struct {
	choice      string // FF_POSTGRES: "", "url", "docker" or "embedded"
	databaseURL string
	image       string
	major       int
}

func readSettings(getenv func(string) string) (settings, error) {
	set := settings{
		choice:      getenv("FF_POSTGRES"),
		databaseURL: getenv("DATABASE_URL"),
		image:       "postgres:17-alpine",
		major:       17,
	}
	if image := getenv("FF_POSTGRES_IMAGE"); image != "" {
		set.image = image
	}
	if raw := getenv("FF_POSTGRES_VERSION"); raw != "" {
		major, err := strconv.Atoi(raw)
		if err != nil || checkMajor(major) != nil {
			return settings{}, fmt.Errorf("FF_POSTGRES_VERSION is %q: want a major version from 14 to 18", raw)
		}
		set.major = major
	}
	switch set.choice {
	case "", "docker", "embedded":
	case "url":
		if set.databaseURL == "" {
			return settings{}, errors.New("FF_POSTGRES is url and DATABASE_URL is empty: set DATABASE_URL to a Postgres URL")
		}
	default:
		return settings{}, fmt.Errorf("FF_POSTGRES is %q: want url, docker or embedded, or leave it empty", set.choice)
	}
	return set, nil
}

// Start finds or starts the server for opts.Purpose and returns when it accepts connections.
//
// A DATABASE_URL without an answer is an error; a missing Docker engine or image is one only under FF_POSTGRES=docker.
// Processes that start at once for one purpose get the same server. Errors name the failed step and hold no password.
func Start(ctx context.Context, opts Options) (*Server, error) {
	set, err := readSettings(os.Getenv)
	if err != nil {
		return nil, err
	}
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	if opts.Major != 0 {
		if err := checkMajor(opts.Major); err != nil {
			return nil, err
		}
		s, what, err := fromEmbedded(ctx, opts.Major, opts)
		if err != nil {
			return nil, fmt.Errorf("embedded PostgreSQL %d: %w", opts.Major, err)
		}
		s.source = what + "."
		return s, nil
	}
	if set.choice == "url" || set.choice == "" && set.databaseURL != "" {
		return fromURL(ctx, set.databaseURL)
	}
	passed := []string{"DATABASE_URL is empty"} // why each earlier source was not taken
	if set.choice != "" {
		passed = []string{"FF_POSTGRES is " + set.choice}
	}

	if set.choice == "docker" && opts.Container == nil {
		return nil, errors.New("FF_POSTGRES is docker, which only the tests use: unset it, or set it to url or embedded")
	}
	if set.choice != "embedded" && opts.Container != nil {
		s, err := fromContainer(ctx, set, opts)
		if err == nil {
			s.source = "PostgreSQL in a container of " + set.image + because(passed) + "."
			return s, nil
		}
		if set.choice == "docker" || ctx.Err() != nil {
			return nil, err
		}
		passed = append(passed, "no container: "+err.Error())
	}

	s, what, err := fromEmbedded(ctx, set.major, opts)
	if err != nil {
		return nil, fmt.Errorf("embedded PostgreSQL%s: %w", because(passed), err)
	}
	s.source = what + because(passed) + "."
	return s, nil
}

// checkMajor refuses a major version without an embedded server.
func checkMajor(major int) error {
	if major < 14 || major > 18 {
		return fmt.Errorf("no embedded PostgreSQL %d: there is one of each major version from 14 to 18", major)
	}
	return nil
}

// because returns the remark why the sources before the chosen one were skipped.
func because(passed []string) string {
	return " (" + strings.ReplaceAll(strings.Join(passed, "; "), "\n", ": ") + ")"
}

func fromURL(ctx context.Context, raw string) (*Server, error) {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return nil, errors.New("DATABASE_URL is not a URL of the form postgres://user:password@host:port/database")
	}
	conn, err := pgx.Connect(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("the server that DATABASE_URL names, %s, does not answer: %w", u.Host, err)
	}
	defer conn.Close(ctx)
	return &Server{
		url:    raw,
		source: fmt.Sprintf("PostgreSQL %s at %s, because DATABASE_URL names it.", conn.PgConn().ParameterStatus("server_version"), u.Host),
	}, nil
}

// fromContainer runs the container until a reference to the server is held: a running one may be about to end.
func fromContainer(ctx context.Context, set settings, opts Options) (*Server, error) {
	const attempts = 3
	fmt.Fprintf(opts.Log, "Looking for PostgreSQL in a container of %s.\n", set.image)
	var errs error
	for range attempts {
		serverURL, err := opts.Container(ctx, set.image)
		if err != nil {
			return nil, errors.Join(errs, err)
		}
		ref, err := join(ctx, serverURL, opts.Purpose, shutDown)
		if err == nil {
			return &Server{url: serverURL, purpose: opts.Purpose, ref: ref}, nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, errs
}
