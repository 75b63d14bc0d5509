package cmd

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"sigs.k8s.io/yaml"
)

func outputFlag(usage string, values ...string) *flag {
	return &flag{name: "output", alias: "o", placeholder: "FORMAT", usage: usage, values: values}
}

// checkValue refuses a value that is not one of the flag's; none is always allowed.
func checkValue(f *flag) error {
	if v := f.last(); v != "" && !slices.Contains(f.values, v) {
		return usageError(fmt.Errorf("--%s %q is not one of %s", f.name, v, strings.Join(f.values, ", ")))
	}
	return nil
}

// show writes doc in the format that was asked for, or as text for people without one.
func show(w io.Writer, output *flag, doc any, text func(io.Writer) error) error {
	if output.last() == "" {
		return text(w)
	}
	return writeDocument(w, output.last(), doc)
}

// showAnswer is the action of a command without arguments that shows one document. Its exit code is that of a
// failure if failed says so: the document has said why.
func showAnswer[T any](output *flag, ask func(*cli.Context) (T, error), text func(*T, io.Writer) error, failed func(*T) bool) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.Args().Present() {
			return unexpectedArgument(c.Args().First())
		}
		if err := checkValue(output); err != nil {
			return err
		}
		doc, err := ask(c)
		if err != nil {
			return askError(err)
		}
		err = show(c.App.Writer, output, doc, func(w io.Writer) error { return text(&doc, w) })
		if err == nil && failed(&doc) {
			err = &exitError{code: exitFailure}
		}
		return err
	}
}

// writeDocument writes doc as "json" or "yaml".
func writeDocument(w io.Writer, format string, doc any) error {
	var out []byte
	var err error
	if format == "yaml" {
		out, err = yaml.Marshal(doc)
	} else {
		out, err = json.MarshalIndent(doc, "", "  ")
		out = append(out, '\n')
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", format, err)
	}
	_, err = w.Write(out)
	return err
}

func unexpectedArgument(arg string) error {
	return usageError(fmt.Errorf("unexpected argument %q", arg))
}
