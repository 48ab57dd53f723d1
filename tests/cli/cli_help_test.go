package cli

import (
	"strings"
	"testing"
)

// The help of every command fits a terminal of 80 columns, and each group of commands begins with how to list it.
func testCLIHelp(t *testing.T, ff cli) {
	groups := make(map[string][]string)
	var look func(path ...string)
	look = func(path ...string) {
		out := ff.run(t, "", append(path, "--help")...)
		out.succeeds(t, "Usage:")
		out.fitsATerminal(t)
		_, commands, _ := strings.Cut(out.stdout, "Available Commands:\n")
		commands, _, _ = strings.Cut(commands, "\n\n")
		for line := range strings.Lines(commands) {
			if name := strings.Fields(line)[0]; name != "help" {
				groups[strings.Join(path, " ")] = append(groups[strings.Join(path, " ")], name)
				look(append(path[:len(path):len(path)], name)...)
			}
		}
	}
	look()
	for _, name := range groups[""] {
		if strings.HasSuffix(name, "s") && name != "licenses" {
			t.Errorf("ff %s is a plural", name)
		}
	}
	for group, commands := range map[string][]string{
		"execution": {"list", "show", "cancel", "retry", "delete", "move", "delay", "priority", "revoke", "block", "unblock", "signal", "resume"}, "flow": {"list", "show", "watch", "cancel", "retry"},
		"lane": {"list", "show", "pause", "resume", "retention"}, "worker": {"list", "show", "drain", "resume"}, "kind": {"list"},
		"consumer": {"list", "move", "remove", "set-aside"}, "event": {"tail"}, "retention": {"show"}, "stream": {"tail", "summary"},
	} {
		for _, command := range commands {
			if !strings.Contains(" "+strings.Join(groups[group], " ")+" ", " "+command+" ") {
				t.Errorf("ff %s has %q, not %s", group, groups[group], command)
			}
		}
	}
	version := ff.run(t, "", "--version")
	version.succeeds(t, "schema 2")
	if second := ff.run(t, "", "version"); second.stdout != version.stdout {
		t.Errorf("ff --version prints %q, ff version %q", version.stdout, second.stdout)
	}
}
