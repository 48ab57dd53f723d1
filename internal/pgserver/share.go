package pgserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Keys of the session-level advisory locks in database postgres of a server this package started.
const (
	usersLock = 0x66667573 // shared: a process uses the server; exclusive: the server is being stopped
	watchLock = 0x66667777 // exclusive: a session watches usersLock
)

// How many seconds a server outlives its last user when that one did not stop it.
const (
	testLinger   = 15 // the gap between two test binaries of one run, while the next one is linked
	killedLinger = 2  // ff was killed
)

// Commands the server's own shell runs in the data directory to end the server.
const (
	// shutDown ends the sessions, checkpoints and exits.
	shutDown = `kill -INT $(head -n 1 postmaster.pid)`
	// shutDownAndRemove exits at once; there is nothing to save.
	shutDownAndRemove = `pid=$(head -n 1 postmaster.pid); rm -rf ../log "$PWD"; kill -QUIT $pid`
)

// stopStatement has the server's shell run a command. No row is copied, for the shell does not read.
const stopStatement = `COPY (SELECT WHERE false) TO PROGRAM '%s'`

// watchStatement stops the server once no session has held usersLock for a number of seconds. Each nap follows a
// commit, so no snapshot holds back vacuum.
const watchStatement = `
DO $watch$
DECLARE
    quiet_seconds integer := 0;
BEGIN
    IF NOT pg_try_advisory_lock(%[1]d) THEN
        RETURN; -- another session watches
    END IF;
    LOOP
        COMMIT;
        PERFORM pg_sleep(1);
        IF NOT pg_try_advisory_lock(%[2]d) THEN
            quiet_seconds := 0;
            CONTINUE;
        END IF;
        quiet_seconds := quiet_seconds + 1;
        EXIT WHEN quiet_seconds >= %[3]d; -- and keep the lock: nobody can join any more
        PERFORM pg_advisory_unlock(%[2]d);
    END LOOP;
    %[4]s;
END
$watch$`

// join takes a reference to the server and makes sure the server is watched; stopCommand ends the server. join retries
// for a while if the server is starting, stopping or full.
func join(ctx context.Context, serverURL string, purpose Purpose, stopCommand string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		ref, err := tryJoin(ctx, serverURL, purpose, stopCommand)
		if err == nil || !passing(err) {
			return ref, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the server took no session in 20 s: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func tryJoin(ctx context.Context, serverURL string, purpose Purpose, stopCommand string) (*pgx.Conn, error) {
	ref, err := connect(ctx, serverURL)
	if err != nil {
		return nil, err
	}
	// On a stopping server this waits until the shutdown ends the session.
	if _, err = ref.Exec(ctx, "SELECT pg_advisory_lock_shared($1)", usersLock); err == nil {
		err = watch(ctx, ref, serverURL, purpose, stopCommand)
	}
	if err != nil {
		ref.Close(ctx)
		return nil, err
	}
	return ref, nil
}

func connect(ctx context.Context, serverURL string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(serverURL)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = "pgserver"
	config.ConnectTimeout = 5 * time.Second
	return pgx.ConnectConfig(ctx, config)
}

// passing reports whether a server's refusal of a session is temporary: the server may accept one soon, or may soon be
// gone.
func passing(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch pgErr.Code {
	case "57P01", "57P02", "57P03", // admin_shutdown, crash_shutdown, cannot_connect_now
		"53300": // too_many_connections
		return true
	}
	return false
}

// watch starts the session that ends the server when its users have gone, unless there is one already.
//
// The session needs no client, which disconnects as soon as the statement is sent: the server does not check for the
// client during the nap, unless configured so.
func watch(ctx context.Context, ref *pgx.Conn, serverURL string, purpose Purpose, stopCommand string) error {
	linger := killedLinger
	if purpose == Tests {
		linger = testLinger
	}
	conn, err := connect(ctx, serverURL)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "SET client_connection_check_interval = 0"); err != nil {
		conn.Close(ctx)
		return err
	}
	session, err := conn.PgConn().Hijack()
	if err != nil {
		conn.Close(ctx)
		return err
	}
	session.Frontend.Send(&pgproto3.Query{String: fmt.Sprintf(watchStatement,
		watchLock, usersLock, linger, fmt.Sprintf(stopStatement, stopCommand))})
	if err := errors.Join(session.Frontend.Flush(), session.Conn.Close()); err != nil {
		return err
	}
	return awaitWatch(ctx, ref, session.PID)
}

// awaitWatch returns once a session watches, or another session watches: [Server.Stop] finds the watch then.
func awaitWatch(ctx context.Context, ref *pgx.Conn, session uint32) error {
	for {
		var settled bool
		err := ref.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)
			OR EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND locktype = 'advisory' AND objid = $2)`, session, watchLock).Scan(&settled)
		if err != nil || settled {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Stop releases this process's reference. The last one stops a [Demo] or [Dev] server and returns when the server
// accepts no connection any more; a [Tests] server ends by itself a little later. A server named by DATABASE_URL keeps
// running. Stop may be called once.
func (s *Server) Stop() error {
	if s.ref == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	defer s.ref.Close(ctx)

	if s.keep {
		_, err := s.ref.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = $1", watchLock)
		if err != nil {
			return fmt.Errorf("keep the server: %w", err)
		}
		return nil
	}
	if s.purpose == Tests {
		return nil
	}

	var last bool
	// A session does not block itself: this succeeds when no other one has the lock.
	if err := s.ref.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", usersLock).Scan(&last); err != nil {
		return fmt.Errorf("stop the server: %w", err)
	}
	if !last {
		return nil
	}
	command := shutDown
	if s.purpose == Demo {
		command = shutDownAndRemove
	}
	// The requested shutdown ends the session, so there is no answer.
	_, _ = s.ref.Exec(ctx, fmt.Sprintf(stopStatement, command))
	for {
		conn, err := connect(ctx, s.url)
		switch {
		case err == nil:
			conn.Close(ctx)
		case ctx.Err() != nil:
			return fmt.Errorf("stop the server: it still runs: %w", err)
		case !passing(err):
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}
