package cmd

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

func outputFlag(usage string, values ...string) *flag {
	return &flag{name: "output", alias: "o", placeholder: "FORMAT", usage: usage, values: values}
}

// checkOutput refuses an output format that the flag does not have; none is always allowed.
func checkOutput(output *flag) error { return checkValue(output) }

// checkValue refuses a value that is not one of the flag's; none is always allowed.
func checkValue(f *flag) error {
	if v := f.last(); v != "" && !slices.Contains(f.values, v) {
		return usageError(fmt.Errorf("--%s %q is not one of %s", f.name, v, strings.Join(f.values, ", ")))
	}
	return nil
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
