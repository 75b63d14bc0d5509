package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v2"
)

// maxFileSize is far above any real configuration; it keeps a wrong path from eating the memory.
const maxFileSize = 1 << 20

// readFiles reads path and then path.d/*.yaml in the order of their names; later
// files win, and "key+" appends to what earlier ones said. A missing file is an
// error unless it is optional; the directory may always be missing.
func readFiles(options []Option, path string, optional bool) (map[string]value, []string, error) {
	files := []string{path}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && optional {
		files = nil
	}
	entries, err := os.ReadDir(path + ".d")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, unreadable(err)
	}
	for _, e := range entries { // sorted by name
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml") {
			files = append(files, filepath.Join(path+".d", e.Name()))
		}
	}

	values := map[string]value{}
	var warnings []string
	var errs []error
	for _, file := range files {
		w, err := readFile(options, file, values)
		warnings = append(warnings, w...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	return values, warnings, errors.Join(errs...)
}

// unreadable says why a configuration cannot be read, and what helps.
func unreadable(err error) error {
	remedy := ""
	if errors.Is(err, fs.ErrPermission) {
		remedy = "; run this as root"
	}
	return fmt.Errorf("read configuration: %w%s", err, remedy)
}

// readFile lays what one file says over values.
func readFile(options []Option, file string, values map[string]value) (warnings []string, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, unreadable(err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileSize {
		return nil, fmt.Errorf("read configuration %s: it is not a regular file of at most 1 MiB", file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, unreadable(err)
	}
	doc := map[string]any{}
	if err := yaml.UnmarshalStrict(data, &doc); err != nil {
		return nil, fmt.Errorf("read configuration %s: it is not a YAML mapping of option names to values: %w", file, err)
	}

	// Sorted, "key" comes before "key+".
	keys := make([]string, 0, len(doc))
	for k := range doc {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var errs []error
	for _, key := range keys {
		name, appends := strings.CutSuffix(key, "+")
		o := find(options, name)
		if o == nil || name == fileOption {
			warnings = append(warnings, fmt.Sprintf("%s: unknown key %q is ignored; keys are the flags of `sluice agent` without dashes", file, key))
			continue
		}
		items, err := o.fromYAML(doc[key])
		if err == nil && appends && o.Type != List {
			err = fmt.Errorf("only lists can be appended to; write %q", name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", file, key, err))
			continue
		}
		v := value{items, file + ": " + key}
		if appends {
			v.items = append(slices.Clone(values[name].items), items...)
		}
		values[name] = v
	}
	return warnings, errors.Join(errs...)
}

// fromYAML turns the value of a key into an option's items.
func (o *Option) fromYAML(v any) ([]string, error) {
	if many, ok := v.([]any); ok && o.Type == List {
		var items []string
		for i, m := range many {
			s, ok := m.(string)
			if !ok {
				return nil, fmt.Errorf("item %d is %s, not a string; put it in quotes", i+1, describe(m))
			}
			items = append(items, o.split([]string{s})...)
		}
		return items, nil
	}
	switch v := v.(type) {
	case string:
		return o.split([]string{v}), nil
	case bool:
		if o.Type == Bool {
			return []string{strconv.FormatBool(v)}, nil
		}
	case int:
		if o.Type == Int || o.Type == Duration {
			return []string{strconv.Itoa(v)}, nil
		}
	}
	hint := ""
	if o.Type == String {
		switch v.(type) {
		case bool, int, int64, float64:
			hint = "; put it in quotes"
		}
	}
	return nil, fmt.Errorf("the value is %s, not %v%s", describe(v), o.Type, hint)
}

// describe names a YAML value for someone who wrote it.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "empty"
	case bool:
		return fmt.Sprintf("the boolean %t", v)
	case int, int64, uint64, float64:
		return fmt.Sprintf("the number %v", v)
	case []any:
		return "a list"
	case string:
		return "a string"
	}
	return "a mapping"
}
