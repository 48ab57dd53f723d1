package report

import "strings"

// Code returns a code span with the text on one line. The text may be any name of a project: no part leaves the span.
func Code(text string) string {
	if strings.ContainsAny(text, "\r\n") {
		text = oneLine(text)
	}
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if fence == "`" {
		return fence + text + fence
	}
	return fence + " " + text + " " + fence
}

func block(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "\n" + strings.TrimRight(text, "\n") + "\n" + fence
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// line is the Markdown of a title or a reason on one line: see prose.
func line(text string) string { return prose(oneLine(text)) }

// prose makes Markdown of a finding safe to show beside others. It may contain names of the project, and messages of the
// server that quote them: outside code spans they begin no HTML and mention no account. A span ends with its line.
func prose(text string) string {
	lines := strings.Split(strings.ReplaceAll(strings.TrimRight(text, "\r\n"), "\r", "\n"), "\n")
	for i, line := range lines {
		lines[i] = outsideSpans(line)
	}
	return strings.Join(lines, "\n")
}

// harmless replaces the characters that begin HTML and mentions. A code host sees no mention across a comment.
var harmless = strings.NewReplacer(`\`, `\\`, "<", "&lt;", "@", "@<!-- -->")

func outsideSpans(line string) string {
	var b strings.Builder
	if rest := strings.TrimLeft(line, " \t"); strings.HasPrefix(rest, "```") || strings.HasPrefix(rest, "~~~") {
		b.WriteString(line[:len(line)-len(rest)] + `\`) // else it begins a block that hides the lines after it
		line = rest
		b.WriteString(line[:1])
		line = line[1:]
	}
	for line != "" {
		from := strings.IndexByte(line, '`')
		if from < 0 {
			break
		}
		b.WriteString(harmless.Replace(line[:from]))
		line = line[from:]
		fence := line[:len(line)-len(strings.TrimLeft(line, "`"))]
		if to := end(line[len(fence):], fence); to >= 0 {
			b.WriteString(line[:len(fence)+to])
			line = line[len(fence)+to:]
		} else {
			b.WriteString(strings.ReplaceAll(fence, "`", "\\`"))
			line = line[len(fence):]
		}
	}
	b.WriteString(harmless.Replace(line))
	return b.String()
}

// end returns where a code span ends, after its closing backticks: as many as at its start. Otherwise -1.
func end(text, fence string) int {
	for at := 0; ; {
		next := strings.IndexByte(text[at:], '`')
		if next < 0 {
			return -1
		}
		at += next
		length := len(text[at:]) - len(strings.TrimLeft(text[at:], "`"))
		at += length
		if length == len(fence) {
			return at
		}
	}
}
