package cmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// flagsFirst moves a command's flags in front of its arguments, so that, as with
// kubectl, `sluice get services web -o yaml` works: the cli library stops reading flags
// at the first argument. What follows "--" is an argument. It is an error if a flag's value
// is missing, so that the flag behind it would be taken for the value.
func flagsFirst(commands []*cli.Command, args []string) ([]string, error) {
	if len(args) < 2 {
		return args, nil
	}
	known := find(commands, args[1])
	if known == nil {
		return args, nil
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
		if isHelp(arg) {
			return []string{args[0], args[1], "--help"}, nil // the library would take what stands beside it for a topic
		}
		flags = append(flags, arg)
		if !takesValue(known, arg) || i+1 == len(args) || isHelp(args[i+1]) {
			continue
		}
		i++
		if strings.HasPrefix(args[i], "--") || slices.Contains(flagNames(known), args[i]) {
			name := dashes(strings.TrimLeft(arg, "-"))
			return nil, fmt.Errorf("%s needs an argument; one that begins with dashes is given as %s=VALUE", name, name)
		}
		flags = append(flags, args[i])
	}
	return append(flags, rest...), nil
}

func isHelp(arg string) bool { return arg == "-h" || arg == "--help" || arg == "-help" }

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
