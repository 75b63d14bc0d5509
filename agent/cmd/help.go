package cmd

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

// printHelp writes the help text of an *cli.App or *cli.Command. It stands in for the
// library's templates: their layout puts flags and long texts beside each other, which
// no terminal is wide enough for, and a program that can execute text/template holds
// every exported method of every type (golang/go#72895), a third of its size.
func printHelp(w io.Writer, _ string, data any) {
	var b strings.Builder
	section := func(title, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%s:\n   %s\n\n", title, strings.ReplaceAll(text, "\n", "\n   "))
		}
	}
	var commands []*cli.Command
	var flags []cli.Flag
	switch d := data.(type) {
	case *cli.App:
		section("NAME", d.Name+" - "+d.Usage)
		section("USAGE", d.Name+" COMMAND [options]")
		section("VERSION", d.Version)
		section("DESCRIPTION", d.Description)
		commands, flags = d.VisibleCommands(), d.VisibleFlags()
	case *cli.Command:
		section("NAME", d.HelpName+" - "+usageOf(d))
		section("USAGE", d.UsageText)
		section("DESCRIPTION", d.Description)
		flags = d.VisibleFlags()
	}
	if len(commands) > 0 {
		b.WriteString("COMMANDS:\n")
		for _, c := range commands {
			fmt.Fprintf(&b, "   %-12s%s\n", c.Name, usageOf(c))
		}
		b.WriteByte('\n')
	}
	b.WriteString("OPTIONS:\n")
	for _, f := range flags {
		describeFlag(&b, f)
	}
	// There is no one to tell that standard output is closed.
	_, _ = io.WriteString(w, strings.ReplaceAll(b.String(), "\n   \n", "\n\n"))
}

// usageOf is a command's usage. The library's own command has one in another style.
func usageOf(c *cli.Command) string {
	if c.Name == "help" {
		return "show the help of sluice, or of a command"
	}
	return c.Usage
}

// describeFlag writes a flag's names on one line and its text below.
func describeFlag(b *strings.Builder, f cli.Flag) {
	doc, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return
	}
	placeholder, usage := "", doc.GetUsage()
	if own, ok := f.(*flag); ok {
		placeholder = own.placeholder
		if own.def != "" {
			usage += " (default: " + own.def + ")"
		}
	}
	for i, name := range f.Names() {
		b.WriteString([...]string{"   ", ", "}[min(i, 1)] + "--"[:min(len(name), 2)] + name)
		if placeholder != "" {
			b.WriteString(" " + placeholder)
		}
	}
	const indent, width = "\n         ", 80
	column := width
	for word := range strings.FieldsSeq(usage) {
		if column+1+len(word) > width {
			b.WriteString(indent)
			column = len(indent) - 1
		} else {
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	b.WriteByte('\n')
}
