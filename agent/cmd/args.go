package cmd

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// flagsFirst moves a command's flags in front of its arguments, so that, as with
// kubectl, `sluice get services web -o yaml` works: the cli library stops reading flags
// at the first argument. What follows "--" is an argument.
func flagsFirst(commands []*cli.Command, args []string) []string {
	if len(args) < 2 {
		return args
	}
	known := find(commands, args[1])
	if known == nil {
		return args
	}
	flags := args[:2:2]
	var rest []string
	for i := 2; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			// In front of all arguments, as the library would take it for one of them.
			flags = append(flags, arg)
			rest = append(rest, args[i+1:]...)
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			rest = append(rest, arg)
			continue
		}
		if arg == "-h" || arg == "--help" || arg == "-help" {
			return []string{args[0], args[1], "--help"} // the library would take what stands beside it for a topic
		}
		flags = append(flags, arg)
		if takesValue(known, arg) && i+1 < len(args) {
			i++
			flags = append(flags, args[i])
		}
	}
	return append(flags, rest...)
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// takesValue tells whether the next argument belongs to the flag arg.
func takesValue(c *cli.Command, arg string) bool {
	name := strings.TrimLeft(arg, "-")
	if strings.Contains(name, "=") {
		return false
	}
	for _, f := range c.Flags {
		if doc, ok := f.(cli.DocGenerationFlag); ok && slices.Contains(f.Names(), name) {
			return doc.TakesValue()
		}
	}
	return false
}
