package cmd

import (
	stdflag "flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// complete makes a command's list of the arguments that can come next.
func complete(arguments func(*cli.Context) []string) cli.BashCompleteFunc {
	return func(c *cli.Context) {
		for _, a := range arguments(c) {
			fmt.Fprintln(c.App.Writer, a)
		}
	}
}

// writeCandidates writes what can stand in place of the last of words, a line for each. words are those behind the
// program's name. Nothing is written where a file's name can stand, which shells complete by themselves.
func writeCandidates(app *cli.App, words []string) {
	var names []string
	for _, c := range app.Commands {
		names = append(names, c.Name)
	}
	before, current := words, ""
	if n := len(words); n > 0 {
		before, current = words[:n-1], words[n-1]
	}
	typingFlag := strings.HasPrefix(current, "-")
	switch {
	case len(before) == 0 && typingFlag:
		writeMatches(app.Writer, current, []string{"--help", "--version"})
	case len(before) == 0:
		writeMatches(app.Writer, current, append(names, "help"))
	case len(before) == 1 && before[0] == "help":
		writeMatches(app.Writer, current, names)
	}
	if len(before) == 0 {
		return
	}
	command := find(app.Commands, before[0])
	if command == nil {
		return
	}
	before = before[1:]
	if slices.Contains(before, "--") {
		writeArguments(app, command, before, current)
		return
	}
	if n := len(before); n > 1 && before[n-1] == "=" { // as bash splits it
		before = before[:n-1]
	}
	if n := len(before); n > 0 && takesValue(command, before[n-1]) {
		writeMatches(app.Writer, current, valuesOf(command, before[n-1]))
		return
	}
	if name, _, ok := strings.Cut(current, "="); ok && typingFlag {
		for _, v := range valuesOf(command, name) {
			writeMatches(app.Writer, current, []string{name + "=" + v})
		}
		return
	}
	if typingFlag {
		writeMatches(app.Writer, current, flagNames(command))
		return
	}
	writeArguments(app, command, before, current)
}

func writeMatches(w io.Writer, current string, candidates []string) {
	for _, c := range candidates {
		if strings.HasPrefix(c, current) {
			fmt.Fprintln(w, c)
		}
	}
}

// writeArguments asks the command, whose flags are set from the words before.
func writeArguments(app *cli.App, command *cli.Command, before []string, current string) {
	if command.BashComplete == nil {
		return
	}
	set := stdflag.NewFlagSet(command.Name, stdflag.ContinueOnError)
	set.SetOutput(io.Discard)
	for _, f := range command.Flags {
		if f.Apply(set) != nil {
			return
		}
	}
	words, err := flagsFirst(app.Commands, append([]string{app.Name, command.Name}, before...))
	if err != nil || set.Parse(words[2:]) != nil {
		return
	}
	var out strings.Builder
	asked := *app
	asked.Writer = &out
	command.BashComplete(cli.NewContext(&asked, set, nil))
	writeMatches(app.Writer, current, strings.Fields(out.String()))
}

// flagNames lists a command's flags as they are typed.
func flagNames(command *cli.Command) []string {
	names := []string{"--help"}
	for _, f := range command.Flags {
		for _, name := range f.Names() {
			names = append(names, dashes(name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// dashes puts one before a letter and two before a word.
func dashes(name string) string { return "--"[:min(len(name), 2)] + name }

// valuesOf lists the words that a flag can be set to; nil if they are not words of a list.
func valuesOf(command *cli.Command, name string) []string {
	for _, f := range command.Flags {
		if own, ok := f.(*flag); ok && slices.Contains(f.Names(), strings.TrimLeft(name, "-")) {
			return own.values
		}
	}
	return nil
}
