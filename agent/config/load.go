package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Sources are what a configuration is read from, beside the files.
type Sources struct {
	// Flags holds the options that are set on the command line, by Option.Name, with
	// each value as it was given.
	Flags map[string][]string
	// LookupEnv is os.LookupEnv, or a stand-in.
	LookupEnv func(name string) (string, bool)
	// Environ is os.Environ; nil looks for no variables that set nothing.
	Environ func() []string
}

// value is what one source says of an option.
type value struct {
	items  []string
	origin string // for error messages: "--sync-period", "SLUICE_SYNC_PERIOD" or "FILE: sync-period"
}

// Load reads the configuration: the command line is stronger than the
// environment, that is stronger than the files, and they are stronger than the
// defaults. It reports all that is wrong at once. Warnings are about what has no
// effect, such as unknown keys, and what hardly means what it says. Whether the values go together says Validate.
func Load(src Sources) (c Config, warnings []string, err error) {
	options := Options()

	path, optional := DefaultFile, true
	if v, ok := fromFlagsOrEnv(src, find(options, fileOption)); ok && v.items[0] != "" {
		path, optional = v.items[0], false
	}
	inFiles, warnings, err := readFiles(options, path, optional)
	for _, name := range src.UnknownVariables() {
		warnings = append(warnings, fmt.Sprintf("the environment variable %s sets no option and is ignored; --cluster-cidr is %sCLUSTER_CIDR, and so on", name, EnvPrefix))
	}
	if err != nil {
		return Config{}, warnings, err
	}

	var errs []error
	for i := range options {
		o := &options[i]
		v, ok := fromFlagsOrEnv(src, o)
		if !ok {
			v, ok = inFiles[o.Name]
		}
		if !ok {
			v = value{items: o.split([]string{o.Default}), origin: "--" + o.Name}
		}
		if err := o.set(&c, v.items); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", v.origin, err))
		}
		if o.doubt != nil {
			for _, d := range o.doubt(v.items) {
				warnings = append(warnings, v.origin+": "+d)
			}
		}
	}
	// As the kubelet does: a Node's name is a DNS name, and has no capitals.
	c.NodeName = strings.ToLower(strings.TrimSpace(c.NodeName))
	return c, warnings, errors.Join(errs...)
}

// FromProcess is Load's Sources with this process's environment.
func FromProcess(flags map[string][]string) Sources {
	return Sources{Flags: flags, LookupEnv: os.LookupEnv, Environ: os.Environ}
}

// UnknownVariables are the names of variables that look like options and are none, sorted.
func (src *Sources) UnknownVariables() (names []string) {
	if src.Environ == nil {
		return nil
	}
	options := Options()
	for _, v := range src.Environ() {
		name, _, _ := strings.Cut(v, "=")
		known := slices.ContainsFunc(options, func(o Option) bool { return o.Env() == name })
		// In a pod the kubelet sets these for a Service of the name "sluice".
		known = known || strings.HasPrefix(name, EnvPrefix+"SERVICE_") || strings.HasPrefix(name, EnvPrefix+"PORT")
		if strings.HasPrefix(name, EnvPrefix) && !known {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func find(options []Option, name string) *Option {
	for i := range options {
		if options[i].Name == name {
			return &options[i]
		}
	}
	return nil
}

func fromFlagsOrEnv(src Sources, o *Option) (value, bool) {
	if given, ok := src.Flags[o.Name]; ok && len(given) > 0 {
		return value{o.split(given), "--" + o.Name}, true
	}
	given, ok := src.LookupEnv(o.Env())
	// An empty variable is a usual way to unset one. Only where "" is a value is it taken for one.
	if !ok || given == "" && o.Type != String && o.Type != List {
		return value{}, false
	}
	return value{o.split([]string{given}), o.Env()}, true
}

// split makes the items of an option out of the values that were given: for a List all
// parts of all values, else the last value.
func (o *Option) split(given []string) []string {
	if o.Type != List {
		last := given[len(given)-1]
		if o.Type == Bool && last == "" {
			last = "false"
		}
		return []string{last}
	}
	var items []string
	for _, g := range given {
		for part := range strings.SplitSeq(g, ",") {
			if part = strings.TrimSpace(part); part != "" {
				items = append(items, part)
			}
		}
	}
	return items
}
