package cli

import (
	"bufio"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
)

// The console listens on this machine alone, and lets in the browser that has opened the printed address.
func testCLIConsole(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	mustCreate(t, eng, engine.ExecutionSpec{Lane: "mail", Kind: "send"})
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0", "localhost"} {
		ff.run(t, databaseURL, "console", "--listen", address).fails(t, cliUsage, "--listen")
	}

	cmd := ff.command(t.Context(), databaseURL, "console", "--listen", "127.0.0.1:0")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSpace(line)
	base, _, _ := strings.Cut(address, "?")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	get := func(client *http.Client, url string) (int, string) {
		t.Helper()
		response, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	for _, url := range []string{base, base + "lanes", base + "?key=guess"} {
		if status, body := get(http.DefaultClient, url); status != http.StatusUnauthorized || strings.Contains(body, "mail") {
			t.Errorf("%s without the key: status %d: %s", url, status, body)
		}
	}
	if status, body := get(browser, address); status != http.StatusOK || !strings.Contains(body, "mail") || !strings.Contains(body, "lane.pause") {
		t.Errorf("with the key: status %d: %s", status, body)
	}
	if status, _ := get(browser, base+"executions"); status != http.StatusOK {
		t.Errorf("with the cookie: status %d", status)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
}
