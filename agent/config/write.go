package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"go.yaml.in/yaml/v2"
)

// WriteFile sets in a configuration file the options that the command line and the environment set, and leaves the
// others in it as they are. Without such options nothing is written. Comments of the file are lost. The option that names the
// configuration file cannot be in one, and is left out.
func WriteFile(path string, src Sources) error {
	doc := map[string]any{}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write configuration: %w", err)
	}
	if err := yaml.UnmarshalStrict(data, &doc); err != nil {
		return fmt.Errorf("write configuration %s: what is there is not a YAML mapping: %w", path, err)
	}
	options := Options()
	changed := false
	for i := range options {
		o := &options[i]
		v, set := fromFlagsOrEnv(src, o)
		if !set || o.Name == fileOption {
			continue
		}
		if doc[o.Name], err = o.toYAML(v.items); err != nil {
			return fmt.Errorf("%s: %w", v.origin, err)
		}
		delete(doc, o.Name+"+")
		changed = true
	}
	if !changed {
		return nil
	}
	if data, err = yaml.Marshal(doc); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}

// toYAML is the value of a key for an option's items, the inverse of fromYAML.
func (o *Option) toYAML(items []string) (any, error) {
	switch o.Type {
	case List:
		return append([]string{}, items...), nil
	case Bool:
		return strconv.ParseBool(items[0])
	case Int:
		return strconv.Atoi(items[0])
	}
	return items[0], nil
}
