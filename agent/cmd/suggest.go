package cmd

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"
)

// flagInError finds a flag in an error of the standard library's parser, which writes one dash.
var flagInError = regexp.MustCompile(`^(flag provided but not defined|flag needs an argument): -(.+)$`)

// flagError is an error about the flags of a command, or of sluice itself if it is nil.
func flagError(c *cli.Command, err error) error {
	m := flagInError.FindStringSubmatch(err.Error())
	switch {
	case m == nil:
		return usageError(err)
	case strings.HasSuffix(m[1], "argument"):
		return usageError(fmt.Errorf("%s needs an argument", dashes(m[2])))
	}
	known := []string{"--help", "--version"}
	if c != nil {
		known = flagNames(c)
	}
	return usageError(errors.New("unknown flag " + dashes(m[2]) + suggestion(dashes(m[2]), known)))
}

func unknownCommand(commands []*cli.Command, name string) error {
	var names []string
	for _, c := range commands {
		names = append(names, c.Name)
	}
	return usageError(fmt.Errorf("unknown command %q%s", name, suggestion(name, append(names, "help"))))
}

// suggestion names the word that is most like the one that was typed, if one is.
func suggestion(typed string, known []string) string {
	best, least := "", min(len(strings.TrimLeft(typed, "-"))/2, 3)+1 // errors that are allowed, and one
	for _, k := range known {
		if d := distance(typed, k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// distance is how many letters must be put in, taken out or replaced to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
