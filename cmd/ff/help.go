package main

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// fitHelp makes the help of a command and its subcommands fit into 80 columns.
func fitHelp(cmd *cobra.Command) {
	if !cmd.HasParent() {
		cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), "FlagUsages", "FlagUsagesWrapped 80"))
	}
	cmd.Long = filled(cmd.Long)
	for _, below := range cmd.Commands() {
		fitHelp(below)
	}
}

// entry matches a line of a list: a name, two or more spaces, and its meaning, which may continue on the next lines.
var entry = regexp.MustCompile(`^ +\S+(?: \S+)* {2,}`)

// filled wraps text again: paragraphs, and lists with indented lines.
func filled(text string) string {
	var out strings.Builder
	var head string // start of the first line
	var hang int    // indentation of the following lines
	var words []string
	flush := func() {
		line := head
		for i, word := range words {
			if i > 0 && len([]rune(line))+1+len([]rune(word)) > columns {
				out.WriteString(strings.TrimRight(line, " ") + "\n")
				line = strings.Repeat(" ", hang) + word
				continue
			}
			if i > 0 {
				line += " "
			}
			line += word
		}
		if len(words) > 0 {
			out.WriteString(line + "\n")
		}
		head, hang, words = "", 0, nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		switch begin := entry.FindString(line); {
		case strings.TrimSpace(line) == "":
			flush()
			out.WriteString("\n")
			continue
		case indent > 0 && begin != "" && indent != hang:
			flush()
			head, hang = begin, len([]rune(begin))
			line = line[len(begin):]
		case indent != hang:
			flush()
			head, hang = strings.Repeat(" ", indent), indent
		}
		words = append(words, strings.Fields(line)...)
	}
	flush()
	return strings.TrimRight(out.String(), "\n")
}
