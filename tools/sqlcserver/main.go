// Command sqlcserver is sqlc for tests that generate hundreds of times. Without a C compiler sqlc's parser is WebAssembly, and
// each start compiles it: 1.7 s of processor time. Processes of this program compile it once and generate for all tests of a binary.
//
//	sqlcserver serve                    answers requests at file descriptor 3, a listener
//	sqlcserver ask SOCKET ARGUMENT...   is sqlc with these arguments
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/sqlc-dev/sqlc/pkg/cli"
)

// request is a call of sqlc.
type request struct {
	Dir            string
	Environment    []string
	Arguments      []string
	Stdout, Stderr string // files
}

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		fatal(serve())
	case len(os.Args) > 3 && os.Args[1] == "ask" && os.Args[3] == "generate":
		code, err := ask(os.Args[2], os.Args[3:])
		fatal(err)
		os.Exit(code)
	case len(os.Args) > 2 && os.Args[1] == "ask":
		os.Exit(cli.Run(os.Args[3:]))
	}
	fatal(errors.New("usage: sqlcserver serve, or ask SOCKET ARGUMENT..."))
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "sqlcserver:", err)
		os.Exit(2)
	}
}

// serve answers one request after the other. sqlc ends the process if it can't generate. Then another one is started, and
// accepts the requests that still wait at the listener.
func serve() error {
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		code, err := run(conn)
		if err != nil {
			return err
		}
		_ = json.NewEncoder(conn).Encode(code)
		_ = conn.Close()
	}
}

func run(conn net.Conn) (code int, err error) {
	var asked request
	if err := json.NewDecoder(conn).Decode(&asked); err != nil {
		return 0, err
	}
	if err := os.Chdir(asked.Dir); err != nil {
		return 0, err
	}
	os.Clearenv()
	for _, variable := range asked.Environment {
		name, value, _ := strings.Cut(variable, "=")
		if err := os.Setenv(name, value); err != nil {
			return 0, err
		}
	}
	for name, to := range map[string]**os.File{asked.Stdout: &os.Stdout, asked.Stderr: &os.Stderr} {
		file, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return 0, err
		}
		defer file.Close()
		*to = file
	}
	return cli.Run(asked.Arguments), nil
}

// ask returns the code with which sqlc ended.
func ask(socket string, arguments []string) (code int, err error) {
	outputs, err := os.MkdirTemp("", "sqlc-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(outputs)
	asked := request{Environment: os.Environ(), Arguments: arguments, Stdout: outputs + "/stdout", Stderr: outputs + "/stderr"}
	if asked.Dir, err = os.Getwd(); err != nil {
		return 0, err
	}
	for _, name := range []string{asked.Stdout, asked.Stderr} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			return 0, err
		}
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(asked); err != nil {
		return 0, err
	}
	if json.NewDecoder(conn).Decode(&code) != nil {
		code = 1 // sqlc has ended the process
	}
	for name, to := range map[string]*os.File{asked.Stdout: os.Stdout, asked.Stderr: os.Stderr} {
		text, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		if _, err := to.Write(text); err != nil {
			return 0, err
		}
	}
	return code, nil
}
