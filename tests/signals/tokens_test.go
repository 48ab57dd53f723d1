package signals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/bytea"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/waitpoint"
	"github.com/flowfabric/flowfabric-go/worker"
)

// openLog opens a pool whose server logs all that it can log: statements, parameters, durations and plans, those of
// statements inside functions too. The server sends its log to the client as well, and there it goes to log.
func openLog(t *testing.T, f *fixture.Fixture, mode pgx.QueryExecMode, log *fixture.LockedBuffer) *pgxpool.Pool {
	t.Helper()
	return fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) {
		config.ConnConfig.DefaultQueryExecMode = mode
		for name, value := range map[string]string{
			"client_min_messages": "log", "log_statement": "all", "log_min_duration_statement": "0", "log_parameter_max_length": "-1",
			"log_parameter_max_length_on_error": "-1", "log_min_error_statement": "debug5", "log_error_verbosity": "verbose",
		} {
			config.ConnConfig.RuntimeParams[name] = value
		}
		config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) { fmt.Fprintf(log, "%+v\n", *notice) }
		config.ConnConfig.OnPgError = func(_ *pgconn.PgConn, err *pgconn.PgError) bool {
			fmt.Fprintf(log, "%+v\n", *err)
			return true
		}
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			// Not every server has the module.
			_, _ = conn.PgConn().Exec(ctx, `
				LOAD 'auto_explain';
				SET auto_explain.log_min_duration = 0;
				SET auto_explain.log_nested_statements = on;
				SET auto_explain.log_verbose = on`).ReadAll()
			return nil
		}
	})
}

// A server that logs everything, a worker and a handler of links that log everything: nothing of a token is in it, nor of
// the secret that signs.
func TestNoLogHoldsAToken(t *testing.T) {
	for _, mode := range fixture.QueryModes {
		t.Run(mode.String(), func(t *testing.T) {
			f := fixture.GrantFixture(t)
			f.Exec(t, `
				CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused %', to_jsonb(new); END; $$`)
			f.Exec(t, "CREATE TRIGGER refuse BEFORE INSERT ON ff_signal_event FOR EACH ROW WHEN (new.source_identity = 'refused') EXECUTE FUNCTION refuse()")
			log := new(fixture.LockedBuffer)
			debug := slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}))
			eng := f.EngineOn(t, openLog(t, f, mode, log), engine.Config{Log: debug})
			logged := *f
			logged.Engine = eng

			w := waitpointOfAJob(t, &logged, debug)
			for _, change := range []func(*engine.WaitpointSignal){
				func(s *engine.WaitpointSignal) { s.Token += "0" },
				func(s *engine.WaitpointSignal) { s.Token = "k9" + s.Token[2:] },
				func(s *engine.WaitpointSignal) { s.Waitpoint = id.NewWaitpointID() },
				func(s *engine.WaitpointSignal) { s.Source = "refused" },
				func(s *engine.WaitpointSignal) { s.Name = "" },
				func(*engine.WaitpointSignal) {},
			} {
				_, err := sendBy(t, &logged, w, "noted", change)
				for ; err != nil; err = errors.Unwrap(err) {
					fmt.Fprintf(log, "%v %+v %#v\n", err, err, err)
				}
			}
			handler := http.StripPrefix("/w/", waitpoint.Handler(eng, waitpoint.Config{Actions: []waitpoint.Action{{Signal: "approved"}}}))
			for _, method := range []string{"GET", "POST"} {
				r := httptest.NewRequestWithContext(t.Context(), method, waitpoint.Link("/w/", w), strings.NewReader("signal=approved"))
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, r)
				fmt.Fprintln(log, answer.Code, answer.Header(), answer.Body)
			}
			fmt.Fprintln(log, fixture.Texts(t, f.Pool, "SELECT query FROM pg_stat_activity WHERE query IS NOT NULL"))
			for _, part := range []string{"InsertWaitpoint", "GetOpenWaitpoint", "DeliverSignal", "refused {", "ffx_deliver"} {
				if !strings.Contains(log.String(), part) {
					t.Errorf("%s is not in the log", part)
				}
			}
			wantNoToken(t, log.String(), w)
		})
	}
}

// waitpointOfAJob lets a handler open a waitpoint twice, and returns it.
func waitpointOfAJob(t *testing.T, f *fixture.Fixture, log *slog.Logger) engine.Waitpoint {
	t.Helper()
	opened := make(chan engine.Waitpoint, 2)
	w := fixture.NewWorker(t, f.Engine, worker.Config{Lanes: []worker.Lane{{Name: f.Lane}}, Log: log, NoReconcile: true})
	fixture.HandleKind(w, "test", func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		for range 2 {
			w, err := job.Waitpoint(ctx, decision, time.Hour)
			if err != nil {
				return "", err
			}
			log.Info("opened", "waitpoint", w, "token", w.Token)
			opened <- w
		}
		_, err := approved.Await(ctx, job, engine.Wait{Key: decision})
		return "", err
	})
	f.Create(t)
	ctx, cancel := context.WithCancel(t.Context())
	ran := fixture.Async(t, func(context.Context) error { return w.Run(ctx) })
	first, second := fixture.Received(t, opened), fixture.Received(t, opened)
	fixture.Await(t, "the suspension", func() bool { return rows(t, f, "ff_suspension_current") == 1 })
	cancel()
	if err := ran(); err != nil {
		t.Error(err)
	}
	if first.Token == "" || first.Token != second.Token {
		t.Errorf("%+v, then %+v", first, second)
	}
	return first
}

// The newest valid key signs, in the bytes that every program signs and verifies.
func TestTokenIsSignedByTheNewestValidKey(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Start(t).Lease
	spec := engine.WaitpointSpec{Lease: l, Key: decision, TTL: time.Hour}
	for _, invalid := range []fixture.Columns{
		{"kid": "a:b", "rotated_at_ms": 7},
		{"kid": "", "rotated_at_ms": 7},
		{"kid": "a b", "rotated_at_ms": 7},
		{"kid": "ä", "rotated_at_ms": 7},
		{"kid": strings.Repeat("k", 65), "rotated_at_ms": 7},
		{"kid": "short", "secret": []byte("short"), "rotated_at_ms": 7},
		{"kid": "retired", "rotated_at_ms": 7, "active": false},
	} {
		f.SeedKey(t, "", invalid)
	}
	if _, err := f.Engine.CreateWaitpoint(t.Context(), spec); !errors.Is(err, fferr.ErrUnsupported) {
		t.Errorf("without a valid key: %v", err)
	}
	longest := strings.Repeat("~", 64)
	for _, valid := range []fixture.Columns{{"kid": "old"}, {"kid": longest, "rotated_at_ms": 5}, {"kid": "older", "rotated_at_ms": 4}} {
		f.SeedKey(t, "", valid)
	}
	w, err := f.Engine.CreateWaitpoint(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if want := wire.SignWaitpoint(fixture.GrantSecret, longest, l.Execution, w.ID); w.Token != want {
		t.Errorf("signed by %s, or in other bytes", w.Token.Kid())
	}
	if got, err := sendBy(t, f, w, "noted"); err != nil || got.Effect != engine.SignalBuffered {
		t.Errorf("%+v, %v", got, err)
	}
}

// wantNoToken fails the test if a text has more of a token than its fingerprint, or the secret.
func wantNoToken(t *testing.T, text string, w engine.Waitpoint) {
	t.Helper()
	digest := w.Token.Reveal()[len("k1:"):]
	for _, part := range []string{digest[:17], digest[20:40], digest[47:], url.QueryEscape(w.Token.Reveal()), "5a5a5a5a", "ZZZZZZZZ", "90 90 90 90"} {
		if at := strings.Index(text, part); at >= 0 {
			t.Errorf("%q is in: %s", part, text[max(0, at-600):min(len(text), at+100)])
		}
	}
}

// No way to print or to encode a value shows the token or the secret in it.
func TestPrintedTokens(t *testing.T) {
	t.Parallel()
	secret := bytea.Secret{Bytes: fixture.GrantSecret}
	w := engine.Waitpoint{Token: "k1:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
	text := bytea.SecretText(w.Token.Reveal())
	for _, value := range []any{
		w, w.Token,
		engine.WaitpointSignal{Token: w.Token},
		secret, text,
		db.GetOpenWaitpointRow{Token: text},
		db.FfWaitpointPending{Token: text},
		db.FfWaitpointHMAC{Secret: secret},
		db.InsertKeyParams{Secret: secret},
		db.ListSigningKeysRow{Secret: secret},
	} {
		for _, wrapped := range []any{value, []any{value}, map[string]any{"x": value}, &value} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
				wantNoToken(t, fmt.Sprintf(verb, wrapped), w)
			}
			encoded, err := json.Marshal(wrapped)
			if err != nil {
				t.Error(err)
			}
			wantNoToken(t, string(encoded), w)
			if strings.Contains(string(encoded), "WlpaWlpa") {
				t.Errorf("the secret is in %s", encoded)
			}
			for _, handler := range []func(log *strings.Builder) slog.Handler{
				func(log *strings.Builder) slog.Handler { return slog.NewTextHandler(log, nil) },
				func(log *strings.Builder) slog.Handler { return slog.NewJSONHandler(log, nil) },
			} {
				var log strings.Builder
				slog.New(handler(&log)).Info("value", "value", wrapped)
				wantNoToken(t, log.String(), w)
			}
		}
	}
}
