package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/console"
	"github.com/flowfabric/flowfabric-go/engine"
)

func (a *app) consoleCommand() *cobra.Command {
	var (
		address  string
		readOnly bool
	)
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve web pages for operators on this machine",
		Long: `console serves web pages on this machine until it is interrupted: what runs, what waits and why, with buttons
that help. Open the printed address. Its key signs the browser in, so others on the machine can't use the pages. What a
person changes is written to the operators' log (ff log) with the name of the user.

Only an address of this machine is taken. A program that serves the pages to others mounts package console with its own
sign-in: see docs/console.md.`,
		Example: `  ff console
  ff console --listen 127.0.0.1:9000
  ff console --read-only`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.withEngine(ctx, func(eng *engine.Engine) error { return a.serveConsole(ctx, eng, address, readOnly) })
		}),
	}
	a.databaseFlags(cmd)
	cmd.Flags().StringVar(&address, "listen", "127.0.0.1:8099", "address of this machine to listen on")
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "show no payloads and no buttons")
	return cmd
}

func (a *app) serveConsole(ctx context.Context, eng *engine.Engine, address string, readOnly bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return &usageError{problem: fmt.Sprintf("--listen %q is no address such as 127.0.0.1:8099", address)}
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return &usageError{
			problem: fmt.Sprintf("--listen %q is not an address of this machine alone", address),
			next:    "mount package console in a program that signs people in",
		}
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	access := console.Access{Name: "ff"}
	if u, err := user.Current(); err == nil {
		access.Name = u.Username
	}
	if !readOnly {
		access.Actions = console.Actions()
	}
	gate := keyGate{key: rand.Text(), access: access}
	gate.next = console.Handler(eng, console.Config{Path: "/", Authorize: gate.authorize})
	server := &http.Server{Handler: &gate, ReadHeaderTimeout: 10 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	fmt.Fprintf(a.stdout, "http://%s/?key=%s\n", listener.Addr(), gate.key)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// keyGate lets in browsers that know the key. A visit with the key in the address gets a cookie for the further ones. A site
// that resolves its name to this machine doesn't know the key.
type keyGate struct {
	key    string
	access console.Access
	next   http.Handler
}

// keyCookie holds the key. Cookies belong to a machine with all its ports, so another console of it signs the browser out.
const keyCookie = "ff_console"

func (g *keyGate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" && g.knows(r.URL.Query().Get("key")) {
		http.SetCookie(w, &http.Cookie{Name: keyCookie, Value: g.key, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	}
	g.next.ServeHTTP(w, r)
}

func (g *keyGate) knows(key string) bool {
	return subtle.ConstantTimeCompare([]byte(key), []byte(g.key)) == 1
}

// authorize is the [console.Config.Authorize] of the command.
func (g *keyGate) authorize(r *http.Request) (console.Access, error) {
	if cookie, err := r.Cookie(keyCookie); err == nil && g.knows(cookie.Value) {
		return g.access, nil
	}
	return console.Access{}, fmt.Errorf("%w: open the address that ff console has printed", console.ErrSignIn)
}
